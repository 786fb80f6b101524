import { type HtmlFragment, html } from '../frame/parts.ts'

export const attentionCard = (title: HtmlFragment, body: HtmlFragment): HtmlFragment =>
  html`<section class="card needs-you"><h2>${title}</h2>${body}</section>`
