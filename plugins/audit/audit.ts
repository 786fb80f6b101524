import type { Database } from '../../db/database.ts'
import { PRICE_ACTION } from '../../db/ledger/authority/costs.ts'
import { isTexts } from '../../db/ledger/authority/states.ts'
import type { MeterSettlement } from '../../db/ledger/meters/meter-book.ts'
import { type LedgerEntry, LedgerError, type LedgerUnit, LimitReached } from '../../db/ledger/record/entry.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { callIsOpen } from '../../db/ledger/record/open-call.ts'
import { rulesUnchanged } from '../../db/limits/present-rules.ts'
import { grantNotEnded } from '../../db/people/grants.ts'
import { authorityUnchanged } from '../../db/principals/pins.ts'
import { caStillVouches } from '../../db/principals/trusted-cas.ts'
import { claimOnce } from '../../db/single-uses.ts'
import { isObject, type JsonObject } from '../../db/support/json.ts'
import type { LedgerStatement, RowAssertion } from '../../db/support/statement.ts'
import { type ContentVerdict, contentIn } from '../content/verdict.ts'
import { isReplay } from '../dpop/single-use.ts'
import type { Principal } from '../facts.ts'
import { rateLimitHeaders } from '../limits/headers.ts'
import { settlementsOf, unusedSettlements, withLimits } from '../limits/limits.ts'
import { limitRefusal, overDetail } from '../limits/refusal.ts'
import {
  type Arrival,
  type CallSettlement,
  type Receipt,
  type Recorder,
  type RefusedBy,
  StaleAuthority,
  type SummarisedRefusal,
} from '../plugin.ts'
import type { CallPricing, EndedCall } from '../prices/cost.ts'
import { Refusal } from '../refusal.ts'
import type { AnonymousRefusals } from './anonymous.ts'
import {
  callIdentity,
  type DecisionFacts,
  decisionAuthority,
  decisionEntry,
  type IdentifiedFacts,
  isAuthorityRefusal,
  isFormRefusal,
  type JudgingRules,
  type PartialDecisionFacts,
  type RecordedRefusal,
  requiredCapabilityIn,
  type ShadowMetrics,
  shadowReporter,
} from './decision.ts'
import { serviceEntry } from './entries.ts'
import type { RefusalSummaries } from './summaries.ts'

export type { CallApproval, DecisionAccount, DecisionFacts } from './decision.ts'

export interface SeenPrincipal extends Pick<Principal, 'type'> {
  /** The time of its last proven call, allowed or refused. ms since the epoch. */
  readonly at: number
}

type SeenFacts = Pick<Arrival, 'at'> & { readonly principal?: Principal }

/** The plugins whose refusal says that nobody has proven to be the principal. */
const PROVING: ReadonlySet<string> = new Set(['dpop', 'single_use', 'token_proof', 'operator'])

function noteSeen(
  seen: Map<string, SeenPrincipal>,
  { principal, at }: SeenFacts,
  refusedBy?: RefusedBy,
): void {
  if (!principal || PROVING.has(refusedBy?.by ?? '')) return
  seen.set(principal.id, { type: principal.type, at: Math.max(at, seen.get(principal.id)?.at ?? at) })
}

/** True of a nonce challenge, and of a page that sends its visitor to sign in: both go on at once. */
const isNoRefusal = ({ method }: Pick<Arrival, 'method'>, { reason }: Refusal): boolean =>
  reason === 'use_dpop_nonce' || (reason === 'signed_out' && (method === 'GET' || method === 'HEAD'))

export interface AuditDependencies {
  readonly ledger: Pick<Ledger, 'commit' | 'failing'>
  readonly outcomes: Pick<OutcomeWriter, 'settle' | 'settleInDoubt'>
  readonly database: Database
  readonly judging: JudgingRules
  /** Counts refusals before any principal was known; a task writes one row per reason and minute. */
  readonly anonymous: Pick<AnonymousRefusals, 'count'>
  /** Counts refusals of a known principal that are too many to be rows; a task writes their summaries. */
  readonly summaries: Pick<RefusalSummaries, 'takeRow' | 'count'>
  /** Principals whose calls were proven, by id; a task writes down when they were last seen. */
  readonly seen: Map<string, SeenPrincipal>
  readonly watching: ShadowMetrics
  /** Says what calls have cost; null: nothing is priced. */
  readonly pricing: CallPricing | null
}

