import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { CaRotationView } from '../../admin/authority/rotation.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { PRINCIPAL_KINDS } from '../../admin/operation/kinds.ts'
import { etagOf, perform } from '../../admin/operation/operation.ts'
import { endsSoon } from '../../admin/principals/ending.ts'
import { formHandler } from '../frame/acting.ts'
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
  pathOf,
  relativeTime,
} from '../frame/parts.ts'
import { rehearsedFormHandler } from '../rehearsed/acting-rehearsed.ts'

const PATH = '/proxy/pki/rotation'

/** Shows the service's own CA, and the one beside it while it is replaced: phase, dates, fingerprints, holders. */
function ownCaCard(rotation: CaRotationView, etag: string, facts: AdministrationFacts): HtmlFragment {
  const { phase, issuing, other } = rotation
  const rows = [
    caRow(phase === 'issuing' ? 'new, issues' : 'issues', issuing, facts),
    ...(other ? [caRow(phase === 'issuing' ? 'old, still trusted' : 'next', other, facts)] : []),
  ]
  return html`<section class="card"><h2>This organisation's CA</h2>
<p>Clients verify this service with it. <a href="/pki/ca.crt" download="sallyport-ca.crt">Export the CA certificate</a> · <a href="/pki/ca-chain.pem" download="sallyport-ca-chain.pem">the whole chain</a></p>
${dataTable(['CA', 'Root ends', 'Intermediate ends', 'Root, SHA-256', 'Intermediate, SHA-256'], rows, EMPTY_HTML)}
${holdersText(rotation)}${stepForms(rotation, etag, facts)}
<p class="faint">On the machine: <code class="copy" tabindex="0">make ca-export</code></p></section>`
}

const caRow = (name: string, ca: CaRotationView['issuing'], { at }: AdministrationFacts): HtmlFragment =>
  html`<tr><td>${name}</td><td>${relativeTime(ca.root_not_after, at)}</td><td>${relativeTime(ca.intermediate_not_after, at)}</td><td>${copyableCode(ca.root_sha256)}</td><td>${copyableCode(ca.intermediate_sha256)}</td></tr>`

function holdersText({ holders }: CaRotationView): HtmlFragment {
  if (holders === null) return EMPTY_HTML
  const { active, in_grace: grace, inactive, principals } = holders
  return html`<p>Hold certificates of the old CA: <strong>${String(active)}</strong> active, ${String(grace)} with a newer one, ${String(inactive)} inactive. <a href="/proxy/agents?q=ca:old">Agents that do</a></p>
${
  principals.length === 0
    ? EMPTY_HTML
    : html`<ul>${principals.map(
        ({ principal_type: type, principal_id: id }) =>
          html`<li><a href="${pathOf(PRINCIPAL_KINDS[type].plural, id)}">${id}</a></li>`,
      )}</ul>`
}`
}

const reasonField = (label: string): HtmlFragment =>
  html`<label>${label} <input name="force_reason" maxlength="500"></label> `

/** The steps that can be taken now. */
function stepForms(
  { phase, holders }: CaRotationView,
  etag: string,
  facts: AdministrationFacts,
): HtmlFragment {
  if (!hasCapability(facts, 'admin.settings'))
    return html`<p class="needs">Replacing the CA needs <code>admin.settings</code>.</p>`
  const form = (name: string, label: string, more: HtmlFragment = EMPTY_HTML): HtmlFragment =>
    html`<form method="post" action="${PATH}/${name}">${csrf(facts.session)}<input type="hidden" name="if_match" value="${etag}">${more}<button>${label}</button></form>`
  if (phase === 'none')
    return html`<details><summary>Replace the CA</summary><p>Prepare makes the next CA. Both are trusted and exported from then on; certificates still come from this one. It can be taken back.</p>
${form('prepare', 'Prepare', html`<label class="inline"><input type="radio" name="scope" value="root" checked> root and intermediate</label> <label class="inline"><input type="radio" name="scope" value="intermediate"> intermediate alone</label> `)}</details>`
  if (phase === 'prepared')
    return html`<p>Issue has the next CA sign all certificates from now on, the service's own too. Old ones are accepted and renewed at once.</p>
${form('issue', 'Issue')} ${form('cancel', 'Cancel', reasonField('Reason, if somebody has a certificate of the next CA already'))}`
  const reason =
    holders !== null && holders.active > 0
      ? reasonField(`Why ${String(holders.active)} shall lose access`)
      : EMPTY_HTML
  return html`<p>Finish ends the old CA and every certificate of it, at once and for good.</p>
${form('finish', 'Finish', reason)} ${form('cancel', 'Take back')}`
}

