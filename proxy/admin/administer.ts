import type { AdminContext, Caller } from './context.ts'
import { type Given, type Operation, type Result, type Takes, understood } from './operation.ts'
import { type Proposed, propose, waitsForSecond } from './proposals/propose.ts'

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
  const second = await waitsForSecond(bound, context, demanded, caller)
  if (second.waits) return propose(bound, context, { given, input, demanded }, caller)
  const actor = { ...caller.actor, standing: [...caller.actor.standing, ...second.standing] }
  return bound.run(context, input, { ...caller, actor, demanded })
}