export interface CallRecorder extends Recorder<Arrival & DecisionFacts> {
  /** `standing`: the conditions that the call was judged by, in addition to its principal's authority. */
  readonly allowed: (
    facts: Arrival & DecisionFacts,
    standing?: readonly RowAssertion[],
  ) => Promise<Receipt | null>
  readonly refused: (
    facts: PartialDecisionFacts,
    refusal: Refusal,
    refusedBy: RefusedBy,
    standing?: readonly RowAssertion[],
    opening?: RefusalExtras | null,
  ) => Promise<Receipt | SummarisedRefusal | null>
}

/** Writes that are made in the unit of a refusal. */
export type RefusalExtras = Pick<LedgerUnit, 'assertions' | 'statements' | 'entries'>

/**
 * Records decisions on known principals as rows, durable before it resolves (docs/ledger.md). Rejects if the
 * ledger cannot: then nothing may be dispatched. The call's DPoP proof is claimed in the same unit, granted
 * or not; a replay is denied with `proof_invalid`. The row of a call that its principal's authority has
 * decided is written only while that authority is the one that was judged; else it rejects with {@link
 * StaleAuthority}. The outcome row waits for nobody.
 *
 * Nobody can grow the chain by being refused: of a principal's refusals of one kind only so many in a minute
 * are rows of their own; those before the principal is known are only counted. What is no refusal
 * ({@link isNoRefusal}) is no row at all.
 */
