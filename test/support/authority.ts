import { openDatabase } from '../../db/engine.ts'
import type { AuditRow } from '../../db/ledger/read/read.ts'
import type { Json, TestGateway } from './gateway.ts'

/** Every row of a gateway's ledger, in the order of the chain. */
export async function chainOf({ settings }: Pick<TestGateway, 'settings'>): Promise<readonly AuditRow[]> {
  const database = await openDatabase(settings.databaseUrl)
  const rows = await database.kysely.selectFrom('audit_log').selectAll().orderBy('seq').execute()
  await database.close()
  return rows.map((row) => ({ ...row, detail: JSON.parse(row.detail) }))
}

interface Holder {
  capabilities: readonly string[]
  active: boolean
}

interface Resource {
  name: string
  enabled: boolean
  required: string
  own: Readonly<Record<string, string>>
}

/** The authority of all principals up to a row, by the ledger alone. */
class Authority {
  readonly #holders = new Map<string, Holder>()
  readonly #resources = new Map<string, Resource>()
  readonly #bindings = new Set<string>()

  /** Takes in what a change row says. */
  learn({ action, detail }: AuditRow): void {
    const said: Json = detail
    const holder = this.#holders.get(said.subject)
    if (action === 'agent.created')
      this.#holders.set(said.subject, { capabilities: said.capabilities, active: true })
    if (holder && action === 'agent.capabilities_patched') holder.capabilities = said.capabilities
    if (holder && action === 'agent.deactivated') holder.active = false
    if (holder && action === 'agent.reactivated') holder.active = true
    if (action.startsWith('mcp_resource.')) this.#resources.set(said.resource_id, resourceOf(said))
    if (action === 'mcp_binding.created') this.#bindings.add(`${said.subject} ${said.resource_id}`)
    if (action === 'mcp_binding.revoked') this.#bindings.delete(`${said.subject} ${said.resource_id}`)
  }

  /** Whether an allowed row is covered by what was said before it. */
  covers({ action, principal_id: id, tool, detail }: AuditRow): boolean {
    const holder = this.#holders.get(id ?? '')
    if (!holder?.active) return false
    if (action === 'egress_llm_chat') return holder.capabilities.includes('llm.chat')
    const found = [...this.#resources].find(([, { name }]) => name === detail.resource)
    const reached = found?.[1].enabled && this.#bindings.has(`${id} ${found[0]}`)
    if (action === 'mcp_tools_list')
      return holder.capabilities.includes('mcp.tools.list') && (reached || detail.resource === undefined)
    const { own = {}, required = '' } = found?.[1] ?? {}
    const [, name = ''] = (tool ?? '').split('.')
    return reached === true && holder.capabilities.includes(own[name] ?? required)
  }
}

/** Every row of a resource says its whole state. */
const resourceOf = (said: Json): Resource => ({
  name: said.name,
  enabled: said.enabled,
  required: said.required_capability,
  own: said.tool_capabilities,
})

/** The allowed rows that no authority covers by what stands in front of them. */
export function uncovered(rows: readonly AuditRow[]): readonly AuditRow[] {
  const authority = new Authority()
  return rows.filter((row) => {
    authority.learn(row)
    return row.status === 'allowed' && !authority.covers(row)
  })
}
