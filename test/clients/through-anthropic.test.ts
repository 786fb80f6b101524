import { talk } from './talk/anthropic.ts'
import { provesEachCall } from './talk/proves.ts'

await provesEachCall('anthropic', talk, ['messages'])
