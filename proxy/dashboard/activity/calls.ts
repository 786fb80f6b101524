import { isCallAction } from '../../../db/ledger/authority/decision.ts'
import type { ArchivePart } from '../../../db/ledger/read/archived-page.ts'
import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { FREQUENT_ACTIONS } from '../../../db/ledger/record/frequent.ts'
import { OUTCOME_STATUSES } from '../../../db/ledger/record/outcomes.ts'
import { isObject } from '../../../db/support/json.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { cursorAfterRow, parseLedgerPage } from '../../admin/audit/audit.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { PRINCIPAL_KINDS } from '../../admin/operation/kinds.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import {
  actionText,
  dataTable,
  EMPTY_HTML,
  type HtmlFragment,
  html,
  ledgerWord,
  pathOf,
  reasonWords,
  relativeTime,
} from '../frame/parts.ts'

/** A call, or a change of administration: its rows of the ledger as one. */
export interface ActivityCall {
  readonly decision: AuditRow
  readonly outcome: AuditRow | null
}

export interface ActivityQuery {
  readonly principal?: string
  readonly action?: string
  readonly status?: string
  readonly since?: string
  readonly until?: string
  readonly cursor?: string
  /** A refusal's reason, the tool, the model: as the decision says them. */
  readonly reason?: string
  readonly tool?: string
  readonly model?: string
  readonly most: number
  /** True: also show the lists of tools and models that clients ask for all the time. */
  readonly noise: boolean
  /** True: go on into the archive, as far as one page of the ledger does. */
  readonly goesOn?: boolean
  /** True: leave out what is no call of a model or tool, such as a renewal of its own certificate. */
  readonly callsAlone?: boolean
}

export interface CallPage {
  readonly calls: readonly ActivityCall[]
  /** Counts of each value of a facet in the calls that fit, of the rows that were looked at. */
  readonly counts: Readonly<Record<CallFacet, ReadonlyMap<string, number>>>
  /** The calls that fit, the rows that were looked at, and the instant of the oldest. */
  readonly fitting: number
  readonly rows: number
  readonly oldest: string | null
  readonly next: string | null
  /** The part that the archive has in it; undefined: none. */
  readonly archived: ArchivePart | undefined
}

export const FACETS = ['status', 'principal', 'action', 'tool', 'model', 'reason'] as const
export type CallFacet = (typeof FACETS)[number]

/** The rows of a page of the ledger, and the pages that are looked through at most. */
const ROWS = 400
const MAX_LEDGER_PAGES = 3
/** The outcomes that are looked up one by one: they are newer than the page before has shown. */
const MAX_OUTCOMES = 20

export const NOISE_ACTIONS: ReadonlySet<string> = new Set([
  'mcp_tools_list',
  'mcp_resources_list',
  'mcp_prompts_list',
])

/** Reads calls, newest first, each decision with its outcome. Demands `admin.audit`. */
export async function callsOf(
  dashboard: DashboardContext,
  facts: AdministrationFacts,
  wanted: ActivityQuery,
): Promise<CallPage> {
  const { most, noise } = wanted
  const [filter, narrowed] = splitOf(wanted)
  const outcomes = new Map<string, AuditRow>()
  const fitting: ActivityCall[] = []
  let [cursor, looked] = [wanted.cursor ?? null, 0]
  let [newest, oldest]: [string | null, string | null] = [null, null]
  let archived: ArchivePart | undefined
  for (let page = 0; page < MAX_LEDGER_PAGES && fitting.length < most; page += 1) {
    const query = { ...filter, limit: ROWS, ...(cursor !== null && { cursor }) }
    const { rows, next_cursor: next, archived: part } = await pageOf(dashboard, facts, query)
    archived = part
    looked += rows.length
    newest ??= rows[0]?.recorded_at ?? null
    oldest = rows.at(-1)?.recorded_at ?? oldest
    for (const row of rows) {
      if (isOutcome(row)) outcomes.set(row.request_id ?? '', row)
      else if (
        (noise || !NOISE_ACTIONS.has(row.action)) &&
        (!wanted.callsAlone || isCallAction(row.action))
      ) {
        const call = { decision: row, outcome: outcomes.get(row.request_id ?? '') ?? null }
        if (matchesFacets(call, narrowed)) fitting.push(call)
      }
    }
    cursor = next
    if (next === null || part) break
  }
  const page = fitting.slice(0, most)
  const shown =
    wanted.cursor === undefined || newest === null
      ? page
      : archived
        ? await withArchivedOutcomes(dashboard, facts, page, { since: newest, of: wanted.principal })
        : await withOutcomes(dashboard, facts, page)
  const last = shown.at(-1)
  return {
    calls: shown,
    counts: countsOf(fitting),
    fitting: fitting.length,
    rows: looked,
    oldest,
    next: last && shown.length < fitting.length ? cursorAfterRow(last.decision) : cursor,
    archived,
  }
}

