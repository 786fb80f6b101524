import { isOfCall } from '../../../db/ledger/authority/decision.ts'
import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { FREQUENT } from '../../../db/ledger/record/frequent.ts'
import { OUTCOMES } from '../../../db/ledger/record/outcomes.ts'
import { isObject } from '../../../db/support/json.ts'
import type { Administered } from '../../../plugins/operators/operator.ts'
import { cursorBehind, rowsOf } from '../../admin/audit/audit.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { KINDS } from '../../admin/operation/kinds.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { Dashboard } from '../frame/dashboard.ts'
import { ago, type Html, html, NOTHING, pathOf, table } from '../frame/parts.ts'

/** A call, or a change of administration: its rows of the ledger as one. */
export interface Call {
  /** The decision, or the row that stands alone. */
  readonly decision: AuditRow
  readonly outcome: AuditRow | null
}

/** What is asked for, by the audit API's names. */
export interface Wanted {
  readonly principal?: string
  readonly action?: string
  readonly status?: string
  readonly since?: string
  readonly until?: string
  readonly cursor?: string
  /** Of the reason of a refusal, the tool, the model: as the decision says them. */
  readonly reason?: string
  readonly tool?: string
  readonly model?: string
  /** The lines at most. */
  readonly most: number
  /** Whether what clients ask all the time is shown too: lists of tools and models. */
  readonly noise: boolean
}

export interface Found {
  readonly calls: readonly Call[]
  /** How often each value of a facet was among the calls that fit, of the rows that were looked at. */
  readonly counts: Readonly<Record<Facet, ReadonlyMap<string, number>>>
  /** The calls that fit, the rows that were looked at, and the instant of the oldest. */
  readonly fitting: number
  readonly rows: number
  readonly oldest: string | null
  readonly next: string | null
}

export const FACETS = ['status', 'principal', 'action', 'tool', 'model', 'reason'] as const
export type Facet = (typeof FACETS)[number]

/** Rows of a page of the ledger, and the pages that are looked through at most: however few fit, a page comes soon. */
const ROWS = 400
const PAGES = 3
/** The outcomes that are looked up one by one: they are newer than the page before has shown. */
const MOST_OUTCOMES = 20

/** What clients ask all the time: lists. Hidden until somebody asks for it. */
export const NOISE: ReadonlySet<string> = new Set([
  'mcp_tools_list',
  'mcp_resources_list',
  'mcp_prompts_list',
])

/** Reads calls, newest first, each decision with its outcome. Demands `admin.audit`. */
export async function callsOf(dashboard: Dashboard, facts: Administered, wanted: Wanted): Promise<Found> {
  const { most, noise } = wanted
  const [filter, narrowed] = splitOf(wanted)
  const outcomes = new Map<string, AuditRow>()
  const fitting: Call[] = []
  let [cursor, looked, oldest] = [wanted.cursor ?? null, 0, null as string | null]
  for (let page = 0; page < PAGES && fitting.length < most; page += 1) {
    const query = { ...filter, limit: ROWS, ...(cursor !== null && { cursor }) }
    const { rows, next_cursor: next } = await pageOf(dashboard, facts, query)
    looked += rows.length
    oldest = rows.at(-1)?.recorded_at ?? oldest
    for (const row of rows) {
      if (isOutcome(row)) outcomes.set(row.request_id ?? '', row)
      else if (noise || !NOISE.has(row.action)) {
        const call = { decision: row, outcome: outcomes.get(row.request_id ?? '') ?? null }
        if (fits(call, narrowed)) fitting.push(call)
      }
    }
    cursor = next
    if (next === null) break
  }
  const shown = fitting.slice(0, most)
  const last = shown.at(-1)
  return {
    calls: wanted.cursor === undefined ? shown : await withOutcomes(dashboard, facts, shown),
    counts: countsOf(fitting),
    fitting: fitting.length,
    rows: looked,
    oldest,
    next: last && shown.length < fitting.length ? cursorBehind(last.decision) : cursor,
  }
}

/** What an index of the ledger knows, and what only its rows tell: looking for the latter ends after some pages. */
function splitOf({ principal, action, since, until, status, reason, tool, model }: Wanted) {
  const isIndexed = principal === undefined && action !== undefined && !FREQUENT.includes(action)
  const given = { principal, since, until, ...(isIndexed && { action }) }
  const filter = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
  return [filter, { status, reason, tool, model, action: isIndexed ? undefined : action }] as const
}

type Query = Parameters<typeof perform<(typeof OPERATIONS.audit.list)['takes'], unknown>>[2]['query']

async function pageOf({ context }: Dashboard, facts: Administered, query: Query) {
  const { value } = await perform(OPERATIONS.audit.list, context, { query }, facts)
  return rowsOf(value)
}

