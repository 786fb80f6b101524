import type { CallSummary } from '../../../plugins/facts.ts'
import type { LimitedThings } from '../../../plugins/limits/limits.ts'

interface LimitedMessage {
  readonly call: CallSummary
  readonly body: Buffer
}

/** Says of MCP work what limits look at: the tool of a call, and the length of its message. */
export const limitedTool = ({ call, body }: LimitedMessage): LimitedThings => ({
  models: [],
  tool: call.tool,
  size: { bytes: body.length, maxOutput: 0 },
})
