import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { Reply } from '../../http/reply.ts'
import { seeOther } from '../../operators/pages/page.ts'
import type { FormSubmission } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { refusedPage } from '../frame/frame.ts'
import {
  copyableCode,
  csrf,
  EMPTY_HTML,
  factList as factsOf,
  type HtmlFragment,
  html,
  problemList,
} from '../frame/parts.ts'
import { caCertificate, FIRST_AGENT, setupStep } from './step.ts'

const { show, set } = OPERATIONS.organisation

type Organisation = Omit<Awaited<ReturnType<typeof show.run>>['value'], 'answered'>

/** GET /proxy/setup/organisation: the names that certificates will carry, until somebody has answered. */
export const organisationPage =
  (dashboard: DashboardContext) =>
  (facts: AdministrationFacts): Promise<Reply> =>
    onceOnly(facts, () => organisationStep(dashboard, facts, {}, EMPTY_HTML, 200))

/** POST /proxy/setup/organisation: stores the answer, and shows a CA that is made again. */
export const organisationForm =
  (dashboard: DashboardContext) =>
  (facts: FormSubmission): Promise<Reply> =>
    onceOnly(facts, async () => {
      const { form } = facts
      try {
        const done = await administerOnRecord(set, dashboard.context, { body: parseForm(form) }, facts)
        return 'value' in done && done.value.remade ? newCaStep(done.value) : seeOther(FIRST_AGENT)
      } catch (error) {
        if (!(error instanceof Refusal) || error.reason === 'conflict' || error.status >= 500) throw error
        return organisationStep(
          dashboard,
          facts,
          Object.fromEntries(form),
          problemList(error, nameOf),
          error.status,
        )
      }
    })

/** Values that were not shown are not sent, and stay. */
function parseForm(form: ReadonlyMap<string, string>) {
  const [org, domain, caPem] = [form.get('org'), form.get('trust_domain'), form.get('ca_pem') ?? '']
  // Its schema refuses any other value.
  const kind = (form.get('kind') ?? 'organisation') as 'organisation'
  return {
    ...(org !== undefined && { org }),
    ...(domain !== undefined && { trust_domain: domain }),
    ...(caPem.trim() !== '' && { attach: { ca_pem: caPem, kind } }),
  }
}

const nameOf = (field: string): string => field.replace('attach.', '')

/** Once it is answered there is nothing here, for ever. */
async function onceOnly(facts: AdministrationFacts, work: () => Promise<Reply>): Promise<Reply> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof Refusal && error.reason === 'conflict')) throw error
    return refusedPage(new Refusal('not_found', { message: ANSWERED }), facts)
  }
}

const ANSWERED = 'The organisation of this service has already been named: see Settings.'

async function organisationStep(
  { context }: DashboardContext,
  facts: AdministrationFacts,
  typed: Readonly<Record<string, string>>,
  problem: HtmlFragment,
  status: number,
): Promise<Reply> {
  const { value } = await perform(show, context, {}, facts)
  if (value.answered) throw new Refusal('conflict')
  const { organisation_fixed_by: orgBy, trust_domain_fixed_by: domainBy } = value
  const asks = orgBy === null || domainBy === null
  const fixed = [
    ...(orgBy === null
      ? []
      : [['Organisation', html`${value.organisation} ${fixedReason(orgBy, 'MCP_PROXY_ORG')}`] as const]),
    ...(domainBy === null
      ? []
      : [
          [
            'Trust domain',
            html`${value.trust_domain} ${fixedReason(domainBy, 'MCP_PROXY_TRUST_DOMAIN')}`,
          ] as const,
        ]),
  ]
  return setupStep(
    'Organisation',
    html`${problem}<p>Every id and certificate of this service contains two names. You can choose them now, and never again.</p>
${fixed.length > 0 && factsOf(fixed)}
<form method="post" action="/proxy/setup/organisation">${csrf(facts.session)}
${orgBy === null && html`<label>Organisation <input name="org" required maxlength="53" pattern="[a-zA-Z0-9._\\-]+" autocomplete="off" spellcheck="false" value="${typed.org ?? value.organisation}"></label>`}
${domainBy === null && html`<label>Trust domain <input name="trust_domain" required maxlength="255" pattern="[a-z0-9._\\-]+" autocomplete="off" spellcheck="false" value="${typed.trust_domain ?? value.trust_domain}"></label>`}
${
  asks &&
  html`<p class="faint">Letters, digits, <code>.</code> <code>_</code> <code>-</code>, no spaces; the trust domain in lower case. Agents will be called <code>${value.organisation}::name</code>, and <code>spiffe://${value.trust_domain}/${value.organisation}/name</code> in their certificates.</p>
<p>If you change a name, this service makes a new CA and a new certificate for itself: your browser will warn again.</p>`
}
${attachCaFields(typed)}
<button class="main">Continue</button></form>
${authority(value)}`,
    status,
  )
}

const fixedReason = (by: 'environment' | 'certificates', variable: string): HtmlFragment =>
  by === 'environment'
    ? html`<span class="faint">fixed: <code>${variable}</code> sets it</span>`
    : html`<span class="faint">fixed: somebody is already enrolled, and a new CA would lock out everybody who has a certificate of this one</span>`

const attachCaFields = ({ ca_pem: pem = '', kind }: Readonly<Record<string, string>>): HtmlFragment =>
  html`<details${pem === '' ? EMPTY_HTML : html` open`}><summary>Attach a CA that you have</summary>
<p class="faint">Its certificates are trusted for enrollment, in addition to those of this service. You can also do this later, under PKI.</p>
<label>Certificates of the CA, in PEM <textarea name="ca_pem" rows="6" spellcheck="false">${pem}</textarea></label>
<fieldset><legend>For</legend>${kindChoice('organisation', 'certificates of agents', kind !== 'spiffe')} ${kindChoice('spiffe', 'SPIFFE', kind === 'spiffe')}</fieldset></details>`

const kindChoice = (value: string, words: string, checked: boolean): HtmlFragment =>
  html`<label class="inline"><input type="radio" name="kind" value="${value}"${checked ? html` checked` : EMPTY_HTML}> ${words}</label>`

const authority = ({ ca_fingerprint: fingerprint }: Organisation): HtmlFragment =>
  html`<section class="card"><h2>The CA of this service</h2><p>${caCertificate('Its certificate')} is how clients and browsers recognise this service. SHA-256 of the certificate:</p><p>${copyableCode(fingerprint)}</p></section>`

const newCaStep = (value: Organisation): Reply =>
  setupStep(
    'Organisation',
    html`<p class="notice" role="status">This service now belongs to the organisation ${value.organisation}, in the trust domain ${value.trust_domain}.</p>
<section class="card needs-you"><h2>It has a new CA</h2>
<p>This page came over a connection that was opened before the change. The next connection uses a certificate of the new CA, and <strong>your browser will warn once more</strong>: it does not know that CA, and a certificate that you imported of the old CA no longer helps. To avoid the warning, import this certificate first. SHA-256 of the certificate:</p>
<p>${copyableCode(value.ca_fingerprint)}</p>
<p>${caCertificate('Download the CA certificate')}, or copy it:</p><pre class="copy" tabindex="0">${value.ca_pem}</pre></section>
<p><a class="button" href="${FIRST_AGENT}">Continue to the first agent</a></p>`,
  )
