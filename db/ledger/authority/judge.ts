import type { ApprovalReplay } from '../approvals/approval-rule.ts'
import {
  NotRecomputable,
  type RecordedAuthority,
  type RecordedDecision,
  type ReplayedCall,
  RowContradiction,
} from './decision.ts'
import { refusalOfCapabilities, refusalOfSummarisedCapabilities } from './demands.ts'
import { refusalOfMissingApproval, refusalOfResource, refusalOfTool, refusalOfWeakProof } from './reached.ts'
import type { LedgerReplay, ReplayedPrincipal } from './replay.ts'
import { certificateHolds, isInForce, proofFault, RULE_REFUSAL_REASONS, thumbprintsAt } from './rule.ts'
import type { CheckDigest, ConfigurationState, PrincipalState } from './states.ts'

/**
 * Demands the checks of the row's configuration, in order (docs/ledger.md#rule, 8). Those after one that
 * refused, and shadows, may be left out.
 */
function matchChecks({ checks: asked }: RecordedAuthority, { checks: known }: ConfigurationState): void {
  let from = 0
  for (const check of asked) {
    // Compared by place: two may have one name.
    const at = known.findIndex((one, index) => index >= from && isSame(one, check))
    if (at < 0)
      throw new RowContradiction(`names the check ${check.name}, which its configuration has not so`)
    from = at + 1
  }
}

const isSame = (a: CheckDigest, b: CheckDigest): boolean =>
  a.name === b.name && a.digest === b.digest && a.shadow === b.shadow

/** Tells if the row says that a check of its configuration refused, and what it said. */
export function isRefusedByCheck(
  { refusedBy }: RecordedDecision,
  { checks: asked }: RecordedAuthority,
  { checks: known }: ConfigurationState,
): boolean {
  if (!known.some(({ name }) => name === refusedBy)) return false
  if (asked.some((check) => check.name === refusedBy && isJudging(check) && check.verdict !== 'pass'))
    return true
  throw new RowContradiction(`does not say that the check ${refusedBy} refused`)
}

function refusalOfChecks({ decision, authority, configuration }: ReplayedCall): string | null {
  if (!decision.allowed) return null
  const [asked, known] = [authority.checks.filter(isJudging), configuration.checks.filter(isJudging)]
  // Proven by matchChecks: those that are named are of the configuration, each once.
  if (asked.length < known.length) throw new RowContradiction('does not say what every check said')
  const refused = asked.find(({ verdict }) => verdict !== 'pass')
  return refused ? `the check ${refused.name}` : null
}

/** Asked last (docs/ledger.md#rule, 9): who and what was stopped stands in the row. */
function refusalOfStop({
  decision: { row, reason, stop },
  authority,
  replay: { stops },
}: ReplayedCall): string | null {
  const call = {
    action: row.action,
    principal: row.principal_id,
    type: row.principal_type,
    resource: authority.resource?.id ?? null,
  }
  if (reason !== 'stopped') return stops.find(call) === undefined ? null : 'stopped'
  if (stop !== null && stops.applies(stop, call)) return reason
  throw new RowContradiction(`names the stop ${stop ?? 'none'}, which is not open or not for this call`)
}

const isJudging = ({ shadow }: CheckDigest): boolean => !shadow

/** Null: the recomputed decision agrees. `inOnePoint`: it agrees in all others. */
export type RecomputationFault =
  | { readonly problem: string }
  | { readonly notRecomputable: string; readonly inOnePoint?: true }
  | null

interface JudgedCall extends ReplayedCall {
  readonly approvals: ApprovalReplay
  /** The CAs that vouch for its principal, as far as rows have said them. */
  readonly vouching: Pick<ReplayedPrincipal, 'trustedCas' | 'bundle'>
  /** True if rows of its stream name the CA wherever one lets a caller in. */
  readonly namesAnchors: boolean
}

/** Computes a decision of version 2 again from the rows before it (docs/ledger.md#rule). */
export function recomputeDecision(decision: RecordedDecision, replay: LedgerReplay): RecomputationFault {
  try {
    return compare(decision, replay)
  } catch (error) {
    if (error instanceof RowContradiction) return { problem: error.message }
    if (error instanceof NotRecomputable) return { notRecomputable: error.message }
    throw error
  }
}

