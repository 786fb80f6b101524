import type { Dashboard } from '../dashboard.ts'
import { type Html, html, pathOf } from '../parts.ts'
import { baseUrlOf, snippets } from '../snippets.ts'

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
<p class="faint">For nobody else to read: <code class="copy" tabindex="0">chmod 600 ${folder}/agent.key</code>. The sidecar starts with no other.</p>
<h3>agent.crt</h3><pre class="copy" tabindex="0">${cert}</pre>
<h3>org-ca.crt</h3><p><a href="/pki/ca.crt" download="org-ca.crt">The CA that clients trust the gateway by</a></p></section>`

/** Where clients find the gateway, and what to tell them; waits for the first call. */
export const connectOnce = (
  dashboard: Dashboard,
  id: string,
  name: string,
): Html => html`<section class="card"><h2>Connect</h2>
<h3>gateway.json</h3><pre class="copy" tabindex="0">${JSON.stringify({ url: baseUrlOf(dashboard), agent_id: id })}</pre>
<p class="faint">Save it in agents/${name}/ too: it says where the gateway is, to the sidecar and to <code>make env</code>.</p>
${snippets(dashboard, name)}
<div id="first-call" data-wait="${pathOf('agents', id)}/first-call"><p role="status">Waiting for the first call… <a href="${pathOf('agents', id)}/first-call">Look again</a></p></div></section>`
