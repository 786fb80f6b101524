import { talk } from '../support/clients/talk/openai.ts'
import { provesEachCall } from '../support/clients/talk/proves.ts'

await provesEachCall('openai', talk, ['chat', 'responses'])
