import { listCapabilitySets } from '../../../db/principals/sets.ts'
import { OPERATOR_SETS } from '../../../plugins/operators/capabilities.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { capabilityToEnroll } from '../../admin/operation/kinds.ts'
import { perform } from '../../admin/operation/operation.ts'
import { endsSoon } from '../../admin/principals/ending.ts'
import { hasDrifted } from '../../admin/principals/list.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  capabilityTokens,
  csrf,
  dataTable,
  EMPTY_HTML,
  exactTime,
  type HtmlFragment,
  hasCapability,
  html,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'
import { bulkForm } from './bulk.ts'
import type { ReadonlyPrincipalView } from './kinds.ts'
import { labelTexts, PRINCIPAL_PAGES, type PrincipalPlural } from './kinds.ts'

/** GET /proxy/{agents,users,workloads,operators}: the principals of a kind, newest first, with a search. */
export const listPage =
  (plural: PrincipalPlural): DashboardPage =>
  async (dashboard, facts) => {
    const { kind } = PRINCIPAL_PAGES[plural]
    const asked = new URLSearchParams(facts.query)
    const [q, cursor] = [asked.get('q')?.trim() ?? '', asked.get('cursor')]
    const query = { limit: '100', ...(q !== '' && { q }), ...(cursor !== null && { cursor }) }
    const { list, next } = await listOf(dashboard, plural, query, facts)
    const named = list.some((one) => one.capability_set !== null)
    const sets = named ? await listCapabilitySets(dashboard.context.database) : []
    const templates = new Map(sets.map(({ name, capabilities }) => [name, capabilities]))
    const enroll = capabilityToEnroll(kind)
    const older = next?.cursor
    return {
      title: plural[0]?.toUpperCase() + plural.slice(1),
      section: `/proxy/${plural}`,
      body: html`<form class="search" role="search" action="/proxy/${plural}"><input type="search" name="q" value="${q}" aria-label="Search" placeholder="name, cap:llm.chat, expires:30d, unused:30d, denied:today, is:keyless, label:team=red" data-key="/"><button>Search</button></form>
${dataTable(
  ['Name', 'Holds', 'Certificate ends', 'Last seen', ''],
  list.map((one) => lineOf(plural, one, { at: facts.at, templates })),
  q === ''
    ? html`<p>There are no ${plural} yet.</p><p>Enroll one below${commandHint(plural)}.</p>`
    : html`<p>No ${kind.type} matches <code>${q}</code>. <a href="/proxy/${plural}">All ${plural}</a></p>`,
)}
${older !== undefined && html`<p><a rel="next" href="?${new URLSearchParams({ ...(q !== '' && { q }), cursor: older ?? '' }).toString()}">Older</a></p>`}
${plural !== 'operators' && q !== '' && hasCapability(facts, 'admin.grant') ? bulkForm(plural, q, facts) : EMPTY_HTML}
${hasCapability(facts, enroll) ? enrollForm(plural, facts.session) : html`<p class="needs">Enrolling needs <code>${enroll}</code>.</p>`}`,
    }
  }

const MADE_BY: Readonly<Partial<Record<PrincipalPlural, string>>> = {
  agents: 'make agent NAME=my-agent CAPS=llm.chat',
  operators: 'make operator NAME=alice ROLE=granter',
}

const commandHint = (plural: PrincipalPlural): HtmlFragment => {
  const command = MADE_BY[plural]
  return command === undefined
    ? EMPTY_HTML
    : html`, or on the machine: <code class="copy" tabindex="0">${command}</code>`
}

interface PrincipalListQuery {
  readonly limit: string
  readonly q?: string
  readonly cursor?: string
}

/** The API lists agents as they are, and others by their kind (docs/protocol.md#principals). */
async function listOf(
  { context }: DashboardContext,
  plural: PrincipalPlural,
  query: PrincipalListQuery,
  facts: AdministrationFacts,
) {
  if (plural === 'agents') {
    const { value, next } = await perform(OPERATIONS.agents.list, context, { query }, facts)
    return { list: value, next }
  }
  const { value, next } = await perform(PRINCIPAL_PAGES[plural].operations.list, context, { query }, facts)
  return { list: value[plural] ?? [], next }
}

export const idIn = ({ agent_id: agent, principal_id: other }: ReadonlyPrincipalView): string =>
  agent ?? other ?? ''

interface ListGround {
  readonly at: number
  /** The capabilities of the named sets. */
  readonly templates: ReadonlyMap<string, readonly string[]>
}

