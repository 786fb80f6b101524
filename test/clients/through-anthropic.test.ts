import { talk } from '../support/clients/talk/anthropic.ts'
import { provesEachCall } from '../support/clients/talk/proves.ts'

await provesEachCall('anthropic', talk, ['messages'])
