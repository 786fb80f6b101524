import { isObject } from '../../db/support/json.ts'
import type { PartialDecisionFacts } from '../../plugins/audit/decision.ts'
import type { ActingOperator } from '../../plugins/operators/actor.ts'
import type { AdminCapability } from '../../plugins/operators/capabilities.ts'
import type { BrowserSession } from '../../plugins/operators/operator.ts'
import { Pipeline, type Plugin } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { checkExpectations, type ForcedChangeDetail } from './conditions/expected.ts'
import { checkSecondOperator, type SecondOperatorCheck } from './conditions/propose.ts'
import { checkNamedRehearsal, refuseUnrehearsed } from './conditions/rehearsed.ts'
import { type ResolvableChange, type ResolvedChanges, resolveChanges } from './conditions/resolve.ts'
import type { AdminCaller, AdminContext, ChangeConditionsMet } from './operation/context.ts'
import {
  type AnyOperation,
  type InputSchemas,
  type ParsedInput,
  parseAndAuthorize,
  type RawInput,
} from './operation/operation.ts'

/**
 * Makes the questions of an operation, after those of its door. Their order is public
 * (test/proxy/admin/http/refusal-order.test.ts).
 */
export const changePipeline = (context: AdminContext) =>
  Pipeline.start<AskedOperation>()
    .pass(operationInput(context))
    .pass(dryRun)
    .pass(resolvedChange(context))
    .pass(requiredRehearsal(context))
    .pass(keptExpectations(context))
    .pass(secondOperator(context))
    .pass(rowDetail)

export type AdminRequest = PartialDecisionFacts & {
  readonly actor: ActingOperator
  readonly session?: BrowserSession
}

type AskedOperation = AdminRequest & {
  readonly operation: AnyOperation
  readonly given: RawInput<InputSchemas>
}

interface OperationInput {
  readonly input: ParsedInput<InputSchemas>
  /** All that the operation demands of its caller with this input. */
  readonly demanded: readonly AdminCapability[]
}

/** Reads the input, and asks the caller for all that it demands. Refuses as {@link parseAndAuthorize} does. */
const operationInput = (context: AdminContext): Plugin<AskedOperation, OperationInput> => ({
  name: 'operation_input',
  admit: (facts) => parseAndAuthorize(facts.operation, context, facts.given, facts),
})

interface ChangeRequest extends Pick<AskedOperation, 'operation' | 'given'>, Pick<OperationInput, 'input'> {
  /** True: nothing is changed, so no condition of a change is asked. */
  readonly isDryRun: boolean
}

/** Tells a dry run from a change. Refuses nothing. */
const dryRun: Plugin<Pick<ChangeRequest, 'operation' | 'input'>, Pick<ChangeRequest, 'isDryRun'>> = {
  name: 'dry_run',
  admit: ({ operation, input }) => ({ isDryRun: operation.preview !== undefined && asksForDryRun(input) }),
}

const asksForDryRun = (input: object): boolean =>
  'query' in input && isObject(input.query) && input.query.dry_run === true

/** Has the questions after it share one reading of a change's subjects, which is not made yet. */
export const resolvedChange = (
  context: AdminContext,
): Plugin<Pick<ChangeRequest, 'operation' | 'input'>, ResolvableChange> => ({
  name: 'resolved_change',
  admit: ({ operation: { rehearses }, input }) => {
    const read = async (): Promise<ResolvedChanges | null> => {
      const changes = (await rehearses?.(context, input)) ?? []
      return changes.length === 0 ? null : resolveChanges(context, changes)
    }
    let found: Promise<ResolvedChanges | null> | null = null
    const resolve = () => {
      found ??= read()
      return found
    }
    const forget = () => {
      found = null
    }
    return { resolve, forget }
  },
})

interface ChangeRehearsal {
  readonly rehearsal: string | null
}

/**
 * Asks for the rehearsal of a change (docs/rehearsal.md#required). Refuses as {@link checkNamedRehearsal}
 * does, and with `rehearsal_required`.
 */
