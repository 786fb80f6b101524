import type { z } from 'zod'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import type { InputSchemas, Operation, OperationResult, RawInput } from '../../admin/operation/operation.ts'
import type { PassedOverBlocks } from '../../admin/operation/shapes.ts'
import type { Reply } from '../../http/reply.ts'
import type { SubmittedForm } from '../../operators/pages/form.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { type ChangePreviewView, rehearsalOf } from '../rehearsed/rehearsal.ts'
import type { DashboardContext } from './dashboard.ts'
import { frame, sectionOf } from './frame.ts'
import { csrf, type HtmlFragment, html, problemList } from './parts.ts'

interface FormRetry {
  readonly title: string
  readonly label: string
  readonly refusal?: Refusal
  readonly preview?: ChangePreviewView
  /** True: it took too long to say which calls it would have refused. */
  readonly isUncounted?: boolean
  /** The effect, if no rehearsal can tell it. */
  readonly warning?: HtmlFragment
  /** The name of the shown changes (rehearsal.ts). */
  readonly confirm?: string | undefined
}

export const forceReasonField = (): HtmlFragment =>
  html`<label>Why the change is needed anyway: this is recorded with the change <input name="force_reason" maxlength="500"></label>`

/** Shows a form once more, with all that was sent: its effect, or the fault. */
export function showFormAgain(
  dashboard: DashboardContext,
  facts: AdministrationFacts & SubmittedForm,
  shown: FormRetry,
): Promise<Reply> {
  const { title, label, refusal, preview, warning = html``, isUncounted = false, confirm } = shown
  const { form, path, session, at } = facts
  const kept = [...form].filter(([name]) => !ASKED.has(name))
  return frame(dashboard, facts, {
    title,
    section: sectionOf(path),
    status: refusal?.status ?? 200,
    body: html`${refusal ? problemList(refusal) : html``}${warning}${preview ? rehearsalOf(preview, at) : html``}${isUncounted && html`<p class="notice">The calls of the last 30 days that this would have refused could not be counted in time. Nothing has changed yet.</p>`}
<form method="post" action="${path}">${csrf(session)}${kept.map(hiddenInput)}${confirm !== undefined && hiddenInput(['confirm', confirm ?? ''])}
${refusal?.reason === 'expectation_broken' && forceReasonField()}<button class="danger">${label}</button></form>
<p><a href="${sectionOf(path)}">Leave it as it is</a></p>`,
  })
}

const ASKED: ReadonlySet<string> = new Set(['csrf', 'confirm', 'force_reason'])

const hiddenInput = ([name, value]: readonly [string, string]): HtmlFragment =>
  html`<input type="hidden" name="${name}" value="${value}">`

export type FormSubmission = AdministrationFacts & SubmittedForm

export interface FormAction<T extends InputSchemas, Output = unknown> {
  /** Default: the parts of the path, the state that the form was shown, and {@link fields}. */
  readonly given?: (facts: FormSubmission) => RawInput<T>
  /** The fields that are members of the body as they were sent. */
  readonly fields?: readonly string[]
  /** The next page, a path of ours. `made`: the result; null if it waits for a second operator. */
  readonly to: string | ((facts: FormSubmission, made: OperationResult<Output>['value'] | null) => string)
  readonly notice: string
  /** The blocks of the sent text that were left out. If there are any, they are shown in place of that page. */
  readonly leftOut?: (made: OperationResult<Output>['value']) => Readonly<PassedOverBlocks> | undefined
}

/** Reads the input of an operation from its form. */
export function formInput<T extends InputSchemas, Output>(
  { takes }: Operation<T, Output>,
  { given, fields = [] }: FormAction<T, Output>,
  facts: FormSubmission,
): RawInput<T> {
  if (given) return given(facts)
  const { params, form } = facts
  const ifMatch = form.get('if_match')
  const own = Object.keys((takes.params as z.ZodObject | undefined)?.shape ?? {})
  const parts = {
    ...(takes.params && { params: Object.fromEntries(own.map((name) => [name, params[name] ?? ''])) }),
    ...(takes.query && { query: {} }),
    ...(takes.body && { body: Object.fromEntries(fields.map((name) => [name, form.get(name) ?? ''])) }),
    ...(ifMatch && { ifMatch }),
  }
  // Each part is parsed by the operation.
  return parts as unknown as RawInput<T>
}

const withNotice = (path: string, notice: string): string =>
  `${path}${path.includes('?') ? '&' : '?'}notice=${notice}`

/**
 * Makes the handler of a form that does what the API does and leads back. If that breaks an expectation the
 * form asks why.
 */
export const formHandler =
  <T extends InputSchemas, Output>(
    dashboard: DashboardContext,
    operation: Operation<T, Output>,
    action: FormAction<T, Output>,
  ) =>
  async (facts: FormSubmission): Promise<Reply> => {
    const { to, notice, leftOut } = action
    const forced = facts.form.get('force_reason')
    const asked = { ...formInput(operation, action, facts), ...(forced && { forced }) }
    try {
      const done = await administerOnRecord(operation, dashboard.context, asked, facts)
      const made = 'proposed' in done ? null : done.value
      const path = typeof to === 'string' ? to : to(facts, made)
      if (made === null) return seeOther(withNotice(path, 'proposed'))
      const next = withNotice(path, notice)
      const blocks = leftOut?.(made) ?? []
      return blocks.length === 0 ? seeOther(next) : leftOutPage(dashboard, facts, blocks, next)
    } catch (error) {
      if (!(error instanceof Refusal) || error.reason !== 'expectation_broken' || !canBeForced(operation))
        throw error
      return showFormAgain(dashboard, facts, {
        ...{ title: 'Not done', label: 'Do it anyway', refusal: error },
        confirm: facts.form.get('confirm'),
      })
    }
  }

const leftOutPage = (
  dashboard: DashboardContext,
  facts: FormSubmission,
  blocks: Readonly<PassedOverBlocks>,
  next: string,
): Promise<Reply> =>
  frame(dashboard, facts, {
    title: 'Done, but for a part of the text',
    section: sectionOf(facts.path),
    body: html`<p>These blocks are left out, and vouch for nobody:</p><ul>${blocks.map(
      ({ line, subject, message }) =>
        html`<li>line ${String(line)}, ${subject ?? 'unreadable'}: ${message}</li>`,
    )}</ul><p><a href="${next}">Go on</a></p>`,
  })

/** A change decided elsewhere, such as a proposal, was given its reason there. */
const canBeForced = <T extends InputSchemas, Output>({ rehearses, gives }: Operation<T, Output>): boolean =>
  rehearses !== undefined || gives !== undefined

export const inputById = ({ params, form }: FormSubmission) => ({
  params: { id: params.id ?? '' },
  ...(form.get('if_match') && { ifMatch: form.get('if_match') }),
})