export function audit({
  ledger,
  outcomes,
  database,
  judging,
  anonymous,
  summaries,
  seen,
  watching,
  pricing,
}: AuditDependencies): CallRecorder {
  const watched = shadowReporter(watching, judging.checks)
  const unchanged = authorityUnchanged(database)
  // One unit with the row: the proof is claimed and the decision recorded, or neither. A proof has been seen
  // once, whatever the decision: a proof refused now must not pass after a grant.
  const claim = ({ proof }: PartialDecisionFacts): readonly LedgerStatement[] =>
    proof ? [claimOnce(database, proof.replayKey, proof.expiresAt)] : []
  const stillVouches = caStillVouches(database)
  const sameRules = rulesUnchanged(database)
  const notEnded = grantNotEnded(database)
  /** The conditions of a decision by authority: nothing that it rests on has changed. */
  const asserted = (
    { principal, holder = principal, grant, rules }: IdentifiedFacts,
    standing: readonly RowAssertion[],
  ): readonly RowAssertion[] => [
    unchanged(holder.type, holder.ref, holder.revision),
    ...(grant ? [notEnded(grant.id)] : []),
    ...(holder.anchor === undefined ? [] : [stillVouches(holder.ref, holder.anchor)]),
    ...(rules ? [sameRules(rules.revision)] : []),
    ...standing,
  ]
  const commit = (facts: IdentifiedFacts, unit: LedgerUnit): Promise<Receipt | null> =>
    ledger.commit(unit).then(
      (sealed) => {
        stateLimits(facts, sealed[0]?.used)
        return receiptOf(facts, sealed)
      },
      (error: unknown) => notStored(error, facts, unit),
    )
  const notStored = async (error: unknown, facts: IdentifiedFacts, unit: LedgerUnit): Promise<never> => {
    if (isOvertaken(error)) throw new StaleAuthority(undefined, { cause: error })
    if (error instanceof LimitReached) throw await noRoom(facts, error)
    if (!isReplay(error) || unit.statements?.length === 0) throw error
    if (await facts.approval?.isUsed()) throw new StaleAuthority(undefined, { cause: error })
    const recorded = await deny(facts, REPLAY, { statements: [] })
    throw new Refusal('proof_invalid', { cause: error, recorded })
  }
  /** Records that a limit has no room for a call, with the meter as it was then. */
  const noRoom = async (facts: IdentifiedFacts, { over }: LimitReached): Promise<Refusal> => {
    const claim = facts.limits?.claims.find(({ limit }) => limit.id === over.limit)
    if (!claim) throw new Error(`a call was refused by the limit ${over.limit}, of which it reserves nothing`)
    const { limit } = claim
    facts.limits?.full?.note(over, facts.limits.rulesRevision)
    const recorded = await deny(facts, { ...NO_ROOM, limit: overDetail(over, limit.revision) }, {})
    return limitRefusal(limit, over, { at: facts.at, wire: facts.limits?.wire ?? null, recorded })
  }
  const noteContent = (
    judged: ContentVerdict | undefined,
    { demand }: IdentifiedFacts,
    part: 'request' | 'answer' = 'request',
  ): void => {
    if (!judged) return
    const places = PLACES[demand.action === 'egress_llm_chat' ? 'llm' : 'mcp']
    for (const { rule } of judged.findings) watching.content(rule, places[part], judged.verdict)
  }
  // `statements`: none if the proof is known to be used already.
  const deny = async (
    facts: IdentifiedFacts,
    why: RecordedRefusal,
    { statements = claim(facts), assertions, entries: more = [] }: Partial<RefusalExtras>,
  ): Promise<Receipt | SummarisedRefusal | null> => {
    const status = isFormRefusal(why.reason) ? 'invalid' : 'denied'
    const kind = { principal: facts.principal, action: facts.demand.action, reason: why.reason, status }
    if (summaries.takeRow(kind)) {
      const entries = [decisionEntry(facts, status, judging, why), ...more]
      return commit(facts, { ...(assertions && { assertions }), statements, entries })
    }
    const unit = { ...(more.length > 0 && assertions && { assertions }), statements, entries: more }
    if (statements.length > 0) await commit(facts, unit)
    // Nothing is counted that may never be written: no call is answered without a record.
    else if (ledger.failing) throw new LedgerError('unavailable', 'the audit ledger cannot be written')
    const { configDigest } = judging
    const authority = decisionAuthority(facts, judging, why)
    return summaries.count({ ...kind, ...repeatedRefusal(facts, why), authority, configDigest })
  }
  return {
    allowed: (facts, standing = []) => {
      const { limits, approval, account } = facts
      const conditions = [...(approval?.assertions ?? []), ...(account?.assertions ?? [])]
      const assertions = [...asserted(facts, standing), ...conditions]
      const statements = [...claim(facts), ...(approval?.statements ?? [])]
      const reservations = limits?.claims.map(({ reservation }) => reservation) ?? []
      const entries = [decisionEntry(facts, 'allowed', judging, null)]
      return commit(facts, { assertions, statements, reservations, entries }).then(
        (receipt) => {
          noteSeen(seen, facts)
          return receipt
        },
        (error: unknown) => {
          // Its caller is told that it was not recorded, and nothing is dispatched.
          if (isInDoubt(error)) {
            const entry = outcomeEntry(facts, unrecordedSettlement(facts.at), judging.configDigest)
            outcomes.settleInDoubt(entry, { settlements: limits ? unusedSettlements(limits, entry.at) : [] })
          }
          throw error
        },
      )
    },
    refused: async (facts, refusal, refusedBy, standing = [], opening = null) => {
      const { reason } = refusal
      const { by, passed } = refusedBy
      if (isNoRefusal(facts, refusal)) return null
      if (isIdentified(facts)) {
        const assertions = isAuthorityRefusal(reason) && asserted(facts, standing)
        const { limit, routed, stop } = refusal.report
        const isOver = reason === 'limit_reached' && isObject(limit)
        const why = {
          ...{ reason, by, passed, requiredCapability: requiredCapabilityIn(refusal) },
          ...(isOver && { limit, ...(isTexts(routed) && { routed }) }),
          ...(typeof stop === 'string' && { stop }),
          ...contentMember(refusal.report),
        }
        const receipt = await deny(facts, why, {
          ...(assertions && { assertions: [...assertions, ...(opening?.assertions ?? [])] }),
          ...(opening && {
            statements: [...claim(facts), ...(opening.statements ?? [])],
            entries: opening.entries,
          }),
        })
        noteSeen(seen, facts, refusedBy)
        if (isWatched(facts)) watched(facts, why)
        noteContent(why.content ?? facts.content, facts)
        return receipt
      }
      anonymous.count(reason)
      return null
    },
    current: database.current && currentBy(database.current),
    settled: (facts, settlement) => {
      if (isWatched(facts)) watched(facts, null)
      noteContent(facts.content, facts)
      if (settlement.detail.content) noteContent(contentIn(settlement.detail), facts, 'answer')
      const entry = outcomeEntry(facts, settlement, judging.configDigest)
      const tookMs = settlement.at - facts.at
      const costed = pricing?.(endedCall(facts, settlement)) ?? null
      const costedEntry = costed ? { ...entry, detail: { ...entry.detail, cost: costed.cost } } : entry
      const settlements = facts.limits ? settlementsOf(facts.limits, costedEntry) : []
      outcomes.settle(costedEntry, tookMs, { ...(costed && { prices: costed.stated }), settlements })
    },
  }
}

/** Without a certificate nobody was looked up. An SVID's principal is asked for each time. */
const currentBy =
  (current: NonNullable<Database['current']>): CallRecorder['current'] =>
  ({ peer, pinnedAt = Number.NEGATIVE_INFINITY }) =>
    peer ? current(Number.isFinite(pinnedAt) ? pinnedAt : performance.now()) : Promise.resolve(true)

const isWatched = ({ candidate, shadows }: PartialDecisionFacts): boolean =>
  (candidate ?? null) !== null || shadows !== undefined

