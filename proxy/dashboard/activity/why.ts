import { type AuditRow, auditRowsOf } from '../../../db/ledger/read/read.ts'
import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { notFound } from '../../../plugins/refusal.ts'
import { parseLedgerPage, throwLedgerRefusal } from '../../admin/audit/audit.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import { type ProvenRow, proveRows, type RequestRow, rowsOfRequest } from '../../proofs/request-proof.ts'
import { escapeHiddenJson } from '../../visible.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  actionText,
  capabilityTokens,
  copyableCode,
  factList as factsOf,
  gateLine,
  type HtmlFragment,
  html,
  ledgerWord,
  reasonWords,
  relativeTime,
} from '../frame/parts.ts'
import { contentWords, renderVerdict, rowReason } from './calls.ts'

/** The authority that a decision names (docs/ledger.md#authority). */
const rowAuthority = ({ detail }: AuditRow): UnknownRecord =>
  isObject(detail.authority) ? detail.authority : {}

/** The plugins that may refuse a call, in the order in which they are asked (proxy/pipelines.ts). */
const ORDER = [
  ...['origin', 'pin', 'dpop', 'api_key', 'json_body', 'mcp_peek', 'mcp_message', 'mcp_door'],
  ...['mcp_resource_path', 'llm_call', 'llm_members', 'mcp_target', 'capability', 'provider_state'],
  ...['mcp_tool', 'mcp_state'],
]

const GATE_FINDINGS: Readonly<Record<string, (row: AuditRow) => HtmlFragment | string>> = {
  pin: ({ cert_thumbprint: pin }) =>
    pin === null ? 'no certificate' : html`certificate ${copyableCode(pin)}`,
  dpop: ({ dpop_jkt: key }) => (key === null ? 'no proof' : html`proof by key ${copyableCode(key)}`),
  mcp_target: (row) => {
    const { resource, binding } = rowAuthority(row)
    return isObject(resource) ? `server ${valueText(resource.id)}, by binding ${valueText(binding)}` : ''
  },
  capability: (row) => {
    const { demanded } = rowAuthority(row)
    const list = Array.isArray(demanded) ? demanded.map(valueText) : []
    return list.length === 0 ? 'requires no capability' : html`demands ${capabilityTokens(list)}`
  },
  mcp_tool: (row) => {
    const { pin } = rowAuthority(row)
    return pin === undefined ? '' : html`definition ${copyableCode(valueText(pin))}`
  },
}

const ALWAYS: ReadonlySet<string> = new Set(['pin', 'dpop', 'capability'])

/** The gates of a decision in the order they were asked. After the one that refused none was. */
function gatesOf(row: AuditRow): readonly HtmlFragment[] {
  const by = typeof row.detail.refused_by === 'string' ? row.detail.refused_by : null
  const { resource, checks } = rowAuthority(row)
  const met = (name: string): boolean =>
    ALWAYS.has(name) || name === by || (isObject(resource) && (name === 'mcp_target' || name === 'mcp_tool'))
  const end = by === null ? -1 : ORDER.indexOf(by)
  const asked = (end < 0 ? ORDER : ORDER.slice(0, end + 1)).filter(met)
  const own = (Array.isArray(checks) ? checks : []).filter(isObject)
  const isCheck = own.some(({ name }) => name === by)
  return [
    ...asked.map((name) => gate(name, name !== by, GATE_FINDINGS[name]?.(row) ?? '', row)),
    ...own.map((check) => gate(valueText(check.name), check.verdict === 'pass', saidBy(check), row)),
    ...(by !== null && end < 0 && !isCheck ? [gate(by, false, '', row)] : []),
  ]
}

const saidBy = ({ verdict, shadow }: UnknownRecord): string =>
  shadow === true ? `${valueText(verdict)}, and only watches` : valueText(verdict)

const gate = (name: string, passed: boolean, says: HtmlFragment | string, row: AuditRow): HtmlFragment =>
  gateLine(name, passed, passed ? says : html`${says} <b>${whyOf(row)}</b>`)

const whyOf = (row: AuditRow): HtmlFragment =>
  html`${reasonWords(rowReason(row), row.detail.required_capability)} ${contentWords(row)}`

const valueText = (value: unknown): string =>
  typeof value === 'string' ? value : value === undefined ? '' : JSON.stringify(value)

