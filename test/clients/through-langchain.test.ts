import { talk } from '../support/clients/talk/langchain.ts'
import { provesEachCall } from '../support/clients/talk/proves.ts'

await provesEachCall('langchain', talk, ['chat', 'responses'])
