import type SQLite from 'better-sqlite3'
import type { AuthorityTables, StoredPrincipal, StoredResource } from '../../ledger/authority/compare.ts'
import type { ReplayedTool } from '../../ledger/authority/replay.ts'
import type { HonouredThumbprint } from '../../ledger/authority/rule.ts'
import { isTexts } from '../../ledger/authority/states.ts'
import type { PrincipalType } from '../../schema.ts'
import { isObject } from '../../support/json.ts'

/** Reads the tables as they are, whoever wrote them. Call it in the transaction that reads the last rows. */
export function readAuthorityTables(db: SQLite.Database): AuthorityTables {
  return { principals: readPrincipals(db), resources: readResources(db), cas: readCas(db) }
}

/** Returns whether there is a principal at all. */
export function hasPrincipals(db: SQLite.Database): boolean {
  return PRINCIPALS.some(({ table }) => db.prepare(`select 1 from ${table} limit 1`).get() !== undefined)
}

const OTHER_TABLES = [
  ...[
    'audit_trees',
    'audit_tiles',
    'audit_checkpoints',
    'audit_cosignatures',
    'audit_keys',
    'kysely_migration',
  ],
  ...['certificate_pins', 'mcp_bindings', 'mcp_resources', 'mcp_tools', 'attached_cas', 'agent_trusted_cas'],
]

/** Names the views that stand in the place of tables that verifying reads. */
export function viewsInPlaceOfTables(db: SQLite.Database): readonly string[] {
  const views = db
    .prepare<[], string>("select lower(name) from sqlite_schema where type = 'view'")
    .pluck()
    .all()
  const read = new Set([...OTHER_TABLES, ...PRINCIPALS.map(({ table }) => table)])
  return views.filter((name) => read.has(name)).toSorted()
}

const PRINCIPALS: readonly { type: PrincipalType; table: string; id: string }[] = [
  { type: 'agent', table: 'internal_agents', id: 'agent_id' },
  { type: 'user', table: 'local_user_principals', id: 'principal_id' },
  { type: 'workload', table: 'local_workload_principals', id: 'principal_id' },
  { type: 'operator', table: 'local_operator_principals', id: 'principal_id' },
]

interface PrincipalRow {
  readonly id: string
  readonly subject: string
  readonly capabilities: string
  readonly is_active: number
  readonly authority_revision: number
  readonly dpop_jkt: string | null
  readonly previous_dpop_jkt: string | null
  readonly previous_dpop_jkt_until: string | null
  readonly enrollment_method: string
  readonly spiffe_id: string | null
}

function readPrincipals(db: SQLite.Database): readonly StoredPrincipal[] {
  const pins = readPins(db)
  const bindings = readBindings(db)
  const trustedCas = readTrustedCas(db)
  return PRINCIPALS.flatMap(({ type, table, id }) => {
    const hasPseudonyms = columnsOf(db, table).has('principal_ref')
    const rows = db.prepare<[], PrincipalRow>(
      `select ${id} as id, ${hasPseudonyms ? 'principal_ref' : id} as subject, capabilities, is_active,
         authority_revision, dpop_jkt, previous_dpop_jkt, previous_dpop_jkt_until, enrollment_method, spiffe_id
       from ${table}`,
    )
    return rows.all().map(
      (row): StoredPrincipal => ({
        id: row.id,
        subject: row.subject,
        revision: row.authority_revision,
        capabilities: textsOf(row.capabilities),
        isActive: row.is_active === 1,
        thumbprints: pins.get(`${type} ${row.id}`) ?? [],
        dpopJkts: keysOf(row),
        spiffeId: row.enrollment_method === 'spiffe' ? row.spiffe_id : null,
        bindings: bindings.get(`${type} ${row.id}`) ?? new Map<string, string>(),
        trustedCas: trustedCas && new Set(type === 'agent' ? trustedCas.get(row.id) : []),
      }),
    )
  })
}

function keysOf(row: PrincipalRow): readonly HonouredThumbprint[] {
  const { dpop_jkt: jkt, previous_dpop_jkt: previous, previous_dpop_jkt_until: until } = row
  const current: readonly HonouredThumbprint[] = jkt === null ? [] : [[jkt, null]]
  return previous === null || until === null ? current : [...current, [previous, until]]
}