const requiredRehearsal = (
  context: AdminContext,
): Plugin<ChangeRequest & ResolvableChange & AdminCaller, ChangeRehearsal> => ({
  name: 'rehearsal',
  admit: async (facts) => {
    const { isDryRun, resolve, forget, given, at } = facts
    const named = given.ifRehearsed
    if (isDryRun || (named === undefined && context.requireRehearsal === 'never')) return NO_REHEARSAL
    const resolved = await resolve()
    if (!resolved) return NO_REHEARSAL
    if (named !== undefined) return { rehearsal: await checkNamedRehearsal(context, named, resolved, at) }
    await refuseUnrehearsed(context, facts, resolved)
    // It may have rehearsed a month of calls, and others changed meanwhile what the next question judges.
    forget()
    return NO_REHEARSAL
  },
})

const NO_REHEARSAL: ChangeRehearsal = { rehearsal: null }

interface ForcedChange {
  /** The broken expectations of a forced change; null: the change breaks nothing. */
  readonly forced: ForcedChangeDetail | null
}

export const keptExpectations = (
  context: AdminContext,
): Plugin<ChangeRequest & ResolvableChange, ForcedChange> => ({
  name: 'expectation',
  admit: async ({ operation: { rehearses, gives }, input, given, isDryRun, resolve }) => {
    if (isDryRun || context.expected.sentences.length === 0 || (!rehearses && !gives)) return NOT_FORCED
    const resolved = await resolve().catch(ignoreNobody)
    const made = (await gives?.(context, input)) ?? null
    if (!resolved && !made) return NOT_FORCED
    const effect = { laid: resolved?.laid ?? null, gives: made }
    return { forced: await checkExpectations(context, effect, given.forced) }
  },
})

const NOT_FORCED: ForcedChange = { forced: null }

/** Changes that are about nobody are refused by their own operation. */
function ignoreNobody(error: unknown): null {
  if (error instanceof Refusal && error.reason === 'body_unprocessable') return null
  throw error
}

type SecondOperatorFacts = Pick<ChangeRequest, 'operation' | 'isDryRun'> &
  Pick<OperationInput, 'demanded'> &
  Pick<AdminCaller, 'actor'>

/**
 * Tells if a change waits for a second operator. A user of the machine itself waits for nobody. Refuses with
 * `two_people_required` a change that cannot wait.
 */
const secondOperator = (
  context: AdminContext,
): Plugin<SecondOperatorFacts, { readonly second: SecondOperatorCheck }> => ({
  name: 'second_operator',
  admit: async (facts) => {
    const needed = capabilitiesOfTwo(context, facts)
    if (needed.length === 0) return NOBODY_ELSE
    const second = await checkSecondOperator(context, needed)
    const { cannotWait } = facts.operation
    if (second.waits && cannotWait !== undefined)
      throw new Refusal('two_people_required', { message: cannotWait })
    return { second }
  },
})

const NOBODY_ELSE = { second: { waits: false, standing: [] } } as const

function capabilitiesOfTwo(
  { twoPerson }: AdminContext,
  { operation, isDryRun, demanded, actor }: SecondOperatorFacts,
): readonly AdminCapability[] {
  const { harmless, action, demands, twoPersonKind: kind } = operation
  if (isDryRun || harmless || actor.via === 'socket' || action === 'admin.read') return []
  const isOfKind = kind !== undefined && twoPerson.includes(kind)
  return demanded.filter(
    (capability) =>
      twoPerson.some((one) => capability === `admin.${one}`) || (isOfKind && capability === demands),
  )
}

const rowDetail: Plugin<ChangeRehearsal & ForcedChange, Required<Pick<ChangeConditionsMet, 'rowDetail'>>> = {
  name: 'row_detail',
  admit: ({ rehearsal, forced }) => ({
    rowDetail: { ...(rehearsal !== null && { rehearsal }), ...(forced && { forced }) },
  }),
}

export interface AdministrationContext extends AdminContext {
  readonly change: ReturnType<typeof changePipeline>
}