async function withOutcomes(
  dashboard: Dashboard,
  facts: Administered,
  calls: readonly Call[],
): Promise<readonly Call[]> {
  const found: Call[] = []
  let asked = 0
  for (const call of calls) {
    const { decision, outcome } = call
    const id = decision.request_id
    if (outcome !== null || decision.status !== 'allowed' || id === null || asked === MOST_OUTCOMES) {
      found.push(call)
      continue
    }
    asked += 1
    const { rows } = await pageOf(dashboard, facts, { request_id: id })
    found.push({ decision, outcome: rows.find(isOutcome) ?? null })
  }
  return found
}

/** An outcome follows its decision, so it is met first. A change of administration is one row with the same words. */
const isOutcome = ({ status, action }: AuditRow): boolean => OUTCOMES.has(status) && isOfCall(action)

type Narrowed = Readonly<Partial<Record<Facet, string | undefined>>>

const fits = (call: Call, wanted: Narrowed): boolean =>
  FACETS.every((facet) => wanted[facet] === undefined || factOf(call, facet) === wanted[facet])

function countsOf(calls: readonly Call[]): Found['counts'] {
  const counts = new Map(FACETS.map((facet) => [facet, new Map<string, number>()]))
  for (const call of calls) for (const [facet, into] of counts) count(into, call, facet)
  // Proven by FACETS: each has its map.
  return Object.fromEntries(counts) as unknown as Found['counts']
}

function count(into: Map<string, number>, call: Call, facet: Facet): void {
  const value = factOf(call, facet)
  if (value !== null) into.set(value, (into.get(value) ?? 0) + 1)
}

function factOf({ decision }: Call, facet: Facet): string | null {
  if (facet === 'principal') return decision.principal_name ?? decision.principal_id
  if (facet === 'reason') return reasonOf(decision)
  return decision[facet]
}

/** Why a call was refused, as its row says it. */
export const reasonOf = ({ detail }: AuditRow): string | null =>
  typeof detail.reason === 'string' ? detail.reason : null

/** Calls as lines of a table, each of which leads to its why page. */
export const linesOf = (calls: readonly Call[], now: number, empty: Html): Html =>
  html`<div class="calls">${table(
    ['When', 'Who', 'What', 'Verdict', 'Why', 'Tokens', 'ms'],
    calls.map((call) => lineOf(call, now)),
    empty,
  )}</div>`

function lineOf({ decision, outcome }: Call, now: number): Html {
  const {
    recorded_at: at,
    principal_id: ref,
    principal_name: name,
    action,
    tool,
    model,
    request_id: id,
  } = decision
  const what = tool ?? model ?? ''
  const path = id === null ? null : `/proxy/activity/${id}`
  return html`<tr><td>${ago(at, now)}</td><td>${name ?? ref ?? (action === 'auth.refused' ? 'nobody' : 'the service')}</td><td>${path === null ? action : html`<a class="row" href="${path}">${action}</a>`} ${what}</td><td>${verdict(decision, outcome)}</td><td>${reasonOf(decision) ?? ''} ${grantLink(decision)}</td><td class="number">${tokensUsed(outcome)}</td><td class="number">${ms(outcome)}</td></tr>`
}

/** Where a call was refused for want of a capability: the form that would grant it, with the token typed in. */
function grantLink({
  principal_type: type,
  principal_id: ref,
  principal_name: name,
  detail,
}: AuditRow): Html {
  const { required_capability: token, reason } = detail
  if (!isCaller(type) || reason !== 'capability_missing' || typeof token !== 'string') return NOTHING
  return html`<a href="${pathOf(KINDS[type].plural, name ?? ref ?? '')}?${new URLSearchParams({ add: token }).toString()}">Grant…</a>`
}

/** Operators' sets hold nothing that a call could lack. */
const isCaller = (type: string | null): type is 'agent' | 'user' | 'workload' =>
  type !== null && type in KINDS && type !== 'operator'

/** What was decided, and what became of it where that says more. */
export function verdict({ status }: AuditRow, outcome: AuditRow | null): Html {
  const became =
    outcome && outcome.status !== 'success'
      ? html` <span class="verdict ${outcome.status}">${outcome.status}</span>`
      : NOTHING
  return html`<span class="verdict ${status}">${status}</span>${became}`
}

function tokensUsed(outcome: AuditRow | null): string {
  const { tokens } = outcome?.detail ?? {}
  if (!isObject(tokens)) return ''
  const { input, output } = tokens
  return `${typeof input === 'number' ? input : '?'} + ${typeof output === 'number' ? output : '?'}`
}

function ms(outcome: AuditRow | null): string {
  const { latency_ms: latency } = outcome?.detail ?? {}
  return typeof latency === 'number' ? String(Math.round(latency)) : ''
}
