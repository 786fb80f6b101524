import { isStopped } from '../../stops/stop.ts'
import { NotRecomputable, type RecordedDecision, type ReplayedCall } from '../authority/decision.ts'
import { expectedDemands } from '../authority/demands.ts'
import { isRefusedByCheck, refusalOfGrantProof } from '../authority/judge.ts'
import {
  approverOfCall,
  isAtDoor,
  refusalOfResource,
  refusalOfTool,
  refusalOfWeakProof,
} from '../authority/reached.ts'
import type { LedgerReplay } from '../authority/replay.ts'
import { missingCapability, proofFault, RULE_REFUSAL_REASONS, thumbprintsAt } from '../authority/rule.ts'
import { bindingName, changesConcern, type HypotheticalChanges, hasNoChanges } from './changes.ts'
import { hasSameChecks, type RehearsedCall, refusalOfCheck, rehearsedCall } from './laid-over.ts'

/** Actions that may name no server: they go to the only one that is bound and enabled. */
const UNNAMED: ReadonlySet<string> = new Set([
  'mcp_resources_read',
  'mcp_resources_subscribe',
  'mcp_resources_unsubscribe',
  'mcp_completion_complete',
  'mcp_logging_setLevel',
])

/** True if, with the changes, a call that names no server could go to others of the principal's. */
function reachesElsewhere(
  decision: RecordedDecision,
  subject: string,
  { principals, resources }: LedgerReplay,
  changes: HypotheticalChanges,
): boolean {
  if (!UNNAMED.has(decision.row.action) || isAtDoor(decision)) return false
  const bound = new Set(principals.get(subject)?.bindings.values())
  return [...resources].some(([id, { states }]) => {
    const enabled = states.at(-1)?.enabled ?? false
    const isBound = changes.bindings.get(bindingName(subject, id)) ?? bound.has(id)
    const isEnabled = changes.resources.get(id)?.enabled ?? enabled
    return (bound.has(id) && enabled) !== (isBound && isEnabled)
  })
}

/** The refusal of a call's target. A prompt of a server that is disabled is none; a tool of it is unknown. */
function refusalOfReached(call: ReplayedCall): string | null {
  const refusal = refusalOfResource(call)
  const { row } = call.decision
  const isOfTool = row.action === 'mcp_tools_call'
  return refusal === 'mcp_tool_unknown' && !isOfTool ? 'mcp_params_invalid' : refusal
}

/** Null: allowed; else why it is refused, and the capability that it lacks if that is why. */
export type CallVerdict = { readonly reason: string; readonly capability: string | null } | null

export const recordedVerdict = ({ allowed, reason, requiredCapability }: RecordedDecision): CallVerdict =>
  allowed
    ? null
    : { reason: reason ?? '', capability: typeof requiredCapability === 'string' ? requiredCapability : null }

/**
 * Judges a call again with changes laid over its state (docs/rehearsal.md#rule). If they do not concern it,
 * the recorded decision stands. Takes a decision that follows from the rows before it. Throws {@link
 * NotRecomputable} rather than guess.
 */
export function verdictWith(
  decision: RecordedDecision,
  replay: LedgerReplay,
  changes: HypotheticalChanges,
): CallVerdict {
  const verdict = verdictByAuthority(decision, replay, changes)
  return verdict ?? (isStoppedBy(changes, decision) ? { reason: 'stopped', capability: null } : null)
}

/** Stops are asked last: they refuse what all else lets through. */
const isStoppedBy = ({ stops = [] }: HypotheticalChanges, { row, authority }: RecordedDecision): boolean => {
  const call = {
    action: row.action,
    principal: row.principal_id,
    type: row.principal_type,
    resource: authority?.resource?.id ?? null,
  }
  return stops.some((scope) => isStopped(scope, call))
}

