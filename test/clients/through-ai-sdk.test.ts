import { talk } from './talk/ai-sdk.ts'
import { provesEachCall } from './talk/proves.ts'

await provesEachCall('ai-sdk', talk, ['responses', 'chat', 'messages'])