const lineOf = (
  plural: PrincipalPlural,
  one: ReadonlyPrincipalView,
  { at, templates }: ListGround,
): HtmlFragment =>
  html`<tr${one.is_active ? EMPTY_HTML : html` class="off"`}><td><a class="row" href="${pathOf(plural, idIn(one))}">${one.display_name || one.name}</a>${
    one.display_name ? html` <span class="faint">${one.name}</span>` : EMPTY_HTML
  } <span class="faint">${[...labelTexts(one.labels), one.capability_set ?? ''].join(' ').trim()}</span></td><td>${capabilityTokens(one.capabilities.slice(0, 6))}${one.capabilities.length > 6 ? html`<span class="faint">and ${String(one.capabilities.length - 6)} more</span>` : EMPTY_HTML}</td><td>${certificateOf(one, at)}</td><td>${exactTime(one.last_seen_at, at)}</td><td>${badgesOf(one, { at, templates })}</td></tr>`

function certificateOf(
  { cert_not_after: end, previous_cert_until: before }: ReadonlyPrincipalView,
  at: number,
): HtmlFragment {
  const own = end === null ? html`<span class="faint">none</span>` : relativeTime(end, at)
  return before !== null && Date.parse(before) > at
    ? html`${own} <span class="faint">the one before until ${relativeTime(before, at)}</span>`
    : own
}

/** Only unusual states. */
function badgesOf(one: ReadonlyPrincipalView, { at, templates }: ListGround): readonly HtmlFragment[] {
  const badge = (text: string, kind = 'warn'): HtmlFragment =>
    html`<span class="badge ${kind}">${text}</span> `
  return [
    ...(one.is_active ? [] : [badge('inactive', 'off')]),
    ...(one.capabilities.length === 0 ? [badge('no capabilities', 'off')] : []),
    ...(hasDrifted(one.capabilities, templates.get(one.capability_set ?? '')) ? [badge('drifted')] : []),
    ...(endsSoon(one.cert_not_after, at) ? [badge('expires soon')] : []),
    ...(one.principal_type !== 'operator' && one.dpop_jkt === null ? [badge('no proof key', 'off')] : []),
  ]
}

/** A click puts a set into the form; without a script each is there to read. */
const readyMadeSets = (): HtmlFragment =>
  html`<fieldset><legend>Ready-made sets</legend>${Object.entries(OPERATOR_SETS).map(
    ([name, set]) =>
      html`<p><b data-set="${set.join(', ')}">${name}</b> ${SET_MEANINGS[name] ?? ''}<br>${capabilityTokens(set)}</p>`,
  )}</fieldset>`

const SET_MEANINGS: Readonly<Record<string, string>> = {
  viewer: 'looks, and changes nothing.',
  granter: 'enrolls callers and says what they may do.',
  auditor: 'reads, exports and verifies the ledger.',
  owner: 'does everything, and makes other operators.',
}

const ITS_CERTIFICATE: Readonly<Partial<Record<PrincipalPlural, string>>> = {
  agents: 'Its certificate and key are shown once, on the next page.',
  operators: 'It gets its certificate by an invitation, a link, or with a certificate request.',
}

function enrollForm(plural: PrincipalPlural, session: Parameters<typeof csrf>[0]): HtmlFragment {
  const { kind } = PRINCIPAL_PAGES[plural]
  const summary =
    plural === 'agents'
      ? 'Enroll an agent'
      : `Enroll ${kind.type === 'user' || kind.type === 'workload' ? 'a' : 'an'} ${kind.type}`
  return html`<details class="enroll"><summary>${summary}</summary><form method="post" action="/proxy/${plural}">${csrf(session)}
<label>Name <input name="${kind.nameField}" required maxlength="64" pattern="[a-zA-Z0-9._\\-]+" autocomplete="off"></label>
<label>Shown as <input name="display_name" maxlength="256" autocomplete="off"></label>
<label>Capabilities <input name="capabilities" class="caps" data-tokens="${kind.type === 'operator' ? 'operator' : 'caller'}" autocomplete="off" placeholder="${kind.type === 'operator' ? 'admin.read, admin.grant' : 'llm.chat, mcp.tools.list'}"></label>
${plural === 'operators' && readyMadeSets()}<p class="faint">${ITS_CERTIFICATE[plural] ?? 'It gets its certificate with a certificate request.'} Without capabilities it can do nothing.</p>
<button>${summary}</button>${plural === 'operators' && html` <button name="invite" value="yes">Enroll, and make an invitation</button>`}</form></details>`
}