function verdictByAuthority(
  decision: RecordedDecision,
  replay: LedgerReplay,
  changes: HypotheticalChanges,
): CallVerdict {
  const recorded = recordedVerdict(decision)
  const { principal_id: subject } = decision.row
  const reached = decision.authority?.resource?.id ?? null
  if (subject === null)
    return hasNoChanges(changes) ? recorded : throwNotRecomputable('summaries of several principals')
  if (reachesElsewhere(decision, subject, replay, changes))
    return throwNotRecomputable(
      'calls that go to the only server there is, which would be another one, or none',
    )
  if (!changesConcern(changes, subject, reached) || reachedNothing(decision)) return recorded
  const { reason, summarised } = decision
  const call = rehearsedCall(decision, subject, replay, changes)
  const by = refuserOf(call)
  if (by === 'check' && hasSameChecks(call.recorded.checks, call.configuration.checks)) return recorded
  // The former refuser still refuses it, or something before it.
  if (by === 'other')
    return OF_PROOFS.has(reason ?? '') && !hasSameProofs(call) ? throwNotRecomputable(PROOFS) : recorded
  const asked = summarised === null ? questions(call) : questionsOfSummary(call)
  return firstOf([...asked, ...questionsBehind(call, by)])
}

/** Returns what refused a call; null if nothing did. */
function refuserOf({ decision, authority, recorded }: RehearsedCall): 'rule' | 'check' | 'other' | null {
  if (decision.allowed) return null
  if (isRefusedByCheck(decision, authority, recorded)) return 'check'
  // A stop was asked last, and no change ends one.
  if (decision.reason === 'stopped') return 'other'
  return RULE_REFUSAL_REASONS.has(decision.reason ?? '') ? 'rule' : 'other'
}

/** True if a call reached nothing that a change could be about. */
const reachedNothing = ({ authority, reason }: RecordedDecision): boolean =>
  authority?.resource === null && (reason === 'mcp_not_bound' || reason === 'mcp_tool_unknown')

const OF_PROOFS: ReadonlySet<string> = new Set(['proof_invalid', 'token_invalid'])

const PROOFS = 'of proofs that were not good the rows say nothing more'
const TOKENS = 'of what lacked a proof the rows do not say whether a token narrowed it'

function throwNotRecomputable(why: string): never {
  throw new NotRecomputable(why)
}

type VerdictQuestion = () => CallVerdict

/**
 * The first refusal, whatever an open question would have said. Throws one {@link NotRecomputable} that names
 * every open question.
 */
function firstOf(asked: readonly VerdictQuestion[]): CallVerdict {
  const open = new Set<string>()
  for (const question of asked) {
    try {
      const refusal = question()
      if (refusal) return refusal
    } catch (error) {
      if (!(error instanceof NotRecomputable)) throw error
      open.add(error.message)
    }
  }
  return open.size === 0 ? null : throwNotRecomputable([...open].join('; '))
}

const verdictOf = (reason: string | null): CallVerdict =>
  reason === null ? null : { reason, capability: null }

/** The questions of the rule in their order, but for the certificate: no change is about that. */
const questions = (call: RehearsedCall): readonly VerdictQuestion[] => [
  () => verdictOf(call.principal.isActive ? null : 'principal_deactivated'),
  () => verdictOf(refusalOfProof(call)),
  () => verdictOf(refusalOfReached(call)),
  () => verdictOf(refusalOfWeakProof(call)),
  () => refusalOfSet(call, demandedNow(call)),
  () => verdictOf(refusalOfApproval(call)),
]

/** The questions after the rule. A call that the rule refused never came so far. */
const questionsBehind = (
  call: RehearsedCall,
  by: ReturnType<typeof refuserOf>,
): readonly VerdictQuestion[] => [
  () =>
    by === 'rule' && call.decision.row.action === 'mcp_tools_call' && !isHeld(call.decision)
      ? throwNotRecomputable('its arguments were never looked at')
      : null,
  ...call.configuration.checks
    .filter(({ shadow }) => !shadow)
    .map(
      (check) => () =>
        verdictOf(refusalOfCheck(check, { known: call.recorded.checks, asked: call.authority.checks })),
    ),
  () =>
    verdictOf(call.authority.approval === null && approverOfCall(call) !== null ? 'approval_required' : null),
]