/** Splits a query into an index's part and the rows' part: looking for the latter ends after some pages. */
function splitOf({ principal, action, since, until, status, reason, tool, model, goesOn }: ActivityQuery) {
  const isIndexed = principal === undefined && action !== undefined && !FREQUENT_ACTIONS.includes(action)
  const isDenied = status === 'denied' && principal === undefined && !isIndexed
  const given = { principal, since, until, ...(isIndexed && { action }), ...(isDenied && { status }) }
  const archive = goesOn ? undefined : 'no'
  const filter = Object.fromEntries(
    Object.entries({ ...given, archive }).filter(([, value]) => value !== undefined),
  )
  return [filter, { status, reason, tool, model, action: isIndexed ? undefined : action }] as const
}

type AuditListQuery = Parameters<typeof perform<(typeof OPERATIONS.audit.list)['takes'], unknown>>[2]['query']

async function pageOf({ context }: DashboardContext, facts: AdministrationFacts, query: AuditListQuery) {
  const { value } = await perform(OPERATIONS.audit.list, context, { query }, facts)
  return parseLedgerPage(value)
}

async function withOutcomes(
  dashboard: DashboardContext,
  facts: AdministrationFacts,
  calls: readonly ActivityCall[],
): Promise<readonly ActivityCall[]> {
  const found: ActivityCall[] = []
  let asked = 0
  for (const call of calls) {
    const { decision, outcome } = call
    const id = decision.request_id
    if (outcome !== null || decision.status !== 'allowed' || id === null || asked === MAX_OUTCOMES) {
      found.push(call)
      continue
    }
    asked += 1
    const { rows } = await pageOf(dashboard, facts, { request_id: id })
    found.push({ decision, outcome: rows.find(isOutcome) ?? null })
  }
  return found
}

/**
 * Finds the outcomes that stand on the page before, which ends in the archive: in one search for the rows next to
 * this page, since each search reads a segment.
 */
async function withArchivedOutcomes(
  dashboard: DashboardContext,
  facts: AdministrationFacts,
  calls: readonly ActivityCall[],
  { since, of: principal }: { readonly since: string; readonly of: string | undefined },
): Promise<readonly ActivityCall[]> {
  const lacks = ({ decision, outcome }: ActivityCall): boolean =>
    outcome === null && decision.status === 'allowed'
  if (!calls.some(lacks)) return calls
  const query = { order: 'asc', limit: ROWS, since, ...(principal !== undefined && { principal }) } as const
  const { rows } = await pageOf(dashboard, facts, query)
  const outcomes = new Map(rows.filter(isOutcome).map((row) => [row.request_id, row]))
  return calls.map((call) =>
    lacks(call) ? { ...call, outcome: outcomes.get(call.decision.request_id) ?? null } : call,
  )
}

/** An outcome follows its decision. A change of administration is one row with the same words. */
const isOutcome = ({ status, action }: AuditRow): boolean =>
  OUTCOME_STATUSES.has(status) && isCallAction(action)

type FacetFilter = Readonly<Partial<Record<CallFacet, string | undefined>>>

const matchesFacets = (call: ActivityCall, wanted: FacetFilter): boolean =>
  FACETS.every((facet) => wanted[facet] === undefined || factOf(call, facet) === wanted[facet])

function countsOf(calls: readonly ActivityCall[]): CallPage['counts'] {
  const counts = new Map(FACETS.map((facet) => [facet, new Map<string, number>()]))
  for (const call of calls) for (const [facet, into] of counts) count(into, call, facet)
  // Proven by FACETS: each has its map.
  return Object.fromEntries(counts) as unknown as CallPage['counts']
}

function count(into: Map<string, number>, call: ActivityCall, facet: CallFacet): void {
  const value = factOf(call, facet)
  if (value !== null) into.set(value, (into.get(value) ?? 0) + 1)
}

function factOf({ decision }: ActivityCall, facet: CallFacet): string | null {
  if (facet === 'principal') return decision.principal_name ?? decision.principal_id
  if (facet === 'reason') return rowReason(decision)
  return decision[facet]
}

