import { findMcpResource, type McpResource } from '../../../db/mcp/resources.ts'
import { listMcpTools } from '../../../db/mcp/tools.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { retryIfOvertaken } from '../operation/change.ts'
import type { AdminContext } from '../operation/context.ts'
import { checkIfMatch } from '../operation/operation.ts'
import { mcpResourceDetail } from './view.ts'

/** Finds the resource of an id, or refuses with `not_found`. */
export async function mcpResource({ database }: AdminContext, id: string): Promise<McpResource> {
  const found = await findMcpResource(database, id)
  if (!found) throw new Refusal('not_found', { message: 'There is no MCP resource with this id.' })
  return found
}

/** The resource of an id as it is now, with its tools and their definitions. */
export async function resourceAnswer(context: AdminContext, id: string) {
  const resource = await mcpResource(context, id)
  const tools = await listMcpTools(context.database, id)
  return { value: await mcpResourceDetail(resource, tools), revision: resource.revision }
}

/**
 * Makes a change of a resource as it was just read. Those of one resource are made one after the other, so
 * that one without `ifMatch` is never overtaken by another; with it, a resource that was changed since is
 * refused with `precondition_failed`.
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
