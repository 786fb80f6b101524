import type { McpResource } from '../../../db/mcp/resources.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { applyRead } from '../../mcp/pinning/apply-read.ts'
import { inspectWithin } from '../../mcp/pinning/inspect.ts'
import { type AdminContext, changeAll } from '../change.ts'
import type { AdminRequest } from '../principals/principals.ts'

/** An operator waits for it, and a proxy or a client of his would not wait for much longer. ms. */
const MAX_READ_MS = 30_000

/**
 * Reads the upstream of a resource and stores what that changes. An upstream that cannot be read is no refusal: the
 * resource says so itself, and one that takes longer than `withinMs` is none that can. A read that was overtaken is
 * dropped: what overtook it is newer.
 */
export async function readUpstream(
  context: AdminContext,
  facts: AdminRequest,
  resource: McpResource,
  withinMs = MAX_READ_MS,
): Promise<void> {
  const { database, mcp } = context
  const result = await inspectWithin(mcp.inspect, withinMs)(resource, facts.signal)
  const applied = applyRead({ database, at: facts.at }, resource, result)
  try {
    await changeAll(context, facts, applied)
  } catch (error) {
    if (!(error instanceof Refusal) || error.reason !== 'precondition_failed') throw error
  }
}
