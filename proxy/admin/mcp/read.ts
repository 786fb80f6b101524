import type { McpResource } from '../../../db/mcp/resources.ts'
import { applyRead } from '../../mcp/pinning/apply-read.ts'
import { inspectWithin } from '../../mcp/pinning/inspect.ts'
import { commitChanges, isOvertaken } from '../operation/change.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'

/** The time that an operator waits: a client or a proxy in between would not wait for much longer. ms. */
const MAX_READ_MS = 30_000

/**
 * Reads the upstream of a resource and stores the changes. One that cannot be read, or not `withinMs`, is no
 * refusal: the resource says so. A read that was overtaken is dropped.
 */
export async function readAndStoreUpstream(
  context: AdminContext,
  caller: AdminCaller,
  resource: McpResource,
  withinMs = MAX_READ_MS,
): Promise<void> {
  const { database, mcp } = context
  const result = await inspectWithin(mcp.inspect, withinMs)(resource, caller.hangup.signal)
  const applied = await applyRead({ database, at: caller.at }, resource, result)
  try {
    await commitChanges(context, caller, applied)
  } catch (error) {
    if (!isOvertaken(error)) throw error
  }
}