/** The kinds of places of content, by the surface of a call. */
const PLACES = {
  llm: { request: 'request', answer: 'response' },
  mcp: { request: 'tool_arguments', answer: 'tool_result' },
} as const

const contentMember = (report: JsonObject): Pick<RecordedRefusal, 'content'> => {
  const content = contentIn(report)
  return content ? { content } : {}
}

const isStale = (error: unknown): boolean => error instanceof LedgerError && error.code === 'stale'

/** A conflict: another call has made the same meanwhile. */
const isOvertaken = (error: unknown): boolean =>
  isStale(error) || (error instanceof LedgerError && error.code === 'conflict')

const isInDoubt = (error: unknown): boolean => error instanceof LedgerError && error.inDoubt

const unrecordedSettlement = (at: number): CallSettlement => ({
  at,
  status: 'error',
  provider: null,
  detail: { http_status: 503, reason: 'audit_unavailable' },
})

function outcomeEntry(
  facts: Arrival & DecisionFacts,
  { at, status, provider, detail }: CallSettlement,
  configDigest: string,
): LedgerEntry {
  return { ...callIdentity(facts, configDigest), at, status, provider, detail }
}

const endedCall = (
  { path, demand, call, body }: Arrival & DecisionFacts,
  { status, detail }: CallSettlement,
): EndedCall => ({
  action: demand.action,
  path,
  model: call.model,
  tool: call.tool,
  inBytes: body.length,
  isStream: call.stream,
  ...{ status, detail },
})

const isIdentified = (facts: PartialDecisionFacts): facts is IdentifiedFacts =>
  facts.principal !== undefined && facts.commitments !== undefined && facts.demand !== undefined

const NO_ROOM: RecordedRefusal = {
  reason: 'limit_reached',
  by: 'limits',
  requiredCapability: null,
  passed: [],
}

const REPLAY: RecordedRefusal = { reason: 'proof_invalid', by: 'dpop', requiredCapability: null, passed: [] }

const repeatedRefusal = (facts: IdentifiedFacts, { by, requiredCapability }: RecordedRefusal) => ({
  requestId: facts.id,
  at: facts.at,
  bodySha256: facts.body ? (facts.bodySha256 ?? facts.commitments.of('body_sha256', facts.body)) : null,
  refusedBy: by,
  requiredCapability,
})

/** Has the answer state the limits that the call has used. `used`: of each before it. */
function stateLimits({ limits, answer, at }: IdentifiedFacts, used: readonly number[] | undefined): void {
  if (!limits || used === undefined) return
  const readings = limits.claims.map(({ limit, reservation }, place) => ({
    limit,
    used: (used[place] ?? 0) + reservation.took,
  }))
  Object.assign(answer, rateLimitHeaders(readings, at))
}

/** The receipt of a call whose body was read has the salt of its commitment. */
function receiptOf({ body, commitments }: IdentifiedFacts, [sealed]: readonly Receipt[]): Receipt | null {
  if (!sealed || !body) return sealed ?? null
  return { ...sealed, salt: commitments.salt('body_sha256') }
}

/** The outcome rows that may wait for a ledger that is failing. Past it they are lost to this run. */
const MAX_OWED = 100_000

/** The time in which nobody else takes a call's process for dead (db/postgres/ledger/unfinished.ts). ms. */
const LONG_MS = 15_000

const UNSTORABLE: LedgerEntry['detail'] = { reason: 'detail_unstorable' }

/** A row that waits for the ledger. `inDoubt`: it may be stored already, or the row before it may not. */
interface OwedOutcome {
  readonly entry: LedgerEntry
  readonly inDoubt: boolean
  readonly extras: OutcomeExtras
}

type StatedPrices = ReadonlyMap<string, JsonObject>

/** The rows that go with an outcome, and what it settles. */
export interface OutcomeExtras {
  /** The prices that it names, as rows state them. */
  readonly prices?: StatedPrices
  readonly settlements?: readonly MeterSettlement[]
}

const NO_PRICES: StatedPrices = new Map()

const IN_DOUBT = new LedgerError('unavailable', 'of a call whose decision may be stored')

/**
 * Writes outcome rows, and keeps those that the ledger would not take: exactly one per allowed call
 * (docs/ledger.md). A crash leaves decisions without outcome; the next boot completes them.
 */
export class OutcomeWriter {
  readonly #ledger: Pick<Ledger, 'submit'>
  readonly #database: Pick<Database, 'kysely'>
  readonly #onLost: (error: unknown) => void
  #owed: OwedOutcome[] = []
  /** The prices that are in a row of this process: those that are under way are stated again. */
  readonly #stated = new Set<string>()
  /** Rows that the ledger has and has said nothing of. */
  #underWay = 0
  #onNone: (() => void)[] = []

