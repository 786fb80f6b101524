import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { capabilityToEnroll, capabilityToGrant, PRINCIPAL_KINDS } from '../../admin/operation/kinds.ts'
import { type OperationResult, perform } from '../../admin/operation/operation.ts'
import { endsSoon } from '../../admin/principals/ending.ts'
import { callLines, callsOf } from '../activity/calls.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  button,
  copyableCode,
  countWithNoun,
  csrf,
  dataTable,
  EMPTY_HTML,
  exactTime,
  factList as factsOf,
  type HtmlFragment,
  hasCapability,
  html,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'
import { clientSnippets } from '../frame/snippets.ts'
import { accountsCard } from './accounts.ts'
import { candidateCard } from './candidate.ts'
import { capabilitiesCard, type TypedCapabilities } from './capabilities-card.ts'
import { type GraceChoice, graceChoice, isInIncident } from './ending.ts'
import { grantsCard } from './grants.ts'
import { inviteButton } from './invited.ts'
import {
  type CallerPlural,
  labelTexts,
  PRINCIPAL_PAGES,
  type PrincipalDetail,
  type PrincipalPlural,
  readPrincipalDetail,
} from './kinds.ts'
import { renewedLeafCard, trustedCasCard } from './trusted-cas.ts'
import { whatIfCard } from './what-if.ts'

/** GET /proxy/agents/{id}/first-call: whether an agent has called yet. A script asks again until it has. */
export const firstCallPage: DashboardPage = async (dashboard, facts) => {
  const { id = '' } = facts.params
  const { calls } = await callsOf(dashboard, facts, { principal: id, most: 1, noise: true, callsAlone: true })
  return {
    title: 'First call',
    section: '/proxy/agents',
    body:
      calls.length === 0
        ? html`<p id="first-call" role="status">Waiting for the first call… <a href="">Check again</a></p>`
        : html`<div id="first-call" data-arrived role="status"><p class="notice">The first call has arrived.</p>${callLines(calls, facts.at, html``)}<p><a href="${pathOf('agents', id)}">See the agent</a></p></div>`,
  }
}

export const detailPage =
  (plural: PrincipalPlural): DashboardPage =>
  async (dashboard, facts) => {
    const one = await readPrincipalDetail(dashboard, plural, facts.params.id ?? '', facts)
    // A token that a refused call lacked, or a whole set, is typed in; nothing is changed by that.
    const asked = new URLSearchParams(facts.query)
    const wanted = asked.get('add')
    const text =
      asked.get('set') ?? [...new Set([...one.value.capabilities, ...(wanted ? [wanted] : [])])].join(', ')
    return {
      title: one.value.display_name || one.value.name,
      section: `/proxy/${plural}`,
      body: await detailBody(dashboard, plural, one, facts, { text }),
    }
  }

