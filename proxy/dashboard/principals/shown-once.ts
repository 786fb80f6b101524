import type { Dashboard } from '../dashboard.ts'
import { type Html, html, pathOf } from '../parts.ts'
import { snippets } from '../snippets.ts'

interface Minted {
  readonly cert_chain_pem: string
  readonly private_key_pem: string
}

/** The key and the certificate, this once. `folder`: where clients look for them. */
export const keysOnce = (
  folder: string,
  { cert_chain_pem: cert, private_key_pem: key }: Minted,
): Html => html`<p class="notice">This page shows the private key once. The service keeps no copy of it.</p>
<section class="card"><h2>Save these in ${folder}/</h2>
<h3>agent.key</h3><pre class="copy secret" tabindex="0">${key}</pre>
<h3>agent.crt</h3><pre class="copy" tabindex="0">${cert}</pre>
<h3>org-ca.crt</h3><p><a href="/pki/ca.crt" download="org-ca.crt">The CA that clients trust the gateway by</a></p></section>`

/** What to tell clients; waits for the first call. */
export const connectOnce = (
  dashboard: Dashboard,
  id: string,
  name: string,
): Html => html`<section class="card"><h2>Connect</h2>${snippets(dashboard, name)}
<div id="first-call" data-wait="${pathOf('agents', id)}/first-call"><p role="status">Waiting for the first call… <a href="${pathOf('agents', id)}/first-call">Look again</a></p></div></section>`
