import { isObject } from '../../../db/support/json.ts'
import type { Known } from '../../../plugins/audit/decision.ts'
import type { Actor } from '../../../plugins/operators/actor.ts'
import type { BrowserSession } from '../../../plugins/operators/operator.ts'
import { Refusal, type RefusalReason } from '../../../plugins/refusal.ts'
import { checkExpected } from '../conditions/expected.ts'
import { type Proposed, propose, waitsForSecond } from '../conditions/propose.ts'
import { checkRehearsed } from '../conditions/rehearsed.ts'
import { saying } from '../operation/change.ts'
import type { AdminContext, Caller } from '../operation/context.ts'
import { type Given, type Operation, type Result, type Takes, understood } from '../operation/operation.ts'

/**
 * Performs an operation for a caller that was let in, or stores it for a second operator where it needs one
 * (docs/operators.md#two-people): the one door to all operations, over HTTP and within the process. Rejects with a
 * `Refusal` as `perform` does, and as {@link propose} does.
 */
export async function administer<T extends Takes, Output>(
  bound: Operation<T, Output>,
  context: AdminContext,
  given: Given<T>,
  caller: Caller,
): Promise<Result<Output> | Proposed> {
  const { input, demanded } = await understood(bound, context, given, caller)
  if (bound.preview && isDryRun(input)) return bound.preview(context, input, { ...caller, demanded })
  const named = await checkRehearsed(bound, context, { input, given }, caller)
  const forced = await checkExpected(bound, context, { input, given })
  const second = await waitsForSecond(bound, context, demanded, caller)
  if (second.waits) return propose(bound, context, { given, input, demanded, rehearsal: named }, caller)
  const naming = saying(context, {
    ...(named !== null && { rehearsal: named }),
    ...(forced && { forced }),
  })
  const actor = { ...caller.actor, standing: [...caller.actor.standing, ...second.standing] }
  return bound.run(naming, input, { ...caller, actor, demanded })
}

const isDryRun = (input: object): boolean =>
  'query' in input && isObject(input.query) && input.query.dry_run === true

/** A request of an operator who was let in. */
export type AdminRequest = Known & { readonly actor: Actor; readonly session?: BrowserSession }

/**
 * The same for a request, with a denied row where the caller may not do what the input asks for: the gate could not see
 * that.
 */
export async function administerOnRecord<T extends Takes, Output>(
  bound: Operation<T, Output>,
  context: AdminContext,
  given: Given<T>,
  facts: AdminRequest,
): Promise<Result<Output> | Proposed> {
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