/** Each row of a request with its exact leaf, its hash, and its proof once it is sealed. */
async function ledgerCard(
  { context: { database, sealing } }: DashboardContext,
  id: string,
  rows: readonly AuditRow[],
  placed: readonly RequestRow[],
): Promise<HtmlFragment> {
  const proven = await proveRows(database, placed).catch(throwLedgerRefusal)
  const leaves = new Map(placed.map(({ stream, seq, leaf }) => [`${stream}:${seq}`, leaf]))
  const proofs = new Map((proven ?? []).map((row) => [`${row.stream}:${row.seq}`, row]))
  const shown = rows.map((row) => {
    const place = `${row.stream}:${row.seq}`
    return rowOf(row, leaves.get(place) ?? null, proofs.get(place) ?? null)
  })
  const receipt = html`<p><a href="/v1/audit/proofs/${encodeURIComponent(id)}" download="${id}.json">Save as receipt</a>: rows, proofs, and the salts that open their commitments. You can verify it anywhere:</p>
<pre class="copy" tabindex="0">sallyport verify ${id}.json --body BODY --key VKEY</pre>`
  return html`<section class="card"><h2>In the ledger</h2>${shown}
${proven !== null && placed.length > 0 && receipt}${proven === null && html`<p class="faint">Not sealed yet: ${sealing.stopped ? 'sealing has stopped' : 'this takes a second'}.</p>`}</section>`
}

/** A row whole, as the export has it: the text that is hashed, and the proof that it is in the log. */
const rowOf = (row: AuditRow, leaf: string | null, proof: ProvenRow | null): HtmlFragment =>
  html`<details><summary>${row.status}: row ${String(row.seq)} of ${row.stream}, <code>${row.row_hash.slice(0, 16)}</code></summary>${factsOf(
    [
      ['Hash', copyableCode(row.row_hash)],
      ['Previous hash', copyableCode(row.prev_hash)],
      ['Receipt', copyableCode(`stream=${row.stream}, seq=${row.seq}, hash=${row.row_hash}`)],
      ['Written by', `version ${row.version}, configuration ${row.config_digest}`],
    ],
  )}<pre>${JSON.stringify(row.detail, null, 2)}</pre>${leaf !== null && html`<details><summary>${escapeHiddenJson(leaf ?? '') === leaf ? 'Leaf: the exact bytes' : 'Leaf, with hidden characters escaped: an export has the exact bytes'}</summary><pre class="copy" tabindex="0">${escapeHiddenJson(leaf ?? '')}</pre></details>`}${proof !== null && html`<details><summary>Inclusion proof, under a signed checkpoint</summary><pre class="copy" tabindex="0">${proof?.proof ?? ''}</pre></details>`}</details>`

/** The changes whose rows make the state of a principal (docs/ledger.md#replay). */
const CHANGES = [
  ...['capabilities_set', 'capabilities_patched', 'created', 'enrolled_byoca', 'enrolled_spiffe'],
  ...[
    'certificate_issued',
    'certificate_renewed',
    'cert_rotated',
    'dpop_jwk_set',
    'reactivated',
    'deactivated',
  ],
]

const ROWS = 200
/** Rows are committed in another order than they are recorded, by less than that. ms. */
const APART_MS = 60_000

/** Finds the row that made the set which a decision names. Null if the newest rows do not have it. */
async function findGrantingRow(
  { context }: DashboardContext,
  facts: AdministrationFacts,
  decision: AuditRow,
  isArchived: boolean,
): Promise<AuditRow | null> {
  const { principal_id: subject, principal_type: type, recorded_at: at } = decision
  const { revision } = rowAuthority(decision)
  if (subject === null || type === null || typeof revision !== 'number') return null
  const until = new Date(Date.parse(at) + APART_MS).toISOString()
  for (const change of CHANGES) {
    const here = isArchived ? {} : ({ archive: 'no' } as const)
    const query = { action: `${type}.${change}`, until, limit: ROWS, ...here }
    const { value } = await perform(OPERATIONS.audit.list, context, { query }, facts)
    const { rows } = await parseLedgerPage(value)
    const found = rows.find(({ detail }) => detail.subject === subject && detail.revision === revision)
    if (found) return found
  }
  return null
}

interface FoundRequest {
  /** The rows as a page shows them, and those that can be proven. */
  readonly rows: readonly AuditRow[]
  readonly placed: readonly RequestRow[]
  readonly unreadable: readonly string[]
  readonly isArchived: boolean
}

