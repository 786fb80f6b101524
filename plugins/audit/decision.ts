import type { IncomingHttpHeaders } from 'node:http'
import { missingCapability, RULE_REFUSAL_REASONS } from '../../db/ledger/authority/rule.ts'
import { reservedDetail } from '../../db/ledger/meters/detail.ts'
import type { LedgerEntry } from '../../db/ledger/record/entry.ts'
import type { CandidateSet } from '../../db/principals/pins.ts'
import type { JsonObject } from '../../db/support/json.ts'
import type { LedgerStatement, RowAssertion } from '../../db/support/statement.ts'
import type { ContentPlace, ContentVerdict } from '../content/verdict.ts'
import type {
  AccessToken,
  CallCommitments,
  CallGrant,
  CallSummary,
  CapabilityDemand,
  CheckVerdict,
  DpopProof,
  Principal,
  ReachedResource,
} from '../facts.ts'
import type { CallLimits } from '../limits/limits.ts'
import type { ChangeAuthor } from '../operators/actor.ts'
import type { Arrival } from '../plugin.ts'
import { REFUSAL_REASONS, type Refusal, type RefusalReason } from '../refusal.ts'

export interface DecisionFacts {
  readonly principal: Principal
  readonly commitments: CallCommitments
  /** The same principal as the gate judged it, if the call came so far. */
  readonly holder?: Principal
  /** The grant of a call without a certificate. */
  readonly grant?: CallGrant
  /** The candidate set, judged in addition to the real one; null if there is none. */
  readonly candidate?: CandidateSet | null
  /** When it was looked up. ms of the monotonic clock. */
  readonly pinnedAt?: number
  readonly proof: DpopProof | null
  readonly token: AccessToken | null
  readonly demand: CapabilityDemand
  readonly call: CallSummary
  readonly reached?: ReachedResource | null
  readonly body: Buffer
  /** The verdicts of the shadow checks, in their order, if there are any and they were asked. */
  readonly shadows?: readonly CheckVerdict[]
  /** The account of its content, if a check has judged that; and that of one that only watches. */
  readonly content?: ContentVerdict
  readonly shadowContent?: ContentVerdict
  /** The commitment to a body that is too long to be digested at once. */
  readonly bodySha256?: string
  /** The limits and stops that it was judged by, if it came so far. */
  readonly rules?: { readonly revision: number }
  /** The limits that apply to it, and what it reserves of them. */
  readonly limits?: CallLimits
  /** The approval that the call goes by; null, or absent: it needs none. */
  readonly approval?: CallApproval | null
  /** The caller's account at the server; null, or absent: it goes by none. */
  readonly account?: DecisionAccount | null
  /** The operator, if administration was asked for. */
  readonly actor?: Pick<ChangeAuthor, 'via'>
}

/** The account that a call goes by (docs/accounts.md). */
export interface DecisionAccount {
  readonly id: string
  /** Asked in the transaction of the decision: it has not ended. */
  readonly assertions: readonly RowAssertion[]
}

/** The approval that a call goes by (docs/approvals.md). */
export interface CallApproval {
  readonly id: string
  /** Lower-case hex. */
  readonly digest: string
  /** True: it is a further round of a call that has used it. */
  readonly continued: boolean
  /** True: it came while the call was held, so the call must be judged anew before it passes. */
  readonly late: boolean
  /** Asked in the transaction of the decision. */
  readonly assertions: readonly RowAssertion[]
  /** Claims its one use. */
  readonly statements: readonly LedgerStatement[]
  /** Tells whether another call has used it meanwhile. */
  readonly isUsed: () => Promise<boolean>
}

export type PartialDecisionFacts = Arrival & Partial<DecisionFacts>
export type IdentifiedFacts = PartialDecisionFacts &
  Pick<DecisionFacts, 'principal' | 'commitments' | 'demand'>

