import { talk } from './talk/openai.ts'
import { provesEachCall } from './talk/proves.ts'

await provesEachCall('openai', talk, ['chat', 'responses'])
