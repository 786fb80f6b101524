import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { resolveChanges } from '../../admin/conditions/resolve.ts'
import { runRehearsal, windowOf } from '../../admin/conditions/run.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import type { RehearsalChange } from '../../admin/operation/changes.ts'
import { type InputSchemas, inputOf, type Operation, type RawInput } from '../../admin/operation/operation.ts'
import type { Reply } from '../../http/reply.ts'
import {
  type FormAction,
  type FormSubmission,
  formHandler,
  formInput,
  showFormAgain,
} from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { HtmlFragment } from '../frame/parts.ts'
import { buttonOf, type ChangePreviewView, shownChangesDigest } from './rehearsal.ts'

type RehearsalInput = RawInput<typeof OPERATIONS.rehearsals.create.takes>['body']

export type RehearsalChangesInput = RehearsalInput['changes']

/** Records the rehearsal that the configuration demands, and returns its id; undefined if it demands none. */
export async function recordRequiredRehearsal(
  { context }: DashboardContext,
  body: RehearsalInput,
  facts: AdministrationFacts,
): Promise<string | undefined> {
  const isEmpty = body.changes.length === 0 && body.bulk === undefined
  if (context.requireRehearsal === 'never' || isEmpty) return undefined
  const done = await administerOnRecord(OPERATIONS.rehearsals.create, context, { body }, facts)
  return 'proposed' in done ? undefined : done.value.id
}

interface RehearsedFormAction<T extends InputSchemas, Output> extends FormAction<T, Output> {
  readonly title: (facts: FormSubmission) => string
  readonly label: string
  /** Says what it comes to if no rehearsal can tell that; null: it asks nothing. */
  readonly warning?: (facts: FormSubmission) => Promise<HtmlFragment | null>
  readonly alwaysAsks?: boolean
}

/** The time that a form waits for a rehearsal: what takes access away from a thief must not wait. ms. */
const PATIENCE_MS = 3_000

async function previewInTime(
  { context }: DashboardContext,
  changes: readonly RehearsalChange[],
  facts: FormSubmission,
): Promise<ChangePreviewView | null> {
  const signal = AbortSignal.any([facts.hangup.signal, AbortSignal.timeout(PATIENCE_MS)])
  const waiting = { signal, onGone: () => {}, offGone: () => {}, gone: false, reason: undefined }
  try {
    const resolved = await resolveChanges(context, changes)
    return await runRehearsal(context, { ...facts, hangup: waiting }, resolved, windowOf(facts.at))
  } catch (error) {
    if (signal.aborted || (error instanceof Refusal && error.reason === 'overloaded')) return null
    throw error
  }
}

interface ConfirmedButton {
  readonly title: string
  readonly label: string
  readonly warning?: HtmlFragment | null | undefined
  /** True: it is asked also if no call would have been refused, and the warning is shown as well. */
  readonly alwaysAsks?: boolean | undefined
}

/** The `confirm` of a press that was shown no rehearsal. */
const WARNED = 'warned'

/**
 * Shows what an operation would have done to the calls of the last 30 days, if it would have refused any or is about a
 * limit, and the button again. Null: nothing is to be shown, or that is what was shown before. A rehearsal that takes too
 * long is not waited for: the form says so, and asks all the same.
 */
export async function askFirst<T extends InputSchemas, Output>(
  dashboard: DashboardContext,
  { rehearses, resembles, takes }: Operation<T, Output>,
  given: RawInput<T>,
  facts: FormSubmission,
  { title, label, warning, alwaysAsks = false }: ConfirmedButton,
): Promise<Reply | null> {
  const effect = rehearses ?? resembles
  const changes = (await effect?.(dashboard.context, inputOf(takes, given))) ?? []
  if (changes.length === 0 && warning && facts.form.get('confirm') !== WARNED)
    return showFormAgain(dashboard, facts, { title, label, warning, confirm: WARNED })
  const confirm = shownChangesDigest(changes)
  if (changes.length === 0 || facts.form.get('confirm') === confirm) return null
  const preview = await previewInTime(dashboard, changes, facts)
  // Of a limit it says more than what it refuses: how much of it would have been used, and by whom.
  const isQuiet = preview && preview.totals.newly_refused + preview.totals.undecidable === 0
  if (isQuiet && !preview.limits && !alwaysAsks) return null
  return showFormAgain(dashboard, facts, {
    ...{ title, confirm, label: preview ? buttonOf(preview, label) : label },
    ...(preview ? { preview } : { isUncounted: true }),
    // Rows do not say what comes of it from now on.
    ...((preview?.limits || alwaysAsks) && warning && { warning }),
  })
}

/**
 * Makes the handler of a form of one button, which asks first ({@link askFirst}); the press that names the
 * shown change makes it.
 */
export const rehearsedFormHandler =
  <T extends InputSchemas, Output>(
    dashboard: DashboardContext,
    operation: Operation<T, Output>,
    action: RehearsedFormAction<T, Output>,
  ) =>
  async (facts: FormSubmission): Promise<Reply> => {
    const { title, label, alwaysAsks } = action
    const asked = formInput(operation, action, facts)
    const warning = await action.warning?.(facts)
    const shown = await askFirst(dashboard, operation, asked, facts, {
      ...{ title: title(facts), label, warning, alwaysAsks },
    })
    if (shown) return shown
    const found = await operation.rehearses?.(dashboard.context, inputOf(operation.takes, asked))
    // Proven by their makers: each is one form of a change.
    const changes = (found ?? []) as RehearsalChangesInput
    const rehearsal = await recordRequiredRehearsal(dashboard, { changes }, facts)
    const rehearsed = { ...asked, ...(rehearsal && { ifRehearsed: rehearsal }) }
    return formHandler(dashboard, operation, { ...action, given: () => rehearsed })(facts)
  }