/** Finds the rows of a request; the archive is searched once. Demands `admin.audit`. */
async function foundRequest(
  { context }: DashboardContext,
  facts: AdministrationFacts,
  id: string,
): Promise<FoundRequest> {
  const { database } = context
  const query = { request_id: id, order: 'asc', archive: 'no' } as const
  const { rows: hot } = await parseLedgerPage(
    (await perform(OPERATIONS.audit.list, context, { query }, facts)).value,
  )
  const asked = { id, principal: null, signal: facts.hangup.signal }
  const {
    rows: placed,
    archived,
    unreadable,
  } = await rowsOfRequest(database, asked).catch(throwLedgerRefusal)
  const old = await auditRowsOf(database.kysely, archived)
  const isOld = (row: AuditRow): boolean =>
    old.some(({ stream, seq }) => stream === row.stream && seq === row.seq)
  const rows = [...old, ...hot.filter((row) => !isOld(row))]
  return { rows, placed, unreadable, isArchived: old.length > 0 }
}

/** GET /proxy/activity/{request_id}: why a call was let through or refused, gate by gate, and its rows. */
export const whyPage: DashboardPage = async (dashboard, facts) => {
  const { request_id: id = '' } = facts.params
  const { rows, placed, unreadable, isArchived } = await foundRequest(dashboard, facts, id)
  const [decision, ...later] = rows
  if (!decision) throw notFound(['The ledger has no row for this request.', ...unreadable].join(' '))
  const outcome = later.at(-1) ?? null
  const who = decision.principal_name ?? decision.principal_id ?? 'nobody'
  return {
    title: `Why: ${actionText(decision.action)}`,
    section: '/proxy/activity',
    body: html`<p class="lead">${renderVerdict(decision, outcome)} <b>${who}</b> ${actionText(decision.action)} ${decision.tool ?? decision.model ?? ''} ${ledgerWord(decision.action)} ${relativeTime(decision.recorded_at, facts.at)}${rowReason(decision) === null ? '' : html`: ${whyOf(decision)}`}</p>
${isJudged(decision) ? renderDecision(decision, await findGrantingRow(dashboard, facts, decision, isArchived)) : html`<section class="card"><h2>A change, not a call</h2>${renderOutcome(decision)}</section>`}
${outcome !== null && html`<section class="card"><h2>What happened next</h2>${renderOutcome(outcome)}</section>`}
${await ledgerCard(dashboard, id, rows, placed)}`,
  }
}

const isJudged = ({ status }: AuditRow): boolean => status === 'allowed' || status === 'denied'

const renderDecision = (
  decision: AuditRow,
  granted: AuditRow | null,
): HtmlFragment => html`<section class="card"><h2>The checks, in order</h2><ol class="gates">${gatesOf(decision)}</ol></section>
<section class="card"><h2>What the decision was based on</h2>${renderDecisionBasis(decision, granted)}</section>`

function renderDecisionBasis(decision: AuditRow, granted: AuditRow | null): HtmlFragment {
  const held = granted?.detail.capabilities
  const shown = new Set(['demanded', 'checks'])
  return factsOf([
    [
      'Capabilities held then',
      Array.isArray(held)
        ? capabilityTokens(held.map(valueText))
        : html`<span class="faint">not among the newest changes</span>`,
    ],
    [
      'Granted by the row',
      granted === null
        ? ''
        : html`<a href="/proxy/activity/${granted.request_id ?? ''}">${actionText(granted.action)}</a> ${ledgerWord(granted.action)} of ${granted.principal_name ?? granted.principal_id ?? ''}, ${granted.recorded_at}`,
    ],
    ...Object.entries(rowAuthority(decision))
      .filter(([name]) => !shown.has(name))
      .map(basisFact),
  ])
}

const BASIS: Readonly<Record<string, string>> = {
  anchor: 'Vouched for by the CA',
  binding: 'Bound to the server by',
  mode: 'Proofs of possession',
  resource: 'MCP server',
  revision: 'Revision of the caller',
}

/** One more thing that a decision rested on, in words. */
function basisFact([name, value]: readonly [string, unknown]): readonly [string, string] {
  if (name !== 'mode' || !isObject(value)) return [BASIS[name] ?? name, valueText(value)]
  const { egress_dpop_mode: mode, no_downgrade: always } = value
  const more = always === true ? '; always demanded of who has registered a key' : ''
  return [BASIS.mode ?? name, valueText(mode) + more]
}

const renderOutcome = (outcome: AuditRow | null): HtmlFragment =>
  factsOf(Object.entries(outcome?.detail ?? {}).map(([name, value]) => [name, valueText(value)] as const))
