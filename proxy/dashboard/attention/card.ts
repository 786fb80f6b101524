import { type Html, html } from '../frame/parts.ts'

/** What needs a person. */
export const card = (title: Html, body: Html): Html =>
  html`<section class="card needs-you"><h2>${title}</h2>${body}</section>`