function readPins(db: SQLite.Database): ReadonlyMap<string, readonly HonouredThumbprint[]> {
  interface PinRow {
    readonly holder: string
    readonly thumbprint: string
    readonly until: string | null
  }
  const rows = db.prepare<[], PinRow>(
    `select principal_type || ' ' || principal_id as holder, thumbprint,
       case when is_current = 1 then null else grace_until end as until
     from certificate_pins where is_current = 1 or grace_until is not null`,
  )
  return groupByHolder(rows.all(), ({ thumbprint, until }): HonouredThumbprint => [thumbprint, until])
}

function readBindings(db: SQLite.Database): ReadonlyMap<string, ReadonlyMap<string, string>> {
  interface BindingRow {
    readonly holder: string
    readonly resource_id: string
    readonly binding_id: string
  }
  const rows = db.prepare<[], BindingRow>(
    `select principal_type || ' ' || principal_id as holder, resource_id, binding_id from mcp_bindings`,
  )
  const pairs = groupByHolder(
    rows.all(),
    ({ resource_id: id, binding_id: binding }) => [binding, id] as const,
  )
  return new Map([...pairs].map(([holder, bound]) => [holder, new Map(bound)]))
}

function readTrustedCas(db: SQLite.Database): ReadonlyMap<string, readonly string[]> | null {
  if (columnsOf(db, 'agent_trusted_cas').size === 0) return null
  const rows = db.prepare<[], { holder: string; digest: string }>(
    'select agent_id as holder, ca_digest as digest from agent_trusted_cas',
  )
  return groupByHolder(rows.all(), ({ digest }) => digest)
}

function groupByHolder<Row extends { readonly holder: string }, Value>(
  rows: readonly Row[],
  taken: (row: Row) => Value,
): ReadonlyMap<string, readonly Value[]> {
  const found = new Map<string, Value[]>()
  for (const row of rows) {
    const values = found.get(row.holder)
    if (values) values.push(taken(row))
    else found.set(row.holder, [taken(row)])
  }
  return found
}

interface ResourceRow {
  readonly id: string
  readonly name: string
  readonly revision: number
  readonly required_capability: string | null
  readonly tool_capabilities: string
  readonly enabled: number
}

function readResources(db: SQLite.Database): readonly StoredResource[] {
  const tools = readTools(db)
  const rows = db.prepare<[], ResourceRow>(
    'select resource_id as id, name, revision, required_capability, tool_capabilities, enabled from mcp_resources',
  )
  return rows.all().map(
    (row): StoredResource => ({
      id: row.id,
      name: row.name,
      revision: row.revision,
      requiredCapability: row.required_capability,
      toolCapabilities: textMapOf(row.tool_capabilities),
      enabled: row.enabled === 1,
      tools: new Map(tools.get(row.id)),
    }),
  )
}

function readTools(db: SQLite.Database): ReadonlyMap<string, readonly (readonly [string, ReplayedTool])[]> {
  interface ToolRow extends Omit<ReplayedTool, 'digest'> {
    readonly holder: string
    readonly name: string
    readonly digest: string
  }
  const rows = db.prepare<[], ToolRow>(
    'select resource_id as holder, name, state, digest, pending_digest as pending from mcp_tools',
  )
  // The table has the empty text if a tool was never approved.
  return groupByHolder(rows.all(), ({ name, state, digest, pending }) => [
    name,
    { state, digest: digest || null, pending },
  ])
}

function readCas(db: SQLite.Database): ReadonlyMap<string, string> {
  const rows = db.prepare<[], { digest: string; kind: string }>('select digest, kind from attached_cas')
  return new Map(rows.all().map(({ digest, kind }) => [digest, kind]))
}

const columnsOf = (db: SQLite.Database, table: string): ReadonlySet<string> =>
  new Set(db.prepare<[string], string>('select name from pragma_table_info(?)').pluck().all(table))

// A text not of the form that the service writes is shown as it is, and so differs from every row.
function textsOf(json: string): readonly string[] {
  const value = parsed(json)
  return isTexts(value) ? value : [json]
}

function textMapOf(json: string): Readonly<Record<string, string>> {
  const value = parsed(json)
  if (!isObject(value)) return { '': json }
  return Object.fromEntries(Object.entries(value).map(([name, own]) => [name, String(own)]))
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
  }
}
