import type { Database } from '../../../db/database.ts'
import type { AuditRow } from '../../../db/ledger/read/read.ts'
import type { Json } from '../gateway.ts'

/** What a change takes two people for. */
export type Kind = 'grant' | 'tools' | 'operators'

const GRANTS = /^(agent|user|workload)\.capabilities_patched$|^mcp_binding\./
const ENROLLS = /^(agent\.(created|enrolled_\w+)|(user|workload)\.created)$/
const OWNERS =
  /^operator\.|^admin\.(secret_(rotated|disabled|enabled)|signing_key_rotated)$|^audit\.key_rotated$/

interface Operator {
  readonly capabilities: readonly string[]
  readonly active: boolean
}

interface Demands {
  readonly required: string | null
  readonly own: Readonly<Record<string, string>>
}

const demanded = ({ required, own }: Demands, tool: string): string | null =>
  (Object.hasOwn(own, tool) ? own[tool] : null) ?? required

/**
 * Reads a ledger as somebody who knows the rule, and nothing of the product: which change was made, at that place of
 * the chain, by one person where two must be asked.
 */
export class TwoPeople {
  readonly faults: string[] = []
  /** The changes that a second person has let through. */
  confirmed = 0
  /** The changes of a listed kind that one person could make, there being no other. */
  alone = 0
  readonly #kinds: readonly Kind[]
  readonly #operators = new Map<string, Operator>()
  readonly #servers = new Map<string, Demands>()
  readonly #proposed = new Map<string, AuditRow>()
  readonly #ended = new Set<string>()

  constructor(kinds: readonly Kind[]) {
    this.#kinds = kinds
  }

  /** Takes in the rows of one chain, in its order. */
  read(rows: readonly AuditRow[]): this {
    for (const [index, row] of rows.entries()) {
      if (row.status !== 'success') continue
      this.#judge(row, rows[index + 1])
      this.#learn(row)
    }
    return this
  }

  /** The kinds of a change, as its row alone shows them. */
  kindsOf({ action, detail }: AuditRow): readonly Kind[] {
    const said: Json = detail
    if (GRANTS.test(action)) return ['grant']
    if (ENROLLS.test(action)) return said.capabilities.length > 0 ? ['grant'] : []
    if (OWNERS.test(action)) return ['operators']
    if (!/^mcp_resource\.(created|updated|deleted|tool_approved)$/.test(action)) return []
    // What a reading brings names no fields.
    if (action === 'mcp_resource.updated' && !said.fields) return []
    return this.#lowers(said) ? ['tools', 'grant'] : ['tools']
  }

  #lowers(said: Json): boolean {
    const before = this.#servers.get(said.resource_id)
    if (!before) return false
    const after = demandsOf(said)
    const tools = [...Object.keys(before.own), ...Object.keys(after.own), 'any other']
    return tools.some((tool) => {
      const [was, is] = [demanded(before, tool), demanded(after, tool)]
      return was !== null && was !== is
    })
  }

  #judge(row: AuditRow, next: AuditRow | undefined): void {
    if (row.action.startsWith('proposal.')) {
      this.#judgeProposal(row)
      return
    }
    const said: Json = row.detail
    const kinds = this.kindsOf(row).filter((kind) => this.#kinds.includes(kind))
    if (kinds.length === 0) return
    const fault = said.proposal === undefined ? this.#faultAlone(row, kinds) : this.#faultOfTwo(row, next)
    if (fault !== null) this.faults.push(`${row.seq} ${row.action} by ${row.principal_id}: ${fault}`)
    else if (said.proposal !== undefined) this.confirmed += 1
    else if (said.via !== 'socket') this.alone += 1
  }

  #faultAlone({ detail }: AuditRow, kinds: readonly Kind[]): string | null {
    if (detail.via === 'socket') return null
    const crowded = kinds.find((kind) => this.holders(`admin.${kind}`).length > 1)
    return crowded
      ? `made alone, though ${this.holders(`admin.${crowded}`).join()} hold admin.${crowded}`
      : null
  }

  #faultOfTwo(row: AuditRow, next: AuditRow | undefined): string | null {
    const { proposal: id, confirmed_by: by }: Json = row.detail
    const proposed = this.#proposed.get(id)
    const confirmation: Json = next?.detail
    if (!proposed) return `nobody has proposed ${id}`
    if (by === row.principal_id) return 'confirmed by itself'
    if (proposed.principal_id !== row.principal_id) return `proposed by ${proposed.principal_id}`
    if (proposed.detail.change !== row.action) return `proposed as ${textOf(proposed.detail.change)}`
    if (next?.action !== 'proposal.confirmed' || next.principal_id !== by || confirmation.proposal !== id)
      return 'its confirmation does not stand behind it'
    if (confirmation.via === 'secret') return 'confirmed by whoever has the secret'
    const missing = (proposed.detail.capabilities as readonly string[]).find(
      (one) => ![by, row.principal_id].every((who) => this.#holds(who, one)),
    )
    return missing === undefined ? null : `not both hold ${missing}`
  }

  #judgeProposal(row: AuditRow): void {
    const { proposal: id, proposed_by: of }: Json = row.detail
    const fault = (text: string) => this.faults.push(`${row.seq} ${row.action} ${id}: ${text}`)
    if (row.action === 'proposal.created') {
      this.#proposed.set(id, row)
      return
    }
    if (this.#ended.has(id)) fault('has ended before')
    this.#ended.add(id)
    if (this.#proposed.get(id)?.principal_id !== of) fault(`was not proposed by ${of}`)
    if (row.action === 'proposal.confirmed' && of === row.principal_id) fault('by its proposer')
  }

  /** The active operators who hold it. */
  holders(capability: string): readonly string[] {
    return [...this.#operators.keys()].filter((name) => this.#holds(name, capability))
  }

  #holds(name: string, capability: string): boolean {
    // Who is in no table holds all there is.
    if (name === 'admin' || name.startsWith('socket:')) return true
    const known = this.#operators.get(name)
    return known?.active === true && known.capabilities.includes(capability)
  }

  #learn({ action, detail }: AuditRow): void {
    const said: Json = detail
    if (action.startsWith('operator.'))
      this.#operators.set(said.subject, { capabilities: said.capabilities, active: said.is_active })
    if (action.startsWith('mcp_resource.')) this.#servers.set(said.resource_id, demandsOf(said))
  }
}

