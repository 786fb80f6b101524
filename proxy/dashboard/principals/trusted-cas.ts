import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { TrustedCasView } from '../../admin/principals/trusted-cas.ts'
import { type FormSubmission, formHandler, inputById } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
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
import { type GraceChoice, graceChoice, graceOf } from './ending.ts'
import type { PrincipalDetail } from './kinds.ts'

const { agents, cas } = OPERATIONS

export async function trustedCasCard(
  { context }: DashboardContext,
  { id, revision }: PrincipalDetail,
  now: boolean,
  facts: AdministrationFacts,
): Promise<HtmlFragment> {
  const { value } = await perform(agents.listTrustedCas, context, { params: { id } }, facts)
  const path = `${pathOf('agents', id)}/trusted-cas`
  const choice = { what: 'bundle', hours: context.rotationGraceHours, now }
  const form = html`<form method="post" action="${pathOf('agents', id)}/trust-bundle">${csrf(facts.session)}<input type="hidden" name="if_match" value="${`"${revision}"`}">`
  const rows = value.cas.map(
    (ca) =>
      html`<tr><td>${ca.subject}</td><td>${relativeTime(ca.not_after, facts.at)}</td><td>${relativeTime(ca.trusted_at, facts.at)} by ${ca.trusted_by ?? 'somebody unknown'}</td><td>${copyableCode(ca.digest)}</td><td>${button(facts, 'admin.enroll', `${path}/${ca.digest}/withdraw`, 'Withdraw')}</td></tr>`,
  )
  const { value: attached } = await perform(cas.list, context, {}, facts)
  const others = attached.filter(
    ({ kind, digest }) => kind === 'spiffe' && value.cas.every((ca) => ca.digest !== digest),
  )
  return html`<section class="card"><h2>CAs that vouch for it</h2>${bundleOf(value, facts.at)}${value.previous_bundles.length > 0 && button(facts, 'admin.enroll', `${pathOf('agents', id)}/trust-bundle/end`, 'End the replaced ones now', { if_match: `"${revision}"` })}<p>An SVID with its SPIFFE id is this agent if it chains to one of ${value.own_bundle ? 'its own CAs, or of these attached ones' : 'these attached CAs'}.</p>${dataTable(
    ['Subject', 'Ends', 'Since', 'Digest', ''],
    rows,
    value.own_bundle
      ? html`<p>No attached CA vouches for it.</p>`
      : html`<p>None: nobody can call as this agent.</p>`,
  )}${others.length === 0 || !hasCapability(facts, 'admin.enroll') ? EMPTY_HTML : trustForm(path, others, facts)}${hasCapability(facts, 'admin.enroll') ? html`${bundleForm(form, choice)}${followForm(form, choice, [...context.trustBundles().keys()])}` : EMPTY_HTML}</section>`
}

/** The CAs of its own, and those before them that are still honoured. */
function bundleOf(
  { own_bundle: isOwn, follows, bundle, previous_bundles: previous }: TrustedCasView,
  at: number,
) {
  const rows = [
    ...bundle.map((ca) => ownCaRow(ca, at, html``)),
    ...previous.flatMap(({ cas: replaced, valid_until: until }) =>
      replaced.map((ca) => ownCaRow(ca, at, html`replaced; honoured until ${relativeTime(until, at)}`)),
    ),
  ]
  if (!isOwn && rows.length === 0 && follows === null) return EMPTY_HTML
  return html`<h3>Its own trust bundle</h3>${follows === null ? EMPTY_HTML : html`<p>It follows <code>${follows.name}</code>, read ${relativeTime(follows.read_at, at)}.${follows.problem === null ? EMPTY_HTML : html` <span class="badge warn">cannot be read</span> ${follows.problem}`}</p>`}${dataTable(['Subject', 'Ends', 'Digest', ''], rows, EMPTY_HTML)}<h3>Attached CAs</h3>`
}

const ownCaRow = (ca: TrustedCasView['bundle'][number], at: number, state: HtmlFragment): HtmlFragment =>
  html`<tr><td>${ca.subject}</td><td>${relativeTime(ca.not_after, at)}</td><td>${copyableCode(ca.digest)}</td><td>${state}</td></tr>`

