import type { ProtocolEra } from '../../../proxy/mcp/protocol/versions.ts'
import { type AdminCall, expectStatus } from '../../../scripts/admin/call.ts'
import { RESOURCES, SERVER_PATHS, TOOL } from '../load/mcp-messages.ts'

const ERAS: readonly ProtocolEra[] = ['legacy', 'modern']

/**
 * Registers the upstream's two MCP servers and binds these agents to both. Registration reads them, so the
 * upstream must run. Throws where the gateway found something else there.
 */
export async function registerMcp(
  call: AdminCall,
  upstreamPort: number,
  agents: readonly string[],
): Promise<void> {
  for (const era of ERAS) {
    const endpoint = `http://127.0.0.1:${upstreamPort}${SERVER_PATHS[era]}`
    const resource = { name: RESOURCES[era], endpoint_url: endpoint }
    const made = expectStatus(await call('POST', '/v1/admin/mcp-resources', resource), 201)
    const { era: found, resource_id, tools, last_error } = made
    if (found !== era || !JSON.stringify(tools).includes(`"${TOOL.name}"`)) {
      throw new Error(`the ${era} MCP server was read as ${String(found)}: ${String(last_error)}`)
    }
    for (const agent_id of agents) {
      expectStatus(await call('POST', '/v1/admin/mcp-resources/bindings', { agent_id, resource_id }), 201)
    }
  }
}
