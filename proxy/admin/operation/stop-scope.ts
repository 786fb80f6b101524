import { z } from 'zod'
import { findMcpResource } from '../../../db/mcp/resources.ts'
import { findPrincipalOf } from '../../../db/principals/read.ts'
import { STOPPED_KINDS, type StopScope } from '../../../db/stops/stop.ts'
import type { AdminContext } from './context.ts'

const name = z.string().min(1).max(512)

/** The calls that a stop refuses, as operators write it: principals and MCP servers by their ids. */
export const stopScope = z
  .union([
    z.enum(['all', 'llm', 'mcp']),
    z.strictObject({ principal: name }),
    z.strictObject({ resource: name }),
    z.strictObject({ kind: z.enum(STOPPED_KINDS) }),
  ])
  .meta({
    id: 'StopScope',
    description:
      'The calls that are refused: all; to models (`llm`) or to MCP (`mcp`); of one principal; that reach one MCP server; of one kind of principals.',
  })

/** Names the scope as rows do. Returns a sentence if there is no such principal or server. */
export async function recordedScope(
  { database }: Pick<AdminContext, 'database'>,
  scope: StopScope,
): Promise<{ readonly scope: StopScope } | { readonly problem: string }> {
  if (typeof scope === 'string' || 'kind' in scope) return { scope }
  if ('principal' in scope) {
    const found = await findPrincipalOf(database, ['agent', 'user', 'workload'], scope.principal)
    return found
      ? { scope: { principal: found.principal_ref } }
      : { problem: `There is no agent, user or workload ${scope.principal}.` }
  }
  return (await findMcpResource(database, scope.resource))
    ? { scope }
    : { problem: `There is no MCP server ${scope.resource}. GET /v1/admin/mcp-resources lists them.` }
}
