import { type HtmlFragment, html } from '../frame/parts.ts'

/** The state of a server. */
export const stateOf = ({
  enabled,
  last_error: error,
}: {
  enabled: boolean
  last_error: string | null
}): HtmlFragment => {
  if (!enabled) return html`<span class="badge off">disabled</span>`
  return error === null
    ? html`<span class="verdict allowed">ok</span>`
    : html`<span class="badge warn">cannot be read</span>`
}