/** The judging rules, in every decision row of one configuration. */
export interface JudgingRules {
  readonly configDigest: string
  readonly mode: { readonly egress_dpop_mode: string; readonly no_downgrade: boolean }
  readonly checks: readonly JudgingCheck[]
}

/** A check of an operator. `digest`: hex SHA-256 of its code; null if that lies elsewhere. */
export interface JudgingCheck {
  readonly name: string
  readonly digest: string | null
  /** True: it only watches. */
  readonly shadow: boolean
}

export interface RecordedRefusal {
  readonly reason: RefusalReason
  readonly by: string
  readonly requiredCapability: string | null
  readonly passed: readonly string[]
  /** The meter that had no room. */
  readonly limit?: JsonObject
  readonly routed?: readonly string[]
  /** The id of the stop. */
  readonly stop?: string
  readonly content?: ContentVerdict
}

/** Makes the row of a decision (docs/ledger.md#detail): digests and sizes, never the content itself. */
export function decisionEntry(
  facts: PartialDecisionFacts,
  status: string,
  judging: JudgingRules,
  why: RecordedRefusal | null,
): LedgerEntry {
  return {
    ...callIdentity(facts, judging.configDigest),
    at: facts.at,
    status,
    provider: null,
    detail: {
      method: facts.method,
      path: facts.path,
      ...contentOf(facts),
      ...tracesOf(facts),
      ...(usedCertificate(facts) && { certificate: 'previous' }),
      ...(facts.actor && { via: facts.actor.via }),
      ...(facts.grant && { client: facts.grant.client }),
      ...(facts.account && { account: facts.account.id }),
      ...(facts.principal && { authority: decisionAuthority(facts, judging, why) }),
      ...(why && { reason: why.reason, refused_by: why.by }),
      ...(why?.requiredCapability && { required_capability: why.requiredCapability }),
      ...(why?.limit && { limit: why.limit }),
      ...(why?.stop !== undefined && { stop: why.stop }),
      ...judgedContent(facts, why),
      ...(why === null && reservedLimits(facts.limits)),
      ...routedOf(facts.limits, why),
    },
  }
}

function judgedContent(
  { content, shadowContent }: PartialDecisionFacts,
  why: RecordedRefusal | null,
): JsonObject {
  const judged = why?.content ?? content
  return { ...(judged && { content: judged }), ...(shadowContent && { content_shadow: shadowContent }) }
}

/** Says how a call was routed, if a limit looks at that and decided. */
function routedOf(limits: CallLimits | undefined, why: RecordedRefusal | null): JsonObject {
  const routed = limits?.routed ?? why?.routed
  return routed && (why === null || why.limit) ? { routed } : {}
}

const reservedLimits = (limits: CallLimits | undefined): JsonObject =>
  !limits || limits.claims.length === 0
    ? {}
    : {
        limits: limits.claims.map(({ limit, reservation }) => reservedDetail(reservation, limit.revision)),
        ...heldCost(limits.claims),
      }

/** The cost that a call holds, for the outcome that is written for it if this process dies. Micro-USD. */
function heldCost(claims: CallLimits['claims']): JsonObject {
  const costs = claims.flatMap(({ limit, reservation }) =>
    limit.measure === 'cost' ? [reservation.took] : [],
  )
  return costs.length === 0 ? {} : { held_microusd: Math.max(...costs) }
}

/** The members of a row that say whose call it is; its outcome has the same ones. */
export function callIdentity(
  facts: PartialDecisionFacts,
  configDigest: string,
): Omit<LedgerEntry, 'at' | 'status' | 'provider' | 'detail'> {
  return {
    request_id: facts.id,
    principal_id: facts.principal?.ref ?? null,
    principal_type: facts.principal?.type ?? null,
    action: facts.demand?.action ?? 'unknown',
    tool: facts.call?.tool ?? null,
    model: facts.call?.model ?? null,
    cert_thumbprint: facts.grant ? null : (facts.peer?.thumbprint ?? null),
    dpop_jkt: facts.proof?.jkt ?? null,
    config_digest: configDigest,
  }
}

