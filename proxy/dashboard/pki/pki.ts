import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { etagOf, perform } from '../../admin/operation/operation.ts'
import { endsSoon } from '../../admin/principals/ending.ts'
import { type FormSubmission, formHandler } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  button,
  copyableCode,
  csrf,
  dataTable,
  EMPTY_HTML,
  type HtmlFragment,
  hasCapability,
  html,
  htmlIf,
  joinHtml,
  relativeTime,
} from '../frame/parts.ts'
import { rehearsedFormHandler } from '../rehearsed/acting-rehearsed.ts'
import { ownCaCard } from './own-ca.ts'

/** GET /proxy/pki: the CA that proves the service to clients, and the CAs that principals are enrolled by. */
export const pkiPage: DashboardPage = async ({ context }, facts) => {
  const { value: cas } = await perform(OPERATIONS.cas.list, context, {}, facts)
  const { value: own, revision = 0 } = await perform(OPERATIONS.caRotation.show, context, {}, facts)
  return {
    title: 'PKI',
    section: '/proxy/pki',
    body: html`${ownCaCard(own, etagOf({ revision }), facts)}
<section class="card"><h2>CAs that are trusted for enrollment</h2>${dataTable(
      ['Kind', 'Subject', 'Ends', 'Attached', 'Vouches for', 'SHA-256', ''],
      cas.map(
        ({ kind, subject, not_after: end, attached_at: since, digest, agents, agents_alone: alone }) =>
          html`<tr><td>${kind}</td><td>${subject}</td><td>${relativeTime(end, facts.at)}${htmlIf(endsSoon(end, facts.at), () => html` <span class="badge warn">ends soon</span>`)}</td><td>${relativeTime(since, facts.at)}</td><td>${kind === 'spiffe' ? reliance(agents, alone) : ''}</td><td>${copyableCode(digest)}</td><td>${detachForm(facts, digest, alone)}</td></tr>`,
      ),
      html`<p>None: principals are enrolled with this organisation's CA only.</p>`,
    )}
${
  hasCapability(facts, 'admin.settings')
    ? html`<form method="post" action="/proxy/pki">${csrf(facts.session)}<label>Certificates of a CA, in PEM <textarea name="ca_pem" rows="6" required spellcheck="false"></textarea></label>
<fieldset><legend>For</legend><label class="inline"><input type="radio" name="kind" value="organisation" checked> certificates of agents</label> <label class="inline"><input type="radio" name="kind" value="spiffe"> SPIFFE</label></fieldset><button>Attach</button></form>`
    : html`<p class="needs">Attaching a CA needs <code>admin.settings</code>.</p>`
}</section>${vouchCard(
      cas.filter(({ kind }) => kind === 'spiffe'),
      facts,
    )}`,
  }
}

const reliance = (agents: number, alone: number): string =>
  `${agents} ${agents === 1 ? 'agent' : 'agents'}${alone === 0 ? '' : `, the only CA of ${alone}`}`

const detachForm = (facts: AdministrationFacts, digest: string, alone: number): HtmlFragment =>
  alone === 0 || !hasCapability(facts, 'admin.settings')
    ? button(facts, 'admin.settings', `/proxy/pki/${digest}/detach`, 'Detach')
    : html`<form method="post" action="/proxy/pki/${digest}/detach">${csrf(facts.session)}<label class="inline"><input type="checkbox" name="lock_out" value="true" required> lock ${String(alone)} out</label> <button>Detach</button></form>`

function vouchCard(
  cas: readonly { readonly digest: string; readonly subject: string; readonly agents: number }[],
  facts: AdministrationFacts,
): HtmlFragment {
  const relied = cas.filter(({ agents }) => agents > 0)
  if (cas.length < 2 || relied.length === 0 || !hasCapability(facts, 'admin.enroll')) return EMPTY_HTML
  const options = (some: typeof cas): HtmlFragment =>
    joinHtml(
      some.map(
        ({ digest, subject }) =>
          html`<option value="${digest}">${subject} (${digest.slice(0, 12)}…)</option>`,
      ),
    )
  return html`<section class="card"><h2>Replace a CA</h2><p>A newly attached CA vouches for nobody who is already enrolled. Let it vouch for all agents of the old CA, and detach the old CA once they have SVIDs of the new one.</p>
${joinHtml(
  cas
    .filter(({ digest }) => relied.some((ca) => ca.digest !== digest))
    .map(
      ({ digest, subject }) =>
        html`<form method="post" action="/proxy/pki/${digest}/vouch">${csrf(facts.session)}<label>${subject} (${digest.slice(0, 12)}…) vouches for all agents of <select name="as">${options(relied.filter((ca) => ca.digest !== digest))}</select></label> <button>Vouch</button></form>`,
    ),
)}</section>`
}

export const pkiForms = (dashboard: DashboardContext) => {
  const to = (): string => '/proxy/pki'
  return {
    attach: formHandler(dashboard, OPERATIONS.cas.attach, {
      given: ({ form }: FormSubmission) => ({
        body: { ca_pem: form.get('ca_pem') ?? '', kind: form.get('kind') as 'spiffe' },
      }),
      to,
      notice: 'attached',
      leftOut: ([first]) => first?.passed_over,
    }),
    vouch: formHandler(dashboard, OPERATIONS.agents.trustCaAs, {
      given: ({ params, form }) => ({ body: { digest: params.digest ?? '', as: form.get('as') ?? '' } }),
      to,
      notice: 'trusted',
    }),
    detach: rehearsedFormHandler(dashboard, OPERATIONS.cas.detach, {
      title: () => 'No other CA vouches for some agents',
      label: 'Detach',
      given: ({ params, form }) => ({
        params: { digest: params.digest ?? '' },
        query: { lock_out: form.get('lock_out') === 'true' ? ('true' as const) : ('false' as const) },
      }),
      to,
      notice: 'detached',
    }),
  }
}
