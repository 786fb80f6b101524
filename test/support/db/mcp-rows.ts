import type { Database } from '../../../db/database.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import { findMcpResource, insertMcpResource, NO_APPROVALS } from '../../../db/mcp/resources.ts'
import type { PinnedMcpTool } from '../../../db/mcp/tools.ts'
import type { Opened } from './writer.ts'

export const AT = Date.UTC(2026, 0, 1)

/** What an operator says of a resource of that name, and when. */
export const fieldsOf = (name: string) => ({
  name,
  description: null,
  endpoint_url: `https://${name}.example/mcp`,
  auth_type: 'none' as const,
  auth_secret_ref: null,
  oauth: null,
  required_capability: 'mcp.tools.call',
  allowed_domains: [],
  enabled: true,
  tool_capabilities: {},
  ...NO_APPROVALS,
  min_proof: 'certificate' as const,
  tool_min_proof: {},
  at: AT,
})

/** Stores a resource under `mcpr_<name>` and reads it back. */
export async function stored({ db, run }: Opened, name: string, more: object = {}): Promise<McpResource> {
  await run(insertMcpResource(db, { ...fieldsOf(name), resource_id: `mcpr_${name}`, ...more }))
  return resourceOf(db, name)
}

/** `mcpr_<name>` as the database has it now. */
export async function resourceOf(db: Database, name: string): Promise<McpResource> {
  const found = await findMcpResource(db, `mcpr_${name}`)
  if (!found) throw new Error(`${name} is not there`)
  return found
}

/** An approved tool of `mcpr_<resource>`. */
export const toolOf = (resource: string, name: string, more: Partial<PinnedMcpTool> = {}): PinnedMcpTool => ({
  resource_id: `mcpr_${resource}`,
  name,
  definition: `{"name":"${name}"}`,
  digest: 'd1',
  state: 'approved',
  pending_definition: null,
  pending_digest: null,
  digest_is_whole: true,
  pending_is_whole: true,
  flags: [],
  pinned_at: '2026-01-01T00:00:00.000Z',
  changed_at: null,
  ...more,
})
