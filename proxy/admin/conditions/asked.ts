import { isObject } from '../../../db/support/json.ts'
import type { PartialDecisionFacts } from '../../../plugins/audit/decision.ts'
import type { ActingOperator } from '../../../plugins/operators/actor.ts'
import type { AdminCapability } from '../../../plugins/operators/capabilities.ts'
import type { BrowserSession } from '../../../plugins/operators/operator.ts'
import type { Plugin } from '../../../plugins/plugin.ts'
import type { AdminContext } from '../operation/context.ts'
import {
  type InputSchemas,
  type Operation,
  type ParsedInput,
  parseAndAuthorize,
  type RawInput,
} from '../operation/operation.ts'

/** An operation of any input and result. */
export type AnyOperation = Operation<InputSchemas, unknown>

/** A request of an operator who was let in. */
export type AdminRequest = PartialDecisionFacts & {
  readonly actor: ActingOperator
  readonly session?: BrowserSession
}

/** An operation that an operator who was let in asks for. */
export type AskedOperation = AdminRequest & {
  readonly operation: AnyOperation
  readonly given: RawInput<InputSchemas>
}

/** Asks for an operation. Its questions need not know its types: its own schemas read the input. */
export const askedFor = <T extends InputSchemas, Output>(
  operation: Operation<T, Output>,
  given: RawInput<T>,
): Pick<AskedOperation, 'operation' | 'given'> => ({
  operation: operation as unknown as AnyOperation,
  given: given as unknown as RawInput<InputSchemas>,
})

/** The input of an operation, read by its schemas. */
export interface OperationInput {
  readonly input: ParsedInput<InputSchemas>
  /** All that it demands of its caller with this input. */
  readonly demanded: readonly AdminCapability[]
}

/**
 * Reads the input, and asks the caller for all that it demands. Refuses with `body_unprocessable` and
 * `capability_missing`.
 */
export const operationInput = (context: AdminContext): Plugin<AskedOperation, OperationInput> => ({
  name: 'operation_input',
  admit: (facts) => parseAndAuthorize(facts.operation, context, facts.given, facts),
})

/** A change to ask questions about. */
export interface ChangeRequest extends Pick<AskedOperation, 'operation' | 'given'> {
  readonly input: ParsedInput<InputSchemas>
  /** True: nothing is changed, so nothing forbids it. */
  readonly isDryRun: boolean
}

/** Tells a dry run, which changes nothing, from a change. Refuses nothing. */
export const dryRun: Plugin<Pick<ChangeRequest, 'operation' | 'input'>, Pick<ChangeRequest, 'isDryRun'>> = {
  name: 'dry_run',
  admit: ({ operation, input }) => ({ isDryRun: operation.preview !== undefined && asksForDryRun(input) }),
}

const asksForDryRun = (input: object): boolean =>
  'query' in input && isObject(input.query) && input.query.dry_run === true