export async function detailBody(
  dashboard: DashboardContext,
  plural: PrincipalPlural,
  one: PrincipalDetail,
  facts: AdministrationFacts,
  typed: TypedCapabilities,
): Promise<HtmlFragment> {
  const { value, id } = one
  const { at } = facts
  const enroll = capabilityToEnroll(PRINCIPAL_PAGES[plural].kind)
  const path = pathOf(plural, id)
  const fields = { if_match: `"${one.revision}"` }
  const { operations } = PRINCIPAL_PAGES[plural]
  const { context } = dashboard
  const given = { params: { id } }
  const { value: certificates } = await perform(operations.listCertificates, context, given, facts)
  const now = await isInIncident(context, one, facts)
  return html`${capabilitiesCard(plural, one, facts, typed)}
${plural === 'operators' ? html`` : await candidateCard(dashboard, plural, one, facts)}
<section class="card"><h2>Who it is</h2>${factsOf([
    ['Id', copyableCode(id)],
    ['State', value.is_active ? 'active' : html`<span class="badge off">inactive</span>`],
    [
      'Enrolled',
      html`${relativeTime(value.created_at, at)} by ${value.created_by ?? 'somebody unknown'}, ${value.enrollment_method}`,
    ],
    ['Changed', html`${relativeTime(value.updated_at, at)} by ${value.changed_by ?? 'somebody unknown'}`],
    ['Last seen', exactTime(value.last_seen_at, at)],
    ...certificates.map(certificateFact(one, facts)),
    ...(certificates[0]?.current ? [] : [['Certificate', 'none'] as const]),
    [
      'Ends',
      html`${relativeTime(value.cert_not_after, at)} ${endsSoon(value.cert_not_after, at) && html`<span class="badge warn">renew it</span>`}`,
    ],
    [
      'Proof key',
      value.dpop_jkt === null ? await keyless(dashboard, plural, one, facts) : copyableCode(value.dpop_jkt),
    ],
    ...previousKeyFact(one, facts),
    ['Labels', labelsField(path, one, facts)],
    ...(value.capability_set === null
      ? []
      : [['Named set', html`<a href="/proxy/capabilities/sets">${value.capability_set}</a>`] as const]),
    ['SPIFFE id', value.spiffe_id === null ? 'none' : copyableCode(value.spiffe_id)],
  ])}
${hasCapability(facts, enroll) ? rotateForm(path, one, { what: 'certificate', hours: context.rotationGraceHours, now }, facts) : html`<p class="needs">Rotating the certificate needs <code>${enroll}</code></p>`}
${!value.is_active && certificates.length > 0 && html`<p>Once it is reactivated, each of its certificates above counts again: end those that may be in other hands, or rotate first.</p>`}<p>${value.is_active ? button(facts, enroll, `${path}/deactivate`, 'Deactivate', fields) : button(facts, enroll, `${path}/reactivate`, 'Reactivate', fields)}</p>
${plural === 'operators' ? (value.is_active ? inviteButton(facts, id, one.revision) : EMPTY_HTML) : eraseLink(plural, id, facts)}</section>
${value.enrollment_method === 'byoca' && hasCapability(facts, enroll) && renewedLeafCard(one, { hours: context.rotationGraceHours, now }, facts)}
${value.enrollment_method === 'spiffe' ? await trustedCasCard(dashboard, one, now, facts) : html``}
${plural === 'agents' && html`<details class="card"><summary>Connect</summary>${clientSnippets(dashboard, value.name)}</details>`}
${plural !== 'operators' && html`<section class="card" id="usage" data-load="${path}/usage" data-also="held"><h2>Used in the last 30 days</h2><p><a href="${path}/usage">Which capabilities its calls required</a></p></section>`}
${plural !== 'operators' && html`<section class="card" id="limits" data-load="${ownPage('limits', id)}"><h2>Limits of its calls</h2><p><a href="${ownPage('limits', id)}">What bounds its calls</a></p></section>`}
${plural !== 'operators' && hasCapability(facts, 'admin.audit') && html`<section class="card" id="costs" data-load="${ownPage('costs', id)}"><h2>Costs of this month</h2><p><a href="${ownPage('costs', id)}">What its calls cost</a></p></section>`}
${plural === 'operators' ? html`` : whatIfCard(path)}
${plural === 'operators' ? html`` : await bindingsOf(dashboard, id, facts)}
${plural !== 'operators' && context.accounts ? await accountsCard(dashboard, plural, id, facts) : html``}
${plural === 'users' ? await grantsCard(dashboard, id, facts) : html``}
${await recentCalls(dashboard, id, facts)}`
}

const ownPage = (page: 'costs' | 'limits', principal: string): string =>
  `/proxy/${page}?${new URLSearchParams({ principal }).toString()}`

type ListedCertificates = OperationResult<
  { cert_thumbprint: string; cert_not_after: string; current: boolean; honoured_until: string | null }[]
>['value']

/** One certificate that counts, until when, and the button that ends it. */
const certificateFact =
  ({ id, value, revision }: PrincipalDetail, facts: AdministrationFacts) =>
  ({
    cert_thumbprint: thumbprint,
    current,
    honoured_until: until,
  }: ListedCertificates[number]): readonly [string, HtmlFragment] => {
    const kind = PRINCIPAL_KINDS[value.principal_type]
    const path = `${pathOf(kind.plural, id)}/certificates/${thumbprint}/end`
    const end = button(facts, capabilityToEnroll(kind), path, 'End it now', { if_match: `"${revision}"` })
    return [
      current ? 'Certificate' : 'Certificate before',
      html`${copyableCode(thumbprint)} ${current ? html`` : html`<span class="badge warn">accepted until ${until ?? ''}</span> ${relativeTime(until, facts.at)} `}${end}`,
    ]
  }

/** The keys that sign the calls of somebody who has registered none, each to be adopted by a click. */
async function keyless(
  { context }: DashboardContext,
  plural: PrincipalPlural,
  { id, revision }: PrincipalDetail,
  facts: AdministrationFacts,
): Promise<HtmlFragment> {
  const none = html`<span class="faint">none is registered: its certificate alone is enough, and any key may sign its proofs</span>`
  if (plural === 'operators' || !hasCapability(facts, 'admin.audit')) return none
  const { kind, operations } = PRINCIPAL_PAGES[plural]
  const { value } = await perform(operations.listProofKeys, context, { params: { id } }, facts)
  const { keys, unsigned_calls: unsigned } = value
  if (keys.length === 0) return none
  const others = keys.length - 1 + unsigned
  const said = html`<span class="badge warn">No proof key</span> Of its newest calls, these were signed. Once a key is adopted, no other opens anything${others > 0 && html`, and calls without a proof are refused: <b>${keys.length > 1 ? 'more than one key signs here, so find out first whose each is' : `${countWithNoun(unsigned, 'call')} came without one`}</b>`}.`
  return html`${said}${keys.map(({ dpop_jkt: jkt, calls, last_at: last, request_ids: requests }) => {
    const adopt = button(
      facts,
      capabilityToEnroll(kind),
      `${pathOf(plural, id)}/dpop-jwk/${jkt}/adopt`,
      'Adopt it',
      {
        if_match: `"${revision}"`,
      },
    )
    return html`<p>${copyableCode(jkt)} ${countWithNoun(calls, 'call')}, last ${relativeTime(last, facts.at)} ${requests.map((request) => html`<a href="/proxy/activity/${request}" title="${request}">why</a> `)}${adopt}</p>`
  })}`
}