const demandsOf = (said: Json): Demands => ({
  required: said.required_capability,
  own: said.tool_capabilities,
})

const PRINCIPALS = [
  ['internal_agents', 'agent_id'],
  ['local_workload_principals', 'principal_id'],
  ['local_operator_principals', 'principal_id'],
  ['local_user_principals', 'principal_ref'],
] as const

/** Where the tables are not what the last row about each of their objects says, each as a sentence. */
export async function differences(
  { kysely }: Database,
  rows: readonly AuditRow[],
): Promise<readonly string[]> {
  const made = rows.filter(({ status }) => status === 'success')
  const last = new Map<string, Json>()
  for (const { detail } of made) {
    const said: Json = detail
    if (said.revision !== undefined) last.set(said.resource_id ?? said.subject, said)
  }
  const found: string[] = []
  const compare = (what: string, stored: Json, said: Json): void => {
    const [one, other] = [JSON.stringify(stored), JSON.stringify(said)]
    if (one !== other) found.push(`${what} is ${one}, and the ledger says ${other}`)
  }
  for (const [table, ref] of PRINCIPALS) {
    const { dynamic } = kysely
    const all: Json[] = await kysely.selectFrom(dynamic.table(table).as('p')).selectAll().execute()
    for (const one of all) {
      const { capabilities, is_active: active } = last.get(one[ref]) ?? {}
      compare(one[ref], [JSON.parse(one.capabilities), one.is_active === 1], [capabilities, active])
    }
  }
  const servers = await kysely.selectFrom('mcp_resources').selectAll().execute()
  for (const one of servers) {
    const said = last.get(one.resource_id) ?? {}
    compare(
      one.resource_id,
      [one.required_capability, entriesOf(one.tool_capabilities), one.enabled === 1],
      [said.required_capability, entriesOf(said.tool_capabilities), said.enabled],
    )
  }
  const bound = await kysely.selectFrom('mcp_bindings').select('binding_id').execute()
  compare('the bindings', bound.map(({ binding_id: id }) => id).toSorted(), bindingsBy(made))
  const open = await kysely
    .selectFrom('proposals')
    .select('proposal_id')
    .where('status', '=', 'open')
    .execute()
  compare('what is open', open.map(({ proposal_id: id }) => id).toSorted(), openBy(made))
  return found
}

const entriesOf = (map: unknown): readonly unknown[] =>
  Object.entries((typeof map === 'string' ? JSON.parse(map) : map) ?? {}).toSorted(([a], [b]) =>
    a < b ? -1 : 1,
  )

/** What goes with whom, and with which server, goes without a row of its own. */
function bindingsBy(rows: readonly AuditRow[]): readonly string[] {
  const bound = new Map<string, Json>()
  for (const { action, detail } of rows) {
    const said: Json = detail
    if (action === 'mcp_binding.created') bound.set(said.binding, said)
    if (action === 'mcp_binding.revoked') bound.delete(said.binding)
    for (const [id, { subject, resource_id: server }] of bound)
      if (
        (action === 'mcp_resource.deleted' && said.resource_id === server) ||
        (action.endsWith('.erased') && said.subject === subject)
      )
        bound.delete(id)
  }
  return [...bound.keys()].toSorted()
}

function openBy(rows: readonly AuditRow[]): readonly string[] {
  const open = new Set<string>()
  for (const { action, detail } of rows) {
    if (action === 'proposal.created') open.add(textOf(detail.proposal))
    else if (action.startsWith('proposal.')) open.delete(textOf(detail.proposal))
  }
  return [...open].toSorted()
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value))
