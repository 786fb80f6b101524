import type { Reply } from '../../http/reply.ts'
import { htmlDocument } from '../frame/frame.ts'
import { EMPTY_HTML, type HtmlFragment, html, joinHtml } from '../frame/parts.ts'

const STEPS = ['Secret', 'Organisation', 'First agent', 'Connect'] as const

export const setupStep = (current: (typeof STEPS)[number], body: HtmlFragment, status = 200): Reply =>
  htmlDocument(
    'Set up',
    html`<main class="alone"><h1>Set up Sallyport</h1><ol class="steps">${joinHtml(
      STEPS.map(
        (name) => html`<li${name === current ? html` aria-current="step"` : EMPTY_HTML}>${name}</li>`,
      ),
    )}</ol>
${body}</main>`,
    status,
  )

export const caCertificate = (words: string): HtmlFragment =>
  html`<a href="/pki/ca.crt" download="sallyport-ca.crt">${words}</a>`
