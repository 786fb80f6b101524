import { Pipeline, type Plugin } from '../../plugins/plugin.ts'
import { type AskedOperation, dryRun, operationInput } from './conditions/asked.ts'
import { type ForcedChange, keptExpectations } from './conditions/expected.ts'
import { secondOperator } from './conditions/propose.ts'
import { type ChangeRehearsal, requiredRehearsal } from './conditions/rehearsed.ts'
import { resolvedChange } from './conditions/resolve.ts'
import type { AdminContext, ChangeConditionsMet } from './operation/context.ts'

/**
 * The questions of an administrative change, after those of the door that let its operator in, for every
 * asker: the API, a page, the control socket. Their order is public: a caller sees the first refusal
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

/** Says what the rows of a change name: its rehearsal, and that it was forced. Refuses nothing. */
const rowDetail: Plugin<ChangeRehearsal & ForcedChange, Required<Pick<ChangeConditionsMet, 'rowDetail'>>> = {
  name: 'row_detail',
  admit: ({ rehearsal, forced }) => ({
    rowDetail: { ...(rehearsal !== null && { rehearsal }), ...(forced && { forced }) },
  }),
}

export type ChangePipeline = ReturnType<typeof changePipeline>

/** The services of operations, and the questions that are asked before one changes anything. */
export interface AdministrationContext extends AdminContext {
  readonly change: ChangePipeline
}
