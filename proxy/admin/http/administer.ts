import { isObject } from '../../../db/support/json.ts'
import type { PartialDecisionFacts } from '../../../plugins/audit/decision.ts'
import type { ActingOperator } from '../../../plugins/operators/actor.ts'
import type { BrowserSession } from '../../../plugins/operators/operator.ts'
import { Refusal, type RefusalReason } from '../../../plugins/refusal.ts'
import { checkExpectations } from '../conditions/expected.ts'
import { checkSecondOperator, type ProposedChange, propose } from '../conditions/propose.ts'
import { checkRehearsal } from '../conditions/rehearsed.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import {
  type InputSchemas,
  type Operation,
  type OperationResult,
  parseAndAuthorize,
  type RawInput,
} from '../operation/operation.ts'

/**
 * Performs an operation for a caller that was let in, or stores it for a second operator where it needs one
 * (docs/operators.md#two-people): the one door to all operations, over HTTP and within the process. Rejects with a
 * `Refusal` as `perform` does, and as {@link propose} does.
 */
export async function administer<T extends InputSchemas, Output>(
  bound: Operation<T, Output>,
  context: AdminContext,
  given: RawInput<T>,
  caller: AdminCaller,
): Promise<OperationResult<Output> | ProposedChange> {
  const { input, demanded } = await parseAndAuthorize(bound, context, given, caller)
  if (bound.preview && isDryRun(input)) return bound.preview(context, input, { ...caller, demanded })
  const named = await checkRehearsal(bound, context, { input, given }, caller)
  const forced = await checkExpectations(bound, context, { input, given })
  const second = await checkSecondOperator(bound, context, demanded, caller)
  if (second.waits) return propose(bound, context, { given, input, demanded, rehearsal: named }, caller)
  const rowDetail = { ...(named !== null && { rehearsal: named }), ...(forced && { forced }) }
  const actor = { ...caller.actor, standing: [...caller.actor.standing, ...second.standing] }
  return bound.run(context, input, { ...caller, actor, demanded, rowDetail })
}

const isDryRun = (input: object): boolean =>
  'query' in input && isObject(input.query) && input.query.dry_run === true

/** A request of an operator who was let in. */
export type AdminRequest = PartialDecisionFacts & {
  readonly actor: ActingOperator
  readonly session?: BrowserSession
}

/**
 * The same for a request, with a denied row where the caller may not do what the input asks for: the gate could not see
 * that.
 */
export async function administerOnRecord<T extends InputSchemas, Output>(
  bound: Operation<T, Output>,
  context: AdminContext,
  given: RawInput<T>,
  facts: AdminRequest,
): Promise<OperationResult<Output> | ProposedChange> {
  try {
    return await administer(bound, context, given, facts)
  } catch (error) {
    if (error instanceof Refusal && OF_AUTHORITY.has(error.reason))
      await context.recordDenied(facts, bound.action, error)
    throw error
  }
}

/** The refusals of an operation that say what its caller may not do: each is a row, as the gate's own is. */
const OF_AUTHORITY: ReadonlySet<RefusalReason> = new Set([
  'capability_missing',
  'own_authority',
  'own_proposal',
  'machine_only',
])
