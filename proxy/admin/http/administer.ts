import { Refusal, type RefusalReason } from '../../../plugins/refusal.ts'
import { type ProposedChange, propose } from '../conditions/propose.ts'
import type {
  AnyOperation,
  InputSchemas,
  Operation,
  OperationResult,
  ParsedInput,
  RawInput,
} from '../operation/operation.ts'
import type { AdministrationContext, AdminRequest } from '../pipeline.ts'

/**
 * Performs an operation for an operator who was let in, or stores it for a second one
 * (docs/operators.md#two-people): the one door to all operations. Rejects with the refusal of the change's
 * questions, of the operation, or of {@link propose}. A refusal that the gate could not see leaves a denied
 * row.
 */
export async function administerOnRecord<T extends InputSchemas, Output>(
  bound: Operation<T, Output>,
  context: AdministrationContext,
  given: RawInput<T>,
  facts: AdminRequest,
): Promise<OperationResult<Output> | ProposedChange> {
  const record = async (refusal: Refusal): Promise<null> => {
    if (OF_AUTHORITY.has(refusal.reason)) await context.recordDenied(facts, bound.action, refusal)
    return null
  }
  // The questions need not know the types of an operation: its own schemas read what it is given.
  const asked = {
    operation: bound as unknown as AnyOperation,
    given: given as unknown as RawInput<InputSchemas>,
  }
  const decision = await context.change.decide(
    { ...facts, ...asked },
    { allowed: () => Promise.resolve(null), refused: (_known, refusal) => record(refusal) },
  )
  // A question that broke is a fault like any other of the operation.
  if (!decision.allowed)
    throw decision.refusal.reason === 'plugin_failed' ? decision.refusal.cause : decision.refusal
  const { isDryRun, demanded, second, rowDetail } = decision.facts
  const input = decision.facts.input as unknown as ParsedInput<T>
  try {
    if (bound.preview && isDryRun) return await bound.preview(context, input, { ...facts, demanded })
    if (second.waits) return await propose(context, decision.facts, facts)
    const actor = { ...facts.actor, standing: [...facts.actor.standing, ...second.standing] }
    return await bound.run(context, input, { ...facts, actor, demanded, rowDetail })
  } catch (error) {
    if (error instanceof Refusal) await record(error)
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
