import type { Administered } from '../../../plugins/operators/operator.ts'
import type { Refusal } from '../../../plugins/refusal.ts'
import type { Reply } from '../../http/reply.ts'
import type { Form } from '../../operators/pages/form.ts'
import type { Preview } from '../rehearsed/previewed.ts'
import { rehearsalOf } from '../rehearsed/rehearsal.ts'
import type { Dashboard } from './dashboard.ts'
import { frame, sectionOf } from './frame.ts'
import { all, csrf, type Html, html, when } from './parts.ts'
import { problems } from './problems.ts'

/** What is said and asked before a form does what it was sent for. */
interface Again {
  readonly title: string
  /** Of the button that does it. */
  readonly label: string
  readonly refusal?: Refusal
  readonly preview?: Preview
  /** The name of what is shown (shown.ts). */
  readonly confirm?: string
}

/** The field in which somebody says why a change is made that breaks what is expected. */
export const whyAllTheSame = (): Html =>
  html`<label>Why it must be so all the same: the row of the change says it <input name="force_reason" maxlength="500"></label>`

/** Shows a form once more, with all that was sent: what it would do, or what stands against it. */
export function again(dashboard: Dashboard, facts: Administered & Form, shown: Again): Promise<Reply> {
  const { title, label, refusal, preview, confirm } = shown
  const { form, path, session, at } = facts
  const kept = [...form].filter(([name]) => !ASKED.has(name))
  // What somebody typed can be typed better.
  const field = refusal?.reason === 'body_unprocessable' ? typed : hidden
  return frame(dashboard, facts, {
    title,
    section: sectionOf(path),
    status: refusal?.status ?? 200,
    body: html`${refusal ? problems(refusal) : html``}${preview ? rehearsalOf(preview, at) : html``}
<form method="post" action="${path}">${csrf(session)}${all(kept.map(field))}${when(confirm !== undefined, () => hidden(['confirm', confirm ?? '']))}
${when(refusal?.reason === 'expectation_broken', whyAllTheSame)}<button class="danger">${label}</button></form>
<p><a href="${sectionOf(path)}">Leave it as it is</a></p>`,
  })
}

const ASKED: ReadonlySet<string> = new Set(['csrf', 'confirm', 'force_reason'])

const hidden = ([name, value]: readonly [string, string]): Html =>
  html`<input type="hidden" name="${name}" value="${value}">`

const typed = ([name, value]: readonly [string, string]): Html => {
  if (HIDDEN.has(name)) return hidden([name, value])
  return value.includes('\n')
    ? html`<label>${name} <textarea name="${name}" rows="6" spellcheck="false">${value}</textarea></label>`
    : html`<label>${name} <input name="${name}" value="${value}" autocomplete="off"></label>`
}

/** The fields that nobody types. */
const HIDDEN: ReadonlySet<string> = new Set(['if_match', 'digest', 'kind', 'from', 'q', 'cursor'])