/** A call that lacked an approval alone has come past all other questions. */
const isHeld = ({ reason }: RecordedDecision): boolean => reason === 'approval_required'

/** A summary names neither certificate nor key, and one tool of many. */
const questionsOfSummary = (call: RehearsedCall): readonly VerdictQuestion[] => [
  () => verdictOf(call.principal.isActive ? null : 'principal_deactivated'),
  () => verdictOf(refusalOfProofs(call)),
  () => {
    const { authority, decision, configuration, recorded } = call
    const { reason, row } = decision
    const isSameDemand = configuration.enforceToolsCall === recorded.enforceToolsCall
    if (reason === 'proof_required' && row.action !== 'egress_llm_chat')
      return throwNotRecomputable('messages that nobody has read')
    if (reason !== 'capability_missing' && reason !== 'proof_required')
      return throwNotRecomputable('summaries of several causes')
    if (authority.resource !== null || (row.action === 'mcp_tools_call' && !isSameDemand))
      return throwNotRecomputable('summaries that name no tool')
    return refusalOfSet(call, authority.demanded)
  },
]

/** The same of a summary. Calls that lacked no proof may have brought one, of any key. */
function refusalOfProofs(call: RehearsedCall): string | null {
  const isKnown = call.decision.reason === 'proof_required' || hasSameProofs(call)
  return isKnown || call.configuration.mode === 'off'
    ? refusalOfProof(call)
    : throwNotRecomputable('summaries that name no key')
}

const hasSameProofs = ({ configuration, recorded }: RehearsedCall): boolean =>
  recorded.mode === configuration.mode && recorded.noDowngrade === configuration.noDowngrade

function refusalOfProof(call: RehearsedCall): string | null {
  const { grant } = call.authority
  if (grant !== null) return refusalOfGrantProof(call, grant)
  const { reason } = call.decision
  if (hasSameProofs(call)) return reason === 'proof_required' ? reason : null
  const fault = faultOfProof(call)
  // It may have brought an access token, which narrows its permissions in any mode.
  return fault === null && reason === 'proof_required' ? throwNotRecomputable(TOKENS) : fault
}

function faultOfProof({
  decision,
  authority,
  principal,
  configuration,
  recorded,
}: RehearsedCall): string | null {
  const { mode, noDowngrade } = configuration
  const { row, at } = decision
  if (mode === 'off') return null
  if (recorded.mode === 'off') return throwNotRecomputable('proofs were not looked at while the mode was off')
  const registered = thumbprintsAt(principal.dpopJkts, at)
  return proofFault(mode, noDowngrade, row.dpop_jkt, registered, authority.tokenBound)
}

function refusalOfSet({ authority, principal }: RehearsedCall, demanded: readonly string[]): CallVerdict {
  const capability = missingCapability(demanded, principal.capabilities, authority.scope)
  return capability === null ? null : { reason: 'capability_missing', capability }
}

/** The capabilities demanded with the changes. If the rule knows several, the one in the row. */
function demandedNow(call: RehearsedCall): readonly string[] {
  const [only, ...others] = expectedDemands(call)
  if (only === undefined || others.length === 0) return only ?? []
  const said = call.authority.demanded.join(' ')
  return (
    [only, ...others].find((list) => list.join(' ') === said) ??
    throwNotRecomputable('calls of which no row says what they demanded')
  )
}

/** No change approves a definition: one that was refused so stays refused. */
const refusalOfApproval = (call: RehearsedCall): string | null =>
  call.decision.reason === 'mcp_tool_quarantined' ? call.decision.reason : refusalOfTool(call)
