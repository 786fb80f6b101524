import { hash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { isApproverKind, isToolApprovals } from './ledger/approvals/approval-rule.ts'
import type { AccountState } from './ledger/authority/accounts.ts'
import type { BoundValues } from './ledger/authority/bound.ts'
import type { AuthorityTables, StoredPrincipal, StoredResource } from './ledger/authority/compare.ts'
import type { GrantState } from './ledger/authority/grants.ts'
import type { HonouredThumbprint, MinProof } from './ledger/authority/rule.ts'
import type { PreviousCas, ReplayedTool } from './ledger/authority/states.ts'
import { isTexts, listText } from './ledger/authority/states.ts'
import { caDigests } from './principals/ca-texts.ts'
import { PRINCIPAL_TABLES } from './principals/tables.ts'
import type { PrincipalType } from './schema.ts'
import { isObject, type UnknownRecord } from './support/json.ts'
import { timestamp } from './support/statement.ts'

/** A row of a table as an engine gives it, whoever has written it. */
export type TableRow = Readonly<Record<string, string | number | null>>

/** The tables that {@link authorityTablesOf} reads, whole. */
export const AUTHORITY_TABLES = [
  ...Object.values(PRINCIPAL_TABLES).map(({ table }) => table),
  ...['certificate_pins', 'mcp_bindings', 'mcp_resources', 'mcp_tools', 'attached_cas', 'agent_trusted_cas'],
  ...['api_keys', 'settings', 'signing_keys', 'operator_identities', 'operator_sessions', 'capability_sets'],
  ...['limits', 'stops', 'people_grants', 'upstream_accounts'],
]

/** A month and two days: the walk of rows forgets older windows that nothing holds. ms. */
const METERS_READ_MS = 33 * 86_400_000

/** The first span whose meters are compared with rows. `at`: ms since the epoch. */
export const firstMeterSpan = (at: number): string => timestamp(at - METERS_READ_MS)

/**
 * Reads what decisions rest on out of the tables' rows, without the gateway's own readers, which would throw
 * if somebody else has written.
 */
export function authorityTablesOf(
  rowsOf: (table: string) => readonly TableRow[],
  meters: readonly TableRow[],
  since: string,
): AuthorityTables {
  const pins = grouped(rowsOf('certificate_pins').filter(isHonoured), holderOf, pinOf)
  const bindings = grouped(
    rowsOf('mcp_bindings'),
    holderOf,
    (row) => [text(row.binding_id), text(row.resource_id)] as const,
  )
  const trusted = grouped(
    rowsOf('agent_trusted_cas'),
    (row) => text(row.agent_id),
    (row) => text(row.ca_digest),
  )
  const apiKeys = grouped(
    rowsOf('api_keys'),
    holderOf,
    (row) => `API key ${row.key_id} ${sha256(row.key_hash)}`,
  )
  const identities = grouped(
    rowsOf('operator_identities'),
    (row) => `operator ${row.principal_id}`,
    (row) => `identity ${identityDigest(text(row.issuer), text(row.subject))}`,
  )
  const tools = grouped(rowsOf('mcp_tools'), (row) => text(row.resource_id), toolOf)
  const principals = TYPES.flatMap((type) =>
    rowsOf(PRINCIPAL_TABLES[type].table).map((row): StoredPrincipal => {
      const { id, ref } = PRINCIPAL_TABLES[type]
      const holder = `${type} ${text(row[id])}`
      return {
        id: text(row[id]),
        subject: text(row[ref]),
        revision: Number(row.authority_revision),
        capabilities: textsOf(row.capabilities),
        isActive: row.is_active === 1,
        thumbprints: pins.get(holder) ?? [],
        dpopJkts: keysOf(row),
        spiffeId: row.enrollment_method === 'spiffe' ? textOrNull(row.spiffe_id) : null,
        bindings: new Map(bindings.get(holder)),
        trustedCas: new Set(type === 'agent' ? trusted.get(text(row[id])) : []),
        bundle: bundleOf(row),
        waysIn: [...(apiKeys.get(holder) ?? []), ...(identities.get(holder) ?? [])],
      }
    }),
  )
  return {
    principals,
    resources: rowsOf('mcp_resources').map((row) => resourceOf(row, tools.get(text(row.resource_id)) ?? [])),
    cas: new Map(rowsOf('attached_cas').map((row) => [text(row.digest), text(row.kind)])),
    stops: new Map(rowsOf('stops').map((row) => [text(row.stop_id), text(row.scope)])),
    bound: boundValues(rowsOf),
    limits: {
      limits: new Map(rowsOf('limits').map((row) => [text(row.limit_id), limitTextOf(row)])),
      meters: meters.map(meterOfRow),
      since,
    },
    grants: grantsOf(rowsOf),
    accounts: accountsOf(rowsOf),
    oddTexts: [...oddCas(rowsOf('attached_cas')), ...oddTools(rowsOf('mcp_tools'))],
  }
}

const TYPES = Object.keys(PRINCIPAL_TABLES) as readonly PrincipalType[]

const text = (value: unknown): string =>
  typeof value === 'string' || typeof value === 'number' ? String(value) : ''
const textOrNull = (value: unknown): string | null => (value === null ? null : text(value))
const sha256 = (value: unknown): string => hash('sha256', text(value))

const holderOf = (row: TableRow): string => `${row.principal_type} ${row.principal_id}`

const isHonoured = ({ is_current: isCurrent, grace_until: until }: TableRow): boolean =>
  isCurrent === 1 || until !== null

const pinOf = (row: TableRow): HonouredThumbprint => [
  text(row.thumbprint),
  row.is_current === 1 ? null : text(row.grace_until),
]

function keysOf(row: TableRow): readonly HonouredThumbprint[] {
  const { dpop_jkt: jkt, previous_dpop_jkt: previous, previous_dpop_jkt_until: until } = row
  const current: readonly HonouredThumbprint[] = jkt === null ? [] : [[text(jkt), null]]
  return previous === null || until === null ? current : [...current, [text(previous), text(until)]]
}

/** The CAs of its own that an agent known by its SPIFFE id has: by their texts, and as its columns name them. */
function bundleOf(row: TableRow): StoredPrincipal['bundle'] {
  if (row.enrollment_method !== 'spiffe' || !row.spiffe_id) return null
  const {
    spiffe_bundle: pem = null,
    spiffe_bundle_digests: named = null,
    previous_spiffe_bundles: before,
  } = row
  const previous = parsed(before ?? '[]')
  const read = Array.isArray(previous) ? previous.map(previousOf) : [NOT_READ]
  return {
    ofTexts: { digests: pem === null ? [] : caDigests(text(pem)), previous: read.map(([all]) => all) },
    named: { digests: named === null ? [] : textsOf(named), previous: read.map(([, all]) => all) },
  }
}

const NOT_READ: readonly [PreviousCas, PreviousCas] = [
  [['unreadable'], ''],
  [['unreadable'], ''],
]

function previousOf(value: unknown): readonly [PreviousCas, PreviousCas] {
  if (!Array.isArray(value)) return NOT_READ
  const [pem, until, digests] = value
  return [
    [caDigests(text(pem)), text(until)],
    [isTexts(digests) ? digests : [], text(until)],
  ]
}

function resourceOf(row: TableRow, tools: readonly (readonly [string, ReplayedTool])[]): StoredResource {
  return {
    id: text(row.resource_id),
    name: text(row.name),
    revision: Number(row.revision),
    requiredCapability: textOrNull(row.required_capability),
    toolCapabilities: textMapOf(row.tool_capabilities),
    enabled: row.enabled === 1,
    ...approvalRuleOf(row),
    minProof: proofOf(row.min_proof),
    toolMinProof: proofMapOf(row.tool_min_proof),
    tools: new Map(tools),
    fields: {
      endpoint_url_sha256: sha256(row.endpoint_url),
      auth_type: text(row.auth_type),
      auth_secret_ref: listText(row.auth_secret_ref),
      oauth_sha256: typeof row.oauth === 'string' ? sha256(row.oauth) : listText(row.oauth ?? null),
      allowed_domains: listText(parsed(text(row.allowed_domains)) ?? [row.allowed_domains]),
      ...factsOf(row),
    },
  }
}

function approvalRuleOf(row: TableRow): Pick<StoredResource, 'approval' | 'toolApprovals'> {
  const { approval = null, tool_approvals: own = '{}' } = row
  const read = parsed(own)
  // A text that the service does not write differs from every row.
  return {
    approval: isApproverKind(approval) || approval === null ? approval : 'person',
    toolApprovals: isToolApprovals(read) ? read : { [text(own)]: null },
  }
}

/** A text that is no proof is shown as it is, and so differs from every row. */
const proofOf = (value: unknown): MinProof => text(value) as MinProof

const proofMapOf = (json: unknown): Readonly<Record<string, MinProof>> =>
  textMapOf(json) as Readonly<Record<string, MinProof>>

/** The grants of people, whose users rows know by their pseudonyms. */
function grantsOf(rowsOf: (table: string) => readonly TableRow[]): ReadonlyMap<string, GrantState> {
  const { table, id, ref } = PRINCIPAL_TABLES.user
  const users = new Map(rowsOf(table).map((row) => [text(row[id]), text(row[ref])]))
  return new Map(
    rowsOf('people_grants').map((row) => [
      text(row.id),
      {
        subject: users.get(text(row.principal_id)) ?? text(row.principal_id),
        client: text(row.client_id_sha256),
        scope: row.scope === null ? null : text(row.scope).split(' '),
        resource: text(row.resource),
        bound: text(row.bound) as GrantState['bound'],
        jkt: textOrNull(row.jkt),
        expires_at: text(row.expires_at),
      },
    ]),
  )
}

const accountsOf = (rowsOf: (table: string) => readonly TableRow[]): ReadonlyMap<string, AccountState> =>
  new Map(
    rowsOf('upstream_accounts').map((row) => [
      text(row.account_id),
      { subject: text(row.principal_ref), resource: text(row.resource_id), issuer: text(row.issuer) },
    ]),
  )

/** The digests of a server's words in force, among its facts (docs/mcp.md#server). */
export function wordsDigests(facts: UnknownRecord): {
  readonly server_sha256: string
  readonly instructions_sha256: string | null
} {
  const { serverInfo, instructions } = facts
  const { version: _, ...words } = isObject(serverInfo) ? serverInfo : {}
  const pinned = {
    ...(isObject(serverInfo) && { serverInfo: words }),
    ...(instructions !== undefined && { instructions }),
  }
  return {
    server_sha256: sha256(canonicalize(pinned)),
    instructions_sha256: instructions === undefined ? null : sha256(instructions),
  }
}

function factsOf({ server_facts: facts }: TableRow): Readonly<Record<string, string>> {
  const value = facts === null ? {} : parsed(facts)
  const { server_sha256: words, instructions_sha256: instructions } = wordsDigests(
    isObject(value) ? value : { instructions: text(facts) },
  )
  return { server_sha256: words, instructions_sha256: listText(instructions) }
}

const toolOf = (row: TableRow): readonly [string, ReplayedTool] => [
  text(row.name),
  {
    state: row.state as ReplayedTool['state'],
    // The table has the empty text if a tool was never approved.
    digest: text(row.digest) || null,
    pending: textOrNull(row.pending_digest),
  },
]

const isDigest = (value: unknown): boolean => typeof value === 'string' && /^[0-9a-f]{64}$/.test(value)

const oddCas = (rows: readonly TableRow[]): readonly string[] =>
  rows.flatMap(({ digest, ca_pem: pem }) =>
    isDigest(digest) && caDigests(text(pem)).join() !== digest
      ? [`the text of the attached CA ${digest} is not that of its digest`]
      : [],
  )

const EARLIER_PINNED = ['name', 'title', 'description', 'inputSchema', 'outputSchema', 'annotations']

/** The digest of a tool's definition (docs/ledger.md#resources); null if it is none. */
function definitionDigest(definition: string, isWhole: boolean): string | null {
  const value = parsed(definition)
  if (!isObject(value)) return null
  const names = isWhole ? Object.keys(value) : EARLIER_PINNED.filter((name) => Object.hasOwn(value, name))
  return sha256(canonicalize(Object.fromEntries(names.map((name) => [name, value[name]]))))
}

function oddTools(rows: readonly TableRow[]): readonly string[] {
  return rows.flatMap((row) => {
    const kinds = [
      ['definition', row.definition, row.digest, row.digest_is_whole],
      ['waiting definition', row.pending_definition, row.pending_digest, row.pending_is_whole],
    ] as const
    return kinds.flatMap(([what, definition, digest, isWhole]) =>
      isDigest(digest) && definitionDigest(text(definition), isWhole === 1) !== digest
        ? [`the ${what} of the tool ${row.name} of ${row.resource_id} is not that of its digest`]
        : [],
    )
  })
}

/** Writes a limit as rows say it (docs/ledger.md#limits); what is not formed so is shown as it is. */
function limitTextOf({ limit_id: id, name, revision, terms, override }: TableRow): string {
  const [said, other] = [parsed(terms), override === null ? null : parsed(override)]
  if (!isObject(said)) return text(terms)
  return (
    canonicalize({
      ...said,
      id,
      name,
      revision,
      override: override === null ? null : (other ?? text(override)),
    }) ?? ''
  )
}

const meterOfRow = ({ limit_id: limit, who, span, n, reserved, spent, tat }: TableRow) => ({
  ...{ limit: text(limit), who: text(who), span: text(span) },
  ...{ n: Number(n), reserved: Number(reserved), spent: Number(spent), tat: Number(tat) },
})

/** Everything else that lets somebody in, by what it is called (./bound.ts). */
function boundValues(rowsOf: (table: string) => readonly TableRow[]): BoundValues {
  const settings = new Map(rowsOf('settings').map(({ key, value }) => [text(key), text(value)]))
  const secret = settings.get('admin_secret_hash')
  return {
    secret: secret === undefined ? null : sha256(secret),
    secretIsDisabled: settings.has('admin_secret_disabled'),
    signingKeys: new Map(rowsOf('signing_keys').map((row) => [text(row.kid), keyThumbprint(row.public_jwk)])),
    sessions: new Map(
      rowsOf('operator_sessions').map((row) => [
        text(row.id_sha256),
        { who: row.principal_id === null ? null : text(row.principal_id), until: text(row.expires_at) },
      ]),
    ),
    sets: new Map(
      rowsOf('capability_sets').map((row) => [text(row.name), listText(textsOf(row.capabilities))]),
    ),
  }
}

/** The RFC 7638 thumbprint of an EC key; empty if it is none. */
function keyThumbprint(jwk: unknown): string {
  const key = parsed(text(jwk))
  if (!isObject(key)) return ''
  const { crv, kty, x, y } = key
  return Buffer.from(hash('sha256', JSON.stringify({ crv, kty, x, y }), 'hex'), 'hex').toString('base64url')
}

/** A person as rows name one: nothing of it is said. */
export const identityDigest = (issuer: string, subject: string): string =>
  hash('sha256', JSON.stringify([issuer, subject]))

function grouped<Value>(
  rows: readonly TableRow[],
  key: (row: TableRow) => string,
  taken: (row: TableRow) => Value,
): ReadonlyMap<string, readonly Value[]> {
  return new Map([...Map.groupBy(rows, key)].map(([name, some]) => [name, some.map(taken)]))
}

// A text not of the form that the service writes is shown as it is, and so differs from every row.
function textsOf(json: unknown): readonly string[] {
  const value = parsed(text(json))
  return isTexts(value) ? value : [text(json)]
}

function textMapOf(json: unknown): Readonly<Record<string, string>> {
  const value = parsed(text(json))
  if (!isObject(value)) return { '': text(json) }
  return Object.fromEntries(Object.entries(value).map(([name, own]) => [name, String(own)]))
}

function parsed(json: unknown): unknown {
  try {
    return JSON.parse(text(json))
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
  }
}