function previousKeyFact(
  { id, value, revision }: PrincipalDetail,
  facts: AdministrationFacts,
): readonly (readonly [string, HtmlFragment])[] {
  const { previous_dpop_jkt: jkt, previous_dpop_jkt_until: until } = value
  if (jkt === null || until === null || Date.parse(until) <= facts.at) return []
  const kind = PRINCIPAL_KINDS[value.principal_type]
  const path = `${pathOf(kind.plural, id)}/dpop-jwk/${jkt}/end`
  const end = button(facts, capabilityToEnroll(kind), path, 'End it now', { if_match: `"${revision}"` })
  const state = html`<span class="badge warn">accepted until ${until}</span> ${relativeTime(until, facts.at)}`
  return [['Proof key before', html`${copyableCode(jkt)} ${state} ${end}`]]
}

const rotateForm = (
  path: string,
  { value, revision }: PrincipalDetail,
  choice: GraceChoice,
  { session }: AdministrationFacts,
): HtmlFragment =>
  html`<form method="post" action="${path}/rotate-cert">${csrf(session)}<input type="hidden" name="if_match" value="${`"${revision}"`}">${value.cert_thumbprint !== null && graceChoice(choice)}<label class="inline"><input type="checkbox" name="proof_key" value="new"${choice.now && value.dpop_jkt !== null && html` checked`}> with a new proof key</label> <button>${value.cert_thumbprint === null ? 'Make a certificate' : 'Rotate the certificate'}</button></form>`

/** The labels, and the form that replaces them for whoever may. */
const labelsField = (path: string, { value, revision }: PrincipalDetail, facts: AdministrationFacts) => {
  const text = labelTexts(value.labels).join(', ')
  if (!hasCapability(facts, capabilityToGrant(PRINCIPAL_KINDS[value.principal_type]))) return text || 'none'
  return html`<form method="post" action="${path}/labels" class="inline">${csrf(facts.session)}<input type="hidden" name="if_match" value="${`"${revision}"`}"><input name="labels" value="${text}" aria-label="Labels" placeholder="team=red, env=prod" autocomplete="off"> <button>Label</button></form>`
}

const eraseLink = (plural: CallerPlural, id: string, facts: AdministrationFacts): HtmlFragment =>
  hasCapability(facts, capabilityToEnroll(PRINCIPAL_PAGES[plural].kind))
    ? html`<p><a href="${pathOf(plural, id)}/erase">Erase…</a></p>`
    : html`<p class="needs">Erasing needs <code>${capabilityToEnroll(PRINCIPAL_PAGES[plural].kind)}</code></p>`

async function bindingsOf(
  { context }: DashboardContext,
  principal: string,
  facts: AdministrationFacts,
): Promise<HtmlFragment> {
  const query = { agent_id: principal }
  const { value } = await perform(OPERATIONS.mcpBindings.list, context, { query }, facts)
  return html`<section class="card"><h2>Bound to</h2>${dataTable(
    ['Server', 'Since', 'By', ''],
    value.map((one) => {
      const server = pathOf('tools', one.resource_id)
      return html`<tr><td><a href="${server}">${one.resource_name}</a></td><td>${relativeTime(one.created_at, facts.at)}</td><td>${one.created_by ?? ''}</td><td>${button(facts, 'admin.grant', `${server}/bindings/${one.binding_id}/revoke`, 'Unbind')}</td></tr>`
    }),
    html`<p>It reaches no MCP server. <a href="/proxy/tools">Bind it to one</a></p>`,
  )}</section>`
}

async function recentCalls(
  dashboard: DashboardContext,
  principal: string,
  facts: AdministrationFacts,
): Promise<HtmlFragment> {
  if (!hasCapability(facts, 'admin.audit'))
    return html`<section class="card"><h2>Recent calls</h2><p class="needs">Seeing them needs <code>admin.audit</code>.</p></section>`
  const { calls } = await callsOf(dashboard, facts, { principal, most: 10, noise: true })
  return html`<section class="card"><h2>Recent calls</h2>${callLines(calls, facts.at, html`<p>It has made no calls yet.</p>`)}<p><a href="/proxy/activity?${new URLSearchParams({ principal }).toString()}">All of its calls</a></p></section>`
}
