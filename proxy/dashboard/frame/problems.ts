import type { Refusal } from '../../../plugins/refusal.ts'
import { type HtmlFragment, html, joinHtml } from './parts.ts'

/** Why something was not done, each field by name: by its own, or as `nameOf` calls it. */
export function problemList(
  { reason, message, detail }: Refusal,
  nameOf: (field: string) => string = (field) => field,
): HtmlFragment {
  const { errors, expectations } = detail as Detail
  // The refusal's message speaks of additions to the URL by callers of the API.
  if (reason === 'expectation_broken' && expectations)
    return html`<div class="problem" role="alert"><p>This would break an expectation:</p><ul>${joinHtml(expectations.map(({ line, sentence }) => html`<li>${sentence} (line ${String(line)})</li>`))}</ul></div>`
  if (!errors) return html`<p class="problem" role="alert">${message}</p>`
  return html`<ul class="problem" role="alert">${joinHtml(errors.map(({ field, message: why }) => html`<li><code>${nameOf(field)}</code> ${why}</li>`))}</ul>`
}

interface Detail {
  readonly errors?: readonly { readonly field: string; readonly message: string }[]
  readonly expectations?: readonly { readonly line: number; readonly sentence: string }[]
}