export const rowReason = ({ detail }: AuditRow): string | null =>
  typeof detail.reason === 'string' ? detail.reason : null

export const callLines = (calls: readonly ActivityCall[], now: number, empty: HtmlFragment): HtmlFragment =>
  html`<div class="calls">${dataTable(
    ['When', 'Who', 'What', 'Verdict', 'Why', 'Tokens', 'ms'],
    calls.map((call) => lineOf(call, now)),
    empty,
  )}</div>`

function lineOf({ decision, outcome }: ActivityCall, now: number): HtmlFragment {
  const { recorded_at: at, principal_type: type, action, tool, model, request_id: id, detail } = decision
  const who = decision.principal_name ?? decision.principal_id
  const [reason, token] = [rowReason(decision), detail.required_capability]
  const what = [actionText(action), tool ?? model ?? ''].join(' ').trim()
  return html`<tr><td>${relativeTime(at, now)}</td><td>${whoLink(type, who, action)}</td><td>${id === null ? what : html`<a class="row" href="/proxy/activity/${id}">${what}</a>`} ${ledgerWord(action)}</td><td>${renderVerdict(decision, outcome)}</td><td>${reasonWords(reason, token)} ${contentWords(decision, outcome)} ${grantLink(type, who, reason, token)}</td><td class="number">${tokensUsed(outcome)}</td><td class="number">${ms(outcome)}</td></tr>`
}

/** A caller, with a link to its page if it has one: operators by the secret or the socket have none. */
export function whoLink(type: string | null, id: string | null, action: string): HtmlFragment {
  if (id === null) return html`${action === 'auth.refused' ? 'nobody known' : 'the service'}`
  return isKind(type) && id.includes('::')
    ? html`<a href="${pathOf(PRINCIPAL_KINDS[type].plural, id)}">${id}</a>`
    : html`${id}`
}

/** Links a call refused for want of a capability to the form that grants it, with the token typed in. */
export function grantLink(
  type: string | null,
  id: string | null,
  reason: string | null,
  token: unknown,
): HtmlFragment {
  if (!isCaller(type) || reason !== 'capability_missing' || typeof token !== 'string') return EMPTY_HTML
  return html`<a href="${pathOf(PRINCIPAL_KINDS[type].plural, id ?? '')}?${new URLSearchParams({ add: token }).toString()}">Grant…</a>`
}

const isKind = (type: string | null): type is keyof typeof PRINCIPAL_KINDS =>
  type !== null && type in PRINCIPAL_KINDS

/** Operators' sets hold nothing that a call could lack. */
const isCaller = (type: string | null): type is 'agent' | 'user' | 'workload' =>
  isKind(type) && type !== 'operator'

export function renderVerdict({ status }: AuditRow, outcome: AuditRow | null): HtmlFragment {
  const became =
    outcome && outcome.status !== 'success'
      ? html` <span class="verdict ${outcome.status}">${outcome.status}</span>`
      : EMPTY_HTML
  return html`<span class="verdict ${status}">${status}</span>${became}`
}

function tokensUsed(outcome: AuditRow | null): string {
  const { tokens, tokens_unknown: unknown, searches } = outcome?.detail ?? {}
  if (!isObject(tokens)) return typeof unknown === 'string' ? '?' : ''
  const { input, output } = tokens
  const counts = `${typeof input === 'number' ? input : '?'} + ${typeof output === 'number' ? output : '?'}`
  return typeof searches === 'number' ? `${counts}, searches: ${searches}` : counts
}

function ms(outcome: AuditRow | null): string {
  const { latency_ms: latency } = outcome?.detail ?? {}
  return typeof latency === 'number' ? String(Math.round(latency)) : ''
}

/** Says what a check of content has found in a call, and where: the rule and the part, which is all that rows have. */
export function contentWords(
  ...rows: readonly (Pick<AuditRow, 'detail'> | null | undefined)[]
): HtmlFragment {
  const found = rows.flatMap((row) => [row?.detail.content, row?.detail.content_shadow]).flatMap(findingsIn)
  return found.length === 0 ? EMPTY_HTML : html`<span class="faint">${[...new Set(found)].join(', ')}</span>`
}

function findingsIn(content: unknown): readonly string[] {
  const findings = isObject(content) && Array.isArray(content.findings) ? content.findings : []
  return findings.filter(isObject).map(({ rule, where }) => `${String(rule)} in ${String(where)}`)
}