function compare(decision: RecordedDecision, replay: LedgerReplay): RecomputationFault {
  const { allowed, reason, summarised } = decision
  const authority = authorityOf(decision)
  matchAccount(decision, replay)
  const configuration = configurationOf(decision, authority, replay)
  matchChecks(authority, configuration)
  if (!allowed && isRefusedByCheck(decision, authority, configuration)) {
    // Whatever the authority is: a check may refuse with any reason, also a call that was overtaken.
    knownOf(decision, authority, replay)
    return null
  }
  if (!allowed && !RULE_REFUSAL_REASONS.has(reason ?? ''))
    throw new NotRecomputable('refused for what no row holds')
  const known = knownOf(decision, authority, replay)
  const principal = stateOf(decision, authority, known)
  const call: JudgedCall = {
    decision,
    authority,
    configuration,
    principal,
    bindings: known.bindings,
    approvals: replay.approvals,
    vouching: known,
    namesAnchors: replay.anchoring.has(decision.row.stream),
    replay,
  }
  const refusal = summarised === null ? refusalOf(call) : refusalOfSummary(call)
  if (refusal === (allowed ? null : reason)) return summarised === null && !isAnchorSaid(call) ? UNSAID : null
  const found = refusal === null ? 'allow it' : `refuse it with ${refusal}`
  throw new RowContradiction(
    `is ${allowed ? 'allowed' : `refused with ${reason}`}, but the rows before it ${found}`,
  )
}

function matchAccount(
  { row, detail, allowed, authority }: RecordedDecision,
  { accounts }: LedgerReplay,
): void {
  const fault = allowed ? accounts.faultOf(detail.account, row.principal_id, authority?.resource?.id) : null
  if (fault !== null) throw new RowContradiction(fault)
}

function authorityOf({
  row,
  fault,
  authority,
  summarised,
  namesRevision,
}: RecordedDecision): RecordedAuthority {
  if (fault !== null) throw new RowContradiction(fault)
  if (summarised !== null && !namesRevision) throw new NotRecomputable('summaries that name no revision')
  if (!authority) throw new RowContradiction('names no authority, or one that is not well-formed')
  if (authority.revision === null && row.principal_id !== null)
    throw new RowContradiction(`is about ${row.principal_id}, but names no revision`)
  return authority
}

function configurationOf(
  { row }: RecordedDecision,
  authority: RecordedAuthority,
  { configurations }: LedgerReplay,
): ConfigurationState {
  const found = configurations.get(row.config_digest)
  if (!found) throw new RowContradiction('has a config_digest that no config.loaded row describes')
  if (found.mode !== authority.mode || found.noDowngrade !== authority.noDowngrade)
    throw new RowContradiction('names another mode than its configuration has')
  return found
}

function knownOf(
  { row }: RecordedDecision,
  { revision }: RecordedAuthority,
  { principals }: LedgerReplay,
): ReplayedPrincipal {
  const id = row.principal_id ?? 'nobody'
  const known = principals.get(id)
  const last = known?.states.at(-1)
  if (!known || !last) throw new RowContradiction(`is about ${id}, whom no row made`)
  if (revision !== null && revision <= last.revision) return known
  throw new RowContradiction(`rests on revision ${revision ?? 'none'} of ${id}, which no row made`)
}

function stateOf(
  { row, summarised }: RecordedDecision,
  { revision }: RecordedAuthority,
  { states }: ReplayedPrincipal,
): PrincipalState {
  const state = summarised === null ? states.at(-1) : states.findLast((kept) => kept.revision === revision)
  if (state?.revision === revision) return state
  if (!state) throw new NotRecomputable('summaries of a revision long past')
  throw new RowContradiction(
    `rests on revision ${revision} of ${row.principal_id}, but stands behind ${state.revision}`,
  )
}

const refusalOf = (call: JudgedCall): string | null =>
  refusalOfCaller(call) ??
  refusalOfProof(call) ??
  refusalOfResource(call) ??
  refusalOfWeakProof(call) ??
  refusalOfCapabilities(call) ??
  refusalOfTool(call) ??
  refusalOfChecks(call) ??
  refusalOfStop(call) ??
  refusalOfMissingApproval(call, call.approvals)

