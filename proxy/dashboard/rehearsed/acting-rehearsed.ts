import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import {
  type InputSchemas,
  inputOf,
  type Operation,
  perform,
  type RawInput,
} from '../../admin/operation/operation.ts'
import { previewChanges } from '../../admin/rehearsals/operations.ts'
import type { Reply } from '../../http/reply.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { type FormAction, type FormSubmission, showFormAgain, withNotice } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { buttonOf, shownChangesDigest } from './rehearsal.ts'

export type RehearsalChangesInput = RawInput<typeof OPERATIONS.rehearsals.create.takes>['body']['changes']

/** Records the rehearsal that the configuration demands, and returns its id; undefined if it demands none. */
export async function recordRequiredRehearsal(
  { context }: DashboardContext,
  changes: RehearsalChangesInput,
  facts: AdministrationFacts,
): Promise<string | undefined> {
  if (context.requireRehearsal === 'never' || changes.length === 0) return undefined
  const done = await administerOnRecord(OPERATIONS.rehearsals.create, context, { body: { changes } }, facts)
  return 'proposed' in done ? undefined : done.value.id
}

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
