import { findMcpResource, type McpResource } from '../../../db/mcp/resources.ts'
import { listMcpTools } from '../../../db/mcp/tools.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { retryIfOvertaken } from '../operation/change.ts'
import type { AdminContext } from '../operation/context.ts'
import { checkIfMatch } from '../operation/operation.ts'
import { mcpResourceDetail } from './view.ts'

export async function mcpResource({ database }: AdminContext, id: string): Promise<McpResource> {
  const found = await findMcpResource(database, id)
  if (!found) throw new Refusal('not_found', { message: 'There is no MCP resource with this id.' })
  return found
}

export async function resourceAnswer(context: AdminContext, id: string) {
  const resource = await mcpResource(context, id)
  const tools = await listMcpTools(context.database, id)
  return { value: await mcpResourceDetail(resource, tools), revision: resource.revision }
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
