import { type HtmlFragment, html } from '../frame/parts.ts'

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

/** Tells a tool that a version before 0.7 approved in part, and whose whole text is another one by now. */
export const isListedInPart = (tool: {
  readonly state: string
  readonly pending_digest: string | null
}): boolean => tool.state === 'approved' && tool.pending_digest !== null
