import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import type { Reply } from '../../http/reply.ts'
import type { SubmittedForm } from '../../operators/pages/form.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { type FormSubmission, formHandler, inputById } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { pathOf } from '../frame/parts.ts'
import { rehearsedFormHandler } from '../rehearsed/acting-rehearsed.ts'
import { capabilitiesInput, refusedForm } from './capabilities-form.ts'
import { type CallerPlural, PRINCIPAL_PAGES } from './kinds.ts'

export const candidateForms = (plural: CallerPlural, dashboard: DashboardContext) => {
  const { operations } = PRINCIPAL_PAGES[plural]
  const back = {
    given: inputById,
    to: ({ params }: FormSubmission): string => pathOf(plural, params.id ?? ''),
  }
  return {
    /** POST …/candidate: tries the set of the textbox. */
    set: async (facts: AdministrationFacts & SubmittedForm): Promise<Reply> => {
      try {
        await administerOnRecord(operations.setCandidate, dashboard.context, capabilitiesInput(facts), facts)
        return seeOther(`${back.to(facts)}?notice=tried`)
      } catch (error) {
        return refusedForm(plural, dashboard, facts, error)
      }
    },
    promote: rehearsedFormHandler(dashboard, operations.promoteCandidate, {
      ...back,
      notice: 'updated',
      title: () => 'This set becomes the real one',
      label: 'Promote',
    }),
    remove: formHandler(dashboard, operations.removeCandidate, { ...back, notice: 'untried' }),
  }
}