  constructor(
    ledger: Pick<Ledger, 'submit'>,
    database: Pick<Database, 'kysely'>,
    onLost: (error: unknown) => void,
  ) {
    this.#ledger = ledger
    this.#database = database
    this.#onLost = onLost
  }

  /**
   * Writes a row, and before it those of prices that this process has not stated. Does not wait: nobody's answer
   * depends on it. `tookMs`: the time that its call took.
   */
  settle(entry: LedgerEntry, tookMs = 0, extras: OutcomeExtras = {}): void {
    this.#submit({ entry, inDoubt: tookMs >= LONG_MS, extras })
  }

  /** Writes the row of a call that has ended, if the ledger has its decision: later, when that is known. */
  settleInDoubt(entry: LedgerEntry, extras: OutcomeExtras = {}): void {
    this.#keep({ entry, inDoubt: true, extras }, IN_DOUBT)
  }

  #submit(owed: OwedOutcome): void {
    const { inDoubt, extras } = owed
    const { prices = NO_PRICES, settlements = [] } = extras
    const entry = withLimits(owed.entry, settlements)
    const unstated = [...prices].filter(([id]) => !this.#stated.has(id))
    const entries = [...unstated.map(([, detail]) => priceEntry(detail, entry)), entry]
    const open = inDoubt && entry.request_id !== null && callIsOpen(this.#database, entry.request_id)
    this.#underWay += 1
    this.#ledger.submit(
      { ...(open && { assertions: [open] }), settlements, entries, lazy: true },
      (error) => {
        if (!error) for (const [id] of unstated) this.#stated.add(id)
        // The call is over, or was never allowed: there is nothing to write.
        else if (!(open && isStale(error))) this.#refused(owed, error)
        this.#underWay -= 1
        if (this.#underWay === 0) for (const told of this.#onNone.splice(0)) told()
      },
    )
  }

  get owed(): number {
    return this.#owed.length
  }

  /** Hands the kept rows in again. Called by a task, and once more while stopping. */
  retry(): void {
    for (const owed of this.#owed.splice(0)) this.#submit(owed)
  }

  /** Resolves when every row handed in so far was written or kept. They wait for nobody any more. */
  async flushed(): Promise<void> {
    if (this.#underWay === 0) return
    const none = new Promise<void>((resolve) => this.#onNone.push(resolve))
    // Nothing to write, but it cannot wait, and everything before it in the queue goes too. Each row hears
    // what the ledger says.
    this.#ledger.submit({ entries: [] }, () => {})
    await none
  }

  #refused({ entry, inDoubt, extras }: OwedOutcome, error: Error): void {
    // An upstream may report more than a row can hold. The row counts more than the report.
    const unstorable = !(error instanceof LedgerError)
    if (unstorable && entry.detail !== UNSTORABLE)
      this.#submit({
        entry: { ...entry, detail: UNSTORABLE },
        inDoubt,
        extras: { ...extras, prices: NO_PRICES },
      })
    else if (unstorable) this.#onLost(error)
    else this.#keep({ entry, inDoubt: true, extras }, error)
  }

  #keep(owed: OwedOutcome, error: Error): void {
    if (this.#owed.length < MAX_OWED) this.#owed.push(owed)
    else this.#onLost(error)
  }
}

const priceEntry = (detail: JsonObject, { at, config_digest: digest }: LedgerEntry): LedgerEntry =>
  serviceEntry(PRICE_ACTION, 'success', detail, at, digest)

export interface RouteRecorders {
  readonly calls: CallRecorder
  /** Counts callers that were refused before their principal was known. */
  readonly anonymous: Recorder<Arrival & { readonly principal?: Principal }>
  /** Records operators that were refused; their changes record what they were allowed. */
  readonly operators: Recorder<PartialDecisionFacts & { readonly principal?: Principal }>
}

export function routeRecorders(dependencies: AuditDependencies): RouteRecorders {
  const { anonymous, seen } = dependencies
  const calls = audit(dependencies)
  const allowed = (facts: SeenFacts): Promise<null> => {
    noteSeen(seen, facts)
    return Promise.resolve(null)
  }
  return {
    calls,
    anonymous: {
      allowed,
      refused: (facts, refusal, refusedBy) => {
        noteSeen(seen, facts, refusedBy)
        if (!isNoRefusal(facts, refusal)) anonymous.count(refusal.reason)
        return Promise.resolve(null)
      },
    },
    operators: { allowed, refused: calls.refused },
  }
}