/** POST /proxy/pki/rotation/{step}. */
export const rotationForms = (dashboard: DashboardContext) => {
  const to = '/proxy/pki'
  const { prepare, issue, finish, cancel } = OPERATIONS.caRotation
  return {
    prepare: formHandler(dashboard, prepare, {
      given: ({ form }) => ({
        body: { scope: form.get('scope') === 'intermediate' ? ('intermediate' as const) : ('root' as const) },
        ifMatch: form.get('if_match'),
      }),
      ...{ to, notice: 'ca_prepared' },
    }),
    issue: formHandler(dashboard, issue, { to, notice: 'ca_issued' }),
    finish: formHandler(dashboard, finish, { to, notice: 'ca_finished' }),
    cancel: formHandler(dashboard, cancel, { to, notice: 'ca_cancelled' }),
  }
}

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
          html`<tr><td>${kind}</td><td>${subject}</td><td>${relativeTime(end, facts.at)}${endsSoon(end, facts.at) && html` <span class="badge warn">ends soon</span>`}</td><td>${relativeTime(since, facts.at)}</td><td>${kind === 'spiffe' ? reliance(agents, alone) : ''}</td><td>${copyableCode(digest)}</td><td>${detachForm(facts, digest, alone)}</td></tr>`,
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
    html`${some.map(
      ({ digest, subject }) => html`<option value="${digest}">${subject} (${digest.slice(0, 12)}…)</option>`,
    )}`
  return html`<section class="card"><h2>Replace a CA</h2><p>A newly attached CA vouches for nobody who is already enrolled. Let it vouch for all agents of the old CA, and detach the old CA once they have SVIDs of the new one.</p>
${cas
  .filter(({ digest }) => relied.some((ca) => ca.digest !== digest))
  .map(
    ({ digest, subject }) =>
      html`<form method="post" action="/proxy/pki/${digest}/vouch">${csrf(facts.session)}<label>${subject} (${digest.slice(0, 12)}…) vouches for all agents of <select name="as">${options(relied.filter((ca) => ca.digest !== digest))}</select></label> <button>Vouch</button></form>`,
  )}</section>`
}

export const pkiForms = (dashboard: DashboardContext) => {
  const to = '/proxy/pki'
  return {
    attach: formHandler(dashboard, OPERATIONS.cas.attach, {
      ...{ fields: ['ca_pem', 'kind'], to, notice: 'attached' },
      leftOut: ([first]) => first?.passed_over,
    }),
    vouch: formHandler(dashboard, OPERATIONS.agents.trustCaAs, {
      given: ({ params, form }) => ({ body: { digest: params.digest ?? '', as: form.get('as') ?? '' } }),
      ...{ to, notice: 'trusted' },
    }),
    detach: rehearsedFormHandler(dashboard, OPERATIONS.cas.detach, {
      title: () => 'No other CA vouches for some agents',
      label: 'Detach',
      given: ({ params, form }) => ({
        params: { digest: params.digest ?? '' },
        query: { lock_out: form.get('lock_out') === 'true' ? ('true' as const) : ('false' as const) },
      }),
      ...{ to, notice: 'detached' },
    }),
  }
}
