import { type HtmlFragment, html } from '../frame/parts.ts'

/** An item that needs a person. */
export const attentionCard = (title: HtmlFragment, body: HtmlFragment): HtmlFragment =>
  html`<section class="card needs-you"><h2>${title}</h2>${body}</section>`
