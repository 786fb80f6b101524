import { talk } from '../support/clients/talk/ai-sdk.ts'
import { provesEachCall } from '../support/clients/talk/proves.ts'

await provesEachCall('ai-sdk', talk, ['responses', 'chat', 'messages'])