/** Says all that the decision rests on, for computing it again (docs/ledger.md#authority). */
export function decisionAuthority(
  facts: PartialDecisionFacts,
  { mode, checks }: JudgingRules,
  why: RecordedRefusal | null,
): JsonObject {
  const { principal, holder = principal, token, reached, demand, approval, grant } = facts
  const candidate = facts.candidate ? candidateVerdict(facts, why) : null
  const asked = checks.length === 0 ? [] : verdictsOf(checks, facts.shadows ?? [], why)
  return {
    demanded: demandedOf(demand, why),
    mode,
    ...(holder && { revision: holder.revision }),
    ...(holder?.anchor !== undefined && { anchor: holder.anchor }),
    ...(grant && { bound: grant.bound, grant: grant.id }),
    ...(token?.scope && { scope: token.scope.toSorted() }),
    ...(token?.bound && { token: true }),
    ...(reached && { resource: { id: reached.resource.id, revision: reached.resource.revision } }),
    ...(reached?.binding && { binding: reached.binding }),
    ...(reached?.pin && { pin: reached.pin }),
    ...(approval && approvalMembers(approval)),
    ...(asked.length > 0 && { checks: asked }),
    ...(candidate && { candidate }),
  }
}

const approvalMembers = ({ id, digest, continued }: CallApproval): JsonObject => ({
  approval: id,
  call_digest: digest,
  ...(continued && { continued }),
})

/** Without a demand in particular, an empty set is told its lack. */
function demandedOf(demand: CapabilityDemand | undefined, why: RecordedRefusal | null): readonly string[] {
  const demanded = demand?.demanded ?? []
  return demanded.length === 0 && why?.requiredCapability ? [why.requiredCapability] : demanded
}

/** The verdicts of the checks that were asked: all of them, or those up to the one that refused. */
function verdictsOf(
  checks: readonly JudgingCheck[],
  shadows: readonly CheckVerdict[],
  why: RecordedRefusal | null,
): readonly JsonObject[] {
  const own = judgments(checks, why)
  const [judged, watched] = [own.values(), shadows.values()]
  return checks.flatMap(({ name, digest, shadow }) => {
    const { value: verdict } = (shadow ? watched : judged).next()
    return verdict === undefined ? [] : [{ name, digest, verdict, ...(shadow && { shadow }) }]
  })
}

function judgments(checks: readonly JudgingCheck[], why: RecordedRefusal | null): readonly CheckVerdict[] {
  const names = checks.filter(({ shadow }) => !shadow).map(({ name }) => name)
  if (why === null) return names.map(() => 'pass')
  const passed = why.passed.filter((name) => names.includes(name)).map(() => 'pass' as const)
  if (!names.includes(why.by)) return passed
  return [...passed, why.reason === 'plugin_failed' ? 'failed' : 'refuse']
}

function contentOf({ body, bodySha256, commitments, call }: PartialDecisionFacts): JsonObject {
  if (!body || !commitments) return {}
  const digest = { body_sha256: bodySha256 ?? commitments.of('body_sha256', body), body_bytes: body.length }
  return call ? { ...digest, stream: call.stream, ...call.detail } : digest
}

const usedCertificate = ({ principal, holder = principal }: PartialDecisionFacts): boolean =>
  holder?.inGrace === true

/** The headers in which clients name their session, in the order of trust in them. */
const SESSIONS = ['mcp-session-id', 'x-claude-code-session-id', 'session-id'] as const
const PRINTABLE_TRACE = /^[!-~]{1,128}$/
/** An id of ours that says more than its name: the name alone is recorded. */
const NAMED = /^([\w-]{16})\.[\w-]+$/
/** W3C Trace Context, version 00 and those that read like it. */
const TRACE = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}/

