import type { Refusal } from '../../plugins/refusal.ts'
import { all, type Html, html } from './parts.ts'

/** Why something was not done, each field by name: by its own, or as `nameOf` calls it. */
export function problems(
  { message, detail }: Refusal,
  nameOf: (field: string) => string = (field) => field,
): Html {
  const { errors } = detail as { readonly errors?: readonly { field: string; message: string }[] }
  if (!errors) return html`<p class="problem" role="alert">${message}</p>`
  return html`<ul class="problem" role="alert">${all(errors.map(({ field, message: why }) => html`<li><code>${nameOf(field)}</code> ${why}</li>`))}</ul>`
}