const bundleForm = (form: HtmlFragment, choice: GraceChoice): HtmlFragment =>
  html`${form}<label>Replace its trust bundle: all CAs of its trust domain, in PEM <textarea name="trust_bundle_pem" rows="6" required spellcheck="false"></textarea></label>${graceChoice(choice)}<p class="hint">Whoever holds the key of one of these CAs can call as this agent.</p><button>Replace</button></form>`

/** The form that has its bundle follow one of the configuration. */
const followForm = (form: HtmlFragment, choice: GraceChoice, names: readonly string[]): HtmlFragment =>
  names.length === 0
    ? EMPTY_HTML
    : html`${form}<label>Follow a trust bundle, which is read again by itself <select name="follow">${names.map((name) => html`<option>${name}</option>`)}</select></label>${graceChoice(choice)}<button>Follow</button></form>`

/** The form that pins the certificate that an agent's own CA has renewed. */
export const renewedLeafCard = (
  { id, revision }: PrincipalDetail,
  choice: Omit<GraceChoice, 'what'>,
  { session }: AdministrationFacts,
): HtmlFragment =>
  html`<section class="card"><h2>Its own certificate, renewed</h2><form method="post" action="${pathOf('agents', id)}/certificate">${csrf(session)}<input type="hidden" name="if_match" value="${`"${revision}"`}"><label>The certificate that its own CA has renewed, then intermediates, in PEM <textarea name="cert_pem" rows="6" required spellcheck="false"></textarea></label><label>A request that its key has signed: openssl req -new -key agent.key -subj /CN=renewal <textarea name="csr_pem" rows="6" required spellcheck="false"></textarea></label>${graceChoice({ what: 'certificate', ...choice })}<button>Pin</button></form></section>`

const bundleIn = ({ form }: FormSubmission) => {
  const follow = form.get('follow')
  return follow ? { follow } : { trust_bundle_pem: form.get('trust_bundle_pem') ?? '' }
}

const trustForm = (
  path: string,
  others: readonly { readonly digest: string; readonly subject: string }[],
  { session }: AdministrationFacts,
): HtmlFragment =>
  html`<form method="post" action="${path}">${csrf(session)}<label>Let another CA vouch for it <select name="digest">${others.map(
    ({ digest, subject }) => html`<option value="${digest}">${subject} (${digest.slice(0, 12)}…)</option>`,
  )}</select></label><p class="hint">Whoever holds the key of that CA can then call as this agent.</p><button>Vouch</button></form>`

/** POST /proxy/agents/{id}/trusted-cas, …/trusted-cas/{digest}/withdraw, …/trust-bundle and …/certificate. */
export const trustedCasForms = (dashboard: DashboardContext) => {
  const to = ({ params }: FormSubmission): string => pathOf('agents', params.id ?? '')
  return {
    trust: formHandler(dashboard, agents.trustCa, { fields: ['digest'], to, notice: 'trusted' }),
    distrust: rehearsedFormHandler(dashboard, agents.distrustCa, {
      title: ({ params }) => `No other CA vouches for ${params.id ?? ''}`,
      ...{ label: 'Withdraw', to, notice: 'distrusted' },
    }),
    bundle: formHandler(dashboard, agents.replaceTrustBundle, {
      given: (facts) => ({
        ...inputById(facts),
        body: { ...bundleIn(facts), ...graceOf(facts) },
      }),
      ...{ to, notice: 'bundle_replaced' },
      leftOut: ({ passed_over: blocks }) => blocks,
    }),
    endPrevious: formHandler(dashboard, agents.endPreviousBundles, { to, notice: 'bundle_ended' }),
    leaf: rehearsedFormHandler(dashboard, agents.putRenewedLeaf, {
      title: ({ params }) => `The certificate of ${params.id ?? ''} ends now`,
      given: (facts) => {
        const { form } = facts
        const leaf = { cert_pem: form.get('cert_pem') ?? '', csr_pem: form.get('csr_pem') ?? '' }
        return { ...inputById(facts), body: { ...leaf, ...graceOf(facts) } }
      },
      ...{ label: 'Pin', to, notice: 'leaf_pinned' },
    }),
  }
}
