import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import type { InputSchemas, Operation, OperationResult, RawInput } from '../../admin/operation/operation.ts'
import type { Reply } from '../../http/reply.ts'
import type { SubmittedForm } from '../../operators/pages/form.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { showFormAgain } from './again.ts'
import type { DashboardContext } from './dashboard.ts'

/** A request with the form of a page. */
export type FormSubmission = AdministrationFacts & SubmittedForm

/** A form's operation, and the next page of its browser. */
export interface FormAction<T extends InputSchemas, Output = unknown> {
  readonly given: (facts: FormSubmission) => RawInput<T>
  /** The next page, a path of ours. `made`: the result; null if it waits for a second operator. */
  readonly to: (facts: FormSubmission, made: OperationResult<Output>['value'] | null) => string
  /** The word of the notice there (frame.ts). */
  readonly notice: string
}

/** A path of ours with the word of a notice. */
export const withNotice = (path: string, notice: string): string =>
  `${path}${path.includes('?') ? '&' : '?'}notice=${notice}`

/**
 * Makes the handler of a form that has nothing to show: it does what the API does, and leads back. If that
 * breaks an expectation, the form is shown once more and asks why; if a field is wrong, with the typed
 * values.
 */
export const formHandler =
  <T extends InputSchemas, Output>(
    dashboard: DashboardContext,
    operation: Operation<T, Output>,
    { given, to, notice }: FormAction<T, Output>,
  ) =>
  async (facts: FormSubmission): Promise<Reply> => {
    const forced = facts.form.get('force_reason')
    const asked = { ...given(facts), ...(forced && { forced }) }
    try {
      const done = await administerOnRecord(operation, dashboard.context, asked, facts)
      if ('proposed' in done) return seeOther(withNotice(to(facts, null), 'proposed'))
      return seeOther(withNotice(to(facts, done.value), notice))
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      const { reason } = error
      if (reason === 'expectation_broken' && canBeForced(operation))
        return showFormAgain(dashboard, facts, {
          title: 'Not done',
          label: 'Do it anyway',
          refusal: error,
        })
      if (reason !== 'body_unprocessable') throw error
      return showFormAgain(dashboard, facts, { title: 'Not done', label: 'Try again', refusal: error })
    }
  }

/** A change decided elsewhere, such as a proposal, was given its reason there. */
const canBeForced = <T extends InputSchemas, Output>({ rehearses, gives }: Operation<T, Output>): boolean =>
  rehearses !== undefined || gives !== undefined

/** The input of an operation on the object that the path names. */
export const inputById = ({ params, form }: FormSubmission) => ({
  params: { id: params.id ?? '' },
  ...(form.get('if_match') && { ifMatch: form.get('if_match') }),
})
