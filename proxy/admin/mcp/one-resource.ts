import { findMcpResource, type McpResource } from '../../../db/mcp/resources.ts'
import { listMcpTools } from '../../../db/mcp/tools.ts'
import { notFound } from '../../../plugins/refusal.ts'
import { applyRead } from '../../mcp/pinning/apply-read.ts'
import { inspectWithin } from '../../mcp/pinning/inspect.ts'
import { commitChanges, isOvertaken, retryIfOvertaken } from '../operation/change.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { checkIfMatch } from '../operation/operation.ts'
import { mcpResourceDetail, resourceDetail } from './view.ts'

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

export async function mcpResource({ database }: AdminContext, id: string): Promise<McpResource> {
  const found = await findMcpResource(database, id)
  if (!found) throw notFound('There is no MCP resource with this id. GET /v1/admin/mcp-resources lists them.')
  return found
}

export async function resourceAnswer(context: AdminContext, id: string) {
  const resource = await mcpResource(context, id)
  const tools = await listMcpTools(context.database, id)
  return { value: await mcpResourceDetail(context.database, resource, tools), revision: resource.revision }
}

/**
 * Changes a resource as it was just read, one after the other, so that a change without `ifMatch` is never
 * overtaken. With it, refuses with `precondition_failed` a resource changed since.
 */
export const withLatestResource = <Made>(
  context: AdminContext,
  { id, ifMatch }: { readonly id: string; readonly ifMatch?: string | undefined },
  make: (resource: McpResource) => Promise<Made>,
): Promise<Made> =>
  context.oneAtATime.run(`mcp_resource ${id}`, () =>
    // A reading may have come in between.
    retryIfOvertaken(async () => {
      const resource = await mcpResource(context, id)
      checkIfMatch(ifMatch, resource)
      return resource
    }, make),
  )

/** The parts that all changes of one MCP server have. */
export const RESOURCE_CHANGE = {
  demands: 'admin.tools',
  object: (context: AdminContext, input: { readonly params: { readonly resource_id: string } }) =>
    mcpResource(context, input.params.resource_id),
  output: resourceDetail,
  conditional: true,
  revised: true,
  fromStrangers: true,
  reasons: ['not_found', 'conflict', 'precondition_failed', 'audit_unavailable'],
} as const
