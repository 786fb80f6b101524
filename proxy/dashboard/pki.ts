import { perform } from '../admin/operation.ts'
import { OPERATIONS } from '../admin/operations.ts'
import { endsSoon } from '../admin/principals/ending.ts'
import { acting, type Submitted } from './acting.ts'
import type { Dashboard } from './dashboard.ts'
import type { Page } from './page.ts'
import { ago, button, copyable, csrf, html, may, table, when } from './parts.ts'

/** GET /proxy/pki: the CA that clients trust the service by, and those that principals are enrolled by. */
export const pkiPage: Page = async ({ context }, facts) => {
  const { value: cas } = await perform(OPERATIONS.cas.list, context, {}, facts)
  return {
    title: 'PKI',
    section: '/proxy/pki',
    body: html`<section class="card"><h2>This organisation's CA</h2>
<p>Clients verify this service by it. <a href="/pki/ca.crt" download="sallyport-ca.crt">Export the CA certificate</a> · <a href="/pki/ca-chain.pem" download="sallyport-ca-chain.pem">the whole chain</a></p>
<p class="faint">On the machine: <code class="copy" tabindex="0">make ca-export</code></p></section>
<section class="card"><h2>CAs that are trusted for enrollment</h2>${table(
      ['Kind', 'Subject', 'Ends', 'Attached', 'Digest', ''],
      cas.map(
        ({ kind, subject, not_after: end, attached_at: since, digest }) =>
          html`<tr><td>${kind}</td><td>${subject}</td><td>${ago(end, facts.at)}${when(endsSoon(end, facts.at), () => html` <span class="badge warn">ends soon</span>`)}</td><td>${ago(since, facts.at)}</td><td>${copyable(digest)}</td><td>${button(facts, 'admin.settings', `/proxy/pki/${digest}/detach`, 'Detach')}</td></tr>`,
      ),
      html`<p>None: principals are enrolled by this organisation's CA alone.</p>`,
    )}
${
  may(facts, 'admin.settings')
    ? html`<form method="post" action="/proxy/pki">${csrf(facts.session)}<label>Certificates of a CA, in PEM <textarea name="ca_pem" rows="6" required spellcheck="false"></textarea></label>
<fieldset><legend>For</legend><label class="inline"><input type="radio" name="kind" value="organisation" checked> certificates of agents</label> <label class="inline"><input type="radio" name="kind" value="spiffe"> SPIFFE</label></fieldset><button>Attach</button></form>`
    : html`<p class="needs">Attaching one needs <code>admin.settings</code>.</p>`
}</section>`,
  }
}

/** POST /proxy/pki, and …/{digest}/detach. */
export const pkiForms = (dashboard: Dashboard) => {
  const to = (): string => '/proxy/pki'
  return {
    attach: acting(dashboard, OPERATIONS.cas.attach, {
      given: ({ form }: Submitted) => ({
        body: { ca_pem: form.get('ca_pem') ?? '', kind: form.get('kind') as 'spiffe' },
      }),
      to,
      notice: 'attached',
    }),
    detach: acting(dashboard, OPERATIONS.cas.detach, {
      given: ({ params }) => ({ params: { digest: params.digest ?? '' } }),
      to,
      notice: 'detached',
    }),
  }
}
