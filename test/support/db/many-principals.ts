import { withRaw } from './scratch-ledger.ts'

const digest = (n: number): string => n.toString(16).padStart(64, '0')
const instant = (n: number): string => new Date(Date.UTC(2026, 0, 1) + n * 1_000).toISOString()

/** How many there are of each: principals of each type, MCP servers, tools of each, bindings of each agent. */
export interface Many {
  readonly principals: number
  readonly servers: number
  readonly tools: number
  readonly bindings: number
}

/** The id of an MCP server that {@link fillTables} makes. */
export const serverId = (n: number): string => `mcpr_${String(n).padStart(24, '0')}`

/**
 * Puts many principals, MCP servers, tools and bindings into a database, as raw rows and in one transaction.
 * Each agent holds some capabilities that hardly anybody else does; every tenth tool waits for approval.
 */
export function fillTables(file: string, many: Many): void {
  withRaw(file, (db) => {
    db.pragma('synchronous = OFF')
    const into = (table: string, columns: string) =>
      db.prepare(`insert into ${table} (${columns}) values (${columns.replaceAll(/\w+/g, '?')})`)
    const principal = (table: string, id: string) =>
      into(table, `${id}, name, enrollment_method, capabilities, created_at, updated_at`)
    const types = {
      agent: principal('internal_agents', 'agent_id'),
      user: into(
        'local_user_principals',
        'principal_id, name, enrollment_method, capabilities, created_at, updated_at, principal_ref',
      ),
      workload: principal('local_workload_principals', 'principal_id'),
    }
    const server = into(
      'mcp_resources',
      'resource_id, name, endpoint_url, auth_type, required_capability, allowed_domains, enabled, tool_capabilities, created_at, updated_at, last_read_at',
    )
    const tool = into(
      'mcp_tools',
      'resource_id, name, definition, digest, state, pending_definition, pending_digest, flags, pinned_at',
    )
    const binding = into('mcp_bindings', 'binding_id, principal_type, principal_id, resource_id, created_at')
    const definition = (name: string, text: string) =>
      JSON.stringify({ name, description: text.repeat(2_000), inputSchema: { type: 'object' } })
    db.transaction(() => {
      for (let n = 0; n < many.principals; n += 1) {
        const own = Array.from({ length: 8 }, (_, i) => `own.of_${n % 2_000}_${i}`)
        for (const [type, statement] of Object.entries(types)) {
          const capabilities = JSON.stringify(['llm.chat', ...own])
          const columns = [`acme::${type}-${n}`, `${type}-${n}`, 'csr', capabilities, instant(n), instant(n)]
          statement.run(...columns, ...(type === 'user' ? [`usr_${n}`] : []))
        }
      }
      for (let n = 0; n < many.servers; n += 1) {
        const id = serverId(n)
        const own = JSON.stringify({ tool_0: `tools.of_${n}` })
        server.run(
          ...[id, `server-${n}`, 'https://server.example/mcp', 'none', 'mcp.tools.call', '[]', 1, own],
          ...[instant(n), instant(n), instant(n)],
        )
        for (let i = 0; i < many.tools; i += 1) {
          const name = `tool_${i}`
          const waits = i % 10 === 0
          tool.run(
            ...[id, name, definition(name, 'a'), digest(1), waits ? 'quarantined' : 'approved'],
            ...[waits ? definition(name, 'b') : null, waits ? digest(2) : null, '[]', instant(0)],
          )
        }
      }
      for (let n = 0; n < many.principals; n += 1) {
        for (let i = 0; i < many.bindings; i += 1) {
          const id = serverId((n + i) % many.servers)
          binding.run(`mcpb_${n}_${i}`, 'agent', `acme::agent-${n}`, id, instant(n % 100))
        }
      }
    })()
  })
}
