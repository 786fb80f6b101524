import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { Refusal } from '../../../plugins/refusal.ts'
import type { Reply } from '../../http/reply.ts'
import type { SubmittedForm } from '../../operators/pages/form.ts'
import type { ChangePreviewView } from '../rehearsed/previewed.ts'
import { rehearsalOf } from '../rehearsed/rehearsal.ts'
import type { DashboardContext } from './dashboard.ts'
import { frame, sectionOf } from './frame.ts'
import { csrf, type HtmlFragment, html, htmlIf, joinHtml } from './parts.ts'
import { problemList } from './problems.ts'

interface FormRetry {
  readonly title: string
  readonly label: string
  readonly refusal?: Refusal
  readonly preview?: ChangePreviewView
  /** The name of the shown changes (shown.ts). */
  readonly confirm?: string
}

export const forceReasonField = (): HtmlFragment =>
  html`<label>Why the change is needed anyway: this is recorded with the change <input name="force_reason" maxlength="500"></label>`

/** Shows a form once more, with all that was sent: its effect, or the fault. */
export function showFormAgain(
  dashboard: DashboardContext,
  facts: AdministrationFacts & SubmittedForm,
  shown: FormRetry,
): Promise<Reply> {
  const { title, label, refusal, preview, confirm } = shown
  const { form, path, session, at } = facts
  const kept = [...form].filter(([name]) => !ASKED.has(name))
  // A typed value can be corrected.
  const field = refusal?.reason === 'body_unprocessable' ? editableInput : hiddenInput
  return frame(dashboard, facts, {
    title,
    section: sectionOf(path),
    status: refusal?.status ?? 200,
    body: html`${refusal ? problemList(refusal) : html``}${preview ? rehearsalOf(preview, at) : html``}
<form method="post" action="${path}">${csrf(session)}${joinHtml(kept.map(field))}${htmlIf(confirm !== undefined, () => hiddenInput(['confirm', confirm ?? '']))}
${htmlIf(refusal?.reason === 'expectation_broken', forceReasonField)}<button class="danger">${label}</button></form>
<p><a href="${sectionOf(path)}">Leave it as it is</a></p>`,
  })
}

const ASKED: ReadonlySet<string> = new Set(['csrf', 'confirm', 'force_reason'])

const hiddenInput = ([name, value]: readonly [string, string]): HtmlFragment =>
  html`<input type="hidden" name="${name}" value="${value}">`

const editableInput = ([name, value]: readonly [string, string]): HtmlFragment => {
  if (HIDDEN.has(name)) return hiddenInput([name, value])
  return value.includes('\n')
    ? html`<label>${name} <textarea name="${name}" rows="6" spellcheck="false">${value}</textarea></label>`
    : html`<label>${name} <input name="${name}" value="${value}" autocomplete="off"></label>`
}

const HIDDEN: ReadonlySet<string> = new Set(['if_match', 'digest', 'kind', 'from', 'q', 'cursor'])