function refusalOfCaller(call: JudgedCall): string | null {
  const { decision, principal } = call
  const { row, at } = decision
  if (!principal.isActive) return 'principal_deactivated'
  const { grant } = call.authority
  if (grant !== null) return refusalOfGrant(call, grant)
  const { thumbprints, spiffeId } = principal
  // No certificate is none of a SPIFFE id either.
  const holds =
    row.cert_thumbprint && certificateHolds(row.cert_thumbprint, thumbprints, Boolean(spiffeId), at)
  return holds && (!isByAnchor(call) || mayVouch(call)) ? null : 'certificate_not_pinned'
}

/**
 * Asks question 2 of a call without a certificate (docs/ledger.md#rule): its grant was issued to this
 * principal, has not ended, and has not expired.
 */
export function refusalOfGrant({ decision, authority, replay }: ReplayedCall, id: string): string | null {
  const { row, at } = decision
  if (row.cert_thumbprint !== null) throw new RowContradiction('names a certificate and a grant')
  const grant = replay.grants.get(id)
  if (!grant || grant.subject !== row.principal_id || !isInForce(grant.expires_at, at)) return 'token_invalid'
  if (authority.bound !== grant.bound)
    throw new RowContradiction(`is of the grade ${authority.bound}, but its grant is of ${grant.bound}`)
  const { scope } = authority
  const isWithin = grant.scope === null || scope?.every((one) => grant.scope?.includes(one)) === true
  if (!isWithin) throw new RowContradiction('has a scope that its grant does not cover')
  return null
}

/** Asks question 3 of such a call: the key of its grant has signed its proof. */
export function refusalOfGrantProof(
  { decision: { row }, replay }: Pick<ReplayedCall, 'decision' | 'replay'>,
  id: string,
): string | null {
  const grant = replay.grants.get(id)
  if (!grant || grant.bound === 'none') return null
  if (row.dpop_jkt === null) return 'proof_required'
  return row.dpop_jkt === grant.jkt ? null : 'proof_invalid'
}

const UNSAID = {
  notRecomputable: 'in one point: SVIDs that chain to a CA which no row says',
  inOnePoint: true,
} as const

/** True if the certificate is known by its SPIFFE id, and so by a CA, and not by its thumbprint. */
const isByAnchor = ({ decision: { row }, authority, principal }: JudgedCall): boolean =>
  authority.grant === null && !principal.thumbprints.some(([known]) => known === row.cert_thumbprint)

/** Returns the digests of the CAs that vouch for the caller; null if rows do not say them all. */
function anchorsOf({ decision: { at }, vouching: { trustedCas, bundle } }: JudgedCall): {
  readonly said: ReadonlySet<string>
  readonly isWhole: boolean
} {
  const before = (bundle?.previous ?? []).flatMap(([digests, until]) => (isInForce(until, at) ? digests : []))
  const said = new Set([...(trustedCas ?? []), ...(bundle?.digests ?? []), ...before])
  return { said, isWhole: trustedCas !== null && (bundle?.previous ?? null) !== null }
}

function mayVouch(call: JudgedCall): boolean {
  const { anchor } = call.authority
  if (anchor === null && call.namesAnchors)
    throw new RowContradiction('does not name the CA that its certificate chains to')
  const { said, isWhole } = anchorsOf(call)
  return anchor === null || said.has(anchor) || !isWhole
}

/** True unless a CA let the caller in of which no row speaks. */
const isAnchorSaid = (call: JudgedCall): boolean =>
  !isByAnchor(call) || (call.authority.anchor !== null && anchorsOf(call).said.has(call.authority.anchor))

function refusalOfProof({ decision, authority, principal, replay }: ReplayedCall): string | null {
  if (authority.grant !== null) return refusalOfGrantProof({ decision, replay }, authority.grant)
  const { row, at } = decision
  const registered = thumbprintsAt(principal.dpopJkts, at)
  return proofFault(authority.mode, authority.noDowngrade, row.dpop_jkt, registered, authority.tokenBound)
}

/** A summary names neither certificate nor key, and one tool of many. */
function refusalOfSummary(call: ReplayedCall): string | null {
  const { reason } = call.decision
  if (reason === 'proof_required') return refusalOfProof(call)
  if (reason === 'capability_missing') return refusalOfSummarisedCapabilities(call)
  throw new NotRecomputable('summaries of several causes')
}