/** Returns the session that a client names, as rows have it; null if it names none. */
export function sessionIdOf(headers: IncomingHttpHeaders): string | null {
  const given = SESSIONS.map((name) => headers[name]).find((value) => value !== undefined)
  const session = (typeof given === 'string' && NAMED.exec(given)?.[1]) || given
  return typeof session === 'string' && PRINTABLE_TRACE.test(session) ? session : null
}

function tracesOf({ headers }: PartialDecisionFacts): JsonObject {
  const session = sessionIdOf(headers)
  const trace = headers.traceparent === undefined ? null : TRACE.exec(String(headers.traceparent))
  return {
    ...(session !== null && { session_id: session }),
    ...(trace?.[1] && { trace_id: trace[1] }),
  }
}

export function requiredCapabilityIn({ detail }: Refusal): string | null {
  const { required_capability: capability } = detail
  return typeof capability === 'string' ? capability : null
}

/** Tells a refusal that rests on the caller's authority (docs/ledger.md#recomputing), or a check of the operator's. */
export const isAuthorityRefusal = (reason: RefusalReason): boolean =>
  RULE_REFUSAL_REASONS.has(reason) || reason === 'policy_denied' || reason === 'content_refused'

/** Tells a refusal of a call's form, of any sender: its row is `invalid`, no decision about authority. */
export function isFormRefusal(reason: RefusalReason): boolean {
  const { type } = REFUSAL_REASONS[reason]
  return type === 'invalid_request_error' || (type === 'not_found_error' && reason !== 'mcp_tool_unknown')
}

type WatchedCall = Pick<PartialDecisionFacts, 'candidate' | 'shadows' | 'token' | 'demand'>
type RefusalPath = Pick<RecordedRefusal, 'reason' | 'passed'>

/** The verdict of a call's candidate set at the gate (docs/rehearsal.md#candidates). */
interface CandidateVerdict extends JsonObject {
  /** Names the set: since when it and the real one have not changed. RFC 3339. */
  readonly since: string
  readonly verdict: 'pass' | 'refuse'
}

/** Judges a call by the candidate set of its principal. Null: no set, or it never came to the gate. */
function candidateVerdict(
  { candidate, token, demand }: WatchedCall,
  why: RefusalPath | null,
): CandidateVerdict | null {
  if (!candidate || !demand || (why && !hasComeToGate(why))) return null
  const { since, capabilities } = candidate
  const missing = missingCapability(demand.demanded, capabilities, token?.scope ?? null)
  if (missing === null) return { since, verdict: 'pass' }
  return { since, verdict: 'refuse', required_capability: missing }
}

const hasComeToGate = ({ passed, reason }: RefusalPath): boolean =>
  reason === 'capability_missing' || passed.includes('capability')

/** Called with the verdicts of those that only watch a call, once it is recorded: for metrics. */
export interface ShadowMetrics {
  /** Called with each finding in content, by the rule and the kind of place. */
  readonly content: (rule: string, place: ContentPlace, verdict: ContentVerdict['verdict']) => void
  readonly shadow: (check: string, verdict: CheckVerdict) => void
  readonly candidate: (result: 'same' | 'would_refuse' | 'would_allow') => void
}

export function shadowReporter({ shadow, candidate }: ShadowMetrics, checks: readonly JudgingCheck[]) {
  const names = checks.filter((check) => check.shadow).map(({ name }) => name)
  return (facts: WatchedCall, why: RefusalPath | null): void => {
    for (const [index, verdict] of (facts.shadows ?? []).entries()) shadow(names[index] ?? '', verdict)
    const watched = candidateVerdict(facts, why)
    if (watched) candidate(resultOf(watched, why))
  }
}

function resultOf({ verdict }: CandidateVerdict, why: RefusalPath | null) {
  if (why === null) return verdict === 'pass' ? 'same' : 'would_refuse'
  return verdict === 'pass' && why.reason === 'capability_missing' ? 'would_allow' : 'same'
}
