import type { Reply } from '../../http/reply.ts'
import { document } from '../frame/frame.ts'
import { all, type Html, html, NOTHING } from '../frame/parts.ts'

const STEPS = ['Secret', 'Organisation', 'First agent', 'Connect'] as const

/** A page of the first boot, without the navigation of the others: there is nothing to go to yet. */
export const step = (current: (typeof STEPS)[number], body: Html, status = 200): Reply =>
  document(
    'Set up',
    html`<main class="alone"><h1>Set up Sallyport</h1><ol class="steps">${all(
      STEPS.map((name) => html`<li${name === current ? html` aria-current="step"` : NOTHING}>${name}</li>`),
    )}</ol>
${body}</main>`,
    status,
  )

/** The certificate that clients know this service by. */
export const caCertificate = (words: string): Html =>
  html`<a href="/pki/ca.crt" download="sallyport-ca.crt">${words}</a>`
