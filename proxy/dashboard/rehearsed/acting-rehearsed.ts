import { Refusal } from '../../../plugins/refusal.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import { type InputSchemas, inputOf, type Operation, perform } from '../../admin/operation/operation.ts'
import { previewChanges } from '../../admin/rehearsals/preview.ts'
import type { Reply } from '../../http/reply.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { type FormAction, type FormSubmission, withNotice } from '../frame/acting.ts'
import { showFormAgain } from '../frame/again.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { type RehearsalChangesInput, recordRequiredRehearsal } from './recorded.ts'
import { buttonOf } from './rehearsal.ts'
import { shownChangesDigest } from './shown.ts'

interface RehearsedFormAction<T extends InputSchemas, Output> extends FormAction<T, Output> {
  readonly title: (facts: FormSubmission) => string
  readonly label: string
}

/**
 * Makes the handler of a form of one button. If its change would refuse calls of the last 30 days, that is
 * shown first; the press that names the shown change makes it.
 */
export const rehearsedFormHandler =
  <T extends InputSchemas, Output>(
    dashboard: DashboardContext,
    operation: Operation<T, Output>,
    { given, to, notice, title, label }: RehearsedFormAction<T, Output>,
  ) =>
  async (facts: FormSubmission): Promise<Reply> => {
    const { context } = dashboard
    const asked = given(facts)
    const found = (await operation.rehearses?.(context, inputOf(operation.takes, asked))) ?? []
    // Proven by their makers: each is one form of a change.
    const changes = found as RehearsalChangesInput
    const confirm = shownChangesDigest(found)
    if (changes.length > 0 && facts.form.get('confirm') !== confirm) {
      const { value: preview } = await perform(previewChanges, context, { body: { changes } }, facts)
      const { newly_refused: refused, undecidable } = preview.totals
      if (refused + undecidable > 0)
        return showFormAgain(dashboard, facts, {
          ...{ title: title(facts), preview, confirm },
          label: buttonOf(preview, label),
        })
    }
    try {
      const rehearsal = await recordRequiredRehearsal(dashboard, changes, facts)
      const forced = facts.form.get('force_reason')
      const done = await administerOnRecord(
        operation,
        context,
        { ...asked, ...(forced && { forced }), ...(rehearsal && { ifRehearsed: rehearsal }) },
        facts,
      )
      if ('proposed' in done) return seeOther(withNotice(to(facts, null), 'proposed'))
      return seeOther(withNotice(to(facts, done.value), notice))
    } catch (error) {
      if (!(error instanceof Refusal) || error.reason !== 'expectation_broken') throw error
      return showFormAgain(dashboard, facts, { title: title(facts), label, refusal: error, confirm })
    }
  }
