import type { Administered } from '../../../plugins/operators/operator.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import type { Reply } from '../../http/reply.ts'
import type { Form } from '../../operators/pages/form.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { acting, byId, type Submitted } from '../frame/acting.ts'
import type { Dashboard } from '../frame/dashboard.ts'
import { pathOf } from '../frame/parts.ts'
import { actingRehearsed } from '../rehearsed/acting-rehearsed.ts'
import type { Callers } from './candidate.ts'
import { refusedForm, typedIn } from './capabilities-form.ts'
import { PAGES } from './kinds.ts'

/** The forms about a set that is tried. */
export const candidateForms = (plural: Callers, dashboard: Dashboard) => {
  const { operations } = PAGES[plural]
  const back = { given: byId, to: ({ params }: Submitted): string => pathOf(plural, params.id ?? '') }
  return {
    /** POST …/candidate: tries the set of the textbox. */
    set: async (facts: Administered & Form): Promise<Reply> => {
      try {
        await administerOnRecord(operations.setCandidate, dashboard.context, typedIn(facts), facts)
        return seeOther(`${back.to(facts)}?notice=tried`)
      } catch (error) {
        return refusedForm(plural, dashboard, facts, error)
      }
    },
    promote: actingRehearsed(dashboard, operations.promoteCandidate, {
      ...back,
      notice: 'updated',
      title: () => 'This set becomes the real one',
      label: 'Promote',
    }),
    remove: acting(dashboard, operations.removeCandidate, { ...back, notice: 'untried' }),
  }
}
