import { talk } from './talk/langchain.ts'
import { provesEachCall } from './talk/proves.ts'

await provesEachCall('langchain', talk, ['chat', 'responses'])
