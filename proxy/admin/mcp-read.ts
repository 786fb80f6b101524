import type { McpResource } from '../../db/mcp-resources.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { applyRead } from '../mcp/apply-read.ts'
import { type AdminContext, changeAll } from './change.ts'
import type { Asked } from './principals.ts'

/**
 * Reads the upstream of a resource and stores what that changes. An upstream that cannot be read is no refusal: the
 * resource says so itself. A read that was overtaken is dropped: what overtook it is newer.
 */
export async function readUpstream(
  context: AdminContext,
  facts: Asked,
  resource: McpResource,
): Promise<void> {
  const { database, mcp } = context
  const result = await mcp.inspect(resource, facts.signal)
  const applied = applyRead({ database, at: facts.at }, resource, result)
  try {
    await changeAll(context, facts, applied)
  } catch (error) {
    if (!(error instanceof Refusal) || error.reason !== 'precondition_failed') throw error
  }
}
