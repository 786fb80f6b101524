import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { PRINCIPAL_KINDS } from '../../admin/operation/kinds.ts'
import { perform } from '../../admin/operation/operation.ts'
import { type CapabilitySuggestion, suggestCapabilities } from '../../admin/principals/capabilities.ts'
import { jsonReply, type Reply } from '../../http/reply.ts'
import { type FormSubmission, formHandler } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  button,
  capabilityTokens,
  countWithNoun,
  csrf,
  dataTable,
  type HtmlFragment,
  hasCapability,
  html,
} from '../frame/parts.ts'

const SETS = '/proxy/capabilities/sets'

/** The number of principals of each type, each with the list that it counts. */
const countLinks = (counts: Readonly<Record<string, number>>, q: string): HtmlFragment =>
  html`${Object.values(PRINCIPAL_KINDS).flatMap(({ type, plural }) => {
    const count = counts[type]
    return count === undefined
      ? []
      : [html`<a href="/proxy/${plural}?q=${encodeURIComponent(q)}">${countWithNoun(count, type)}</a> `]
  })}`

/** GET /proxy/capabilities/sets: named sets and labels, with whom they were given to, and who has drifted. */
export const setsPage: DashboardPage = async ({ context }, facts) => {
  const { sets } = (await perform(OPERATIONS.sets.list, context, {}, facts)).value
  const { labels } = (await perform(OPERATIONS.labels.list, context, {}, facts)).value
  return {
    title: 'Sets and labels',
    section: '/proxy/capabilities',
    body: html`<p>A named set is a template: what a principal holds stays its own list. Search a list, and <em>Change all that this search finds</em> gives a set to all of them; whoever has drifted gets it again the same way.</p>
${dataTable(
  ['Set', 'Capabilities', 'Given to', 'Drifted', ''],
  sets.map(
    ({ name, capabilities, principals, drifted }) =>
      html`<tr><td>${name}</td><td>${capabilityTokens(capabilities)}</td><td>${countLinks(principals, `set:${name}`)}</td><td>${countLinks(drifted, `set:${name} is:drifted`)}</td><td>${button(facts, 'admin.grant', `${SETS}/${name}/delete`, 'Delete')}</td></tr>`,
  ),
  html`<p>There are no named sets yet.</p>`,
)}
${hasCapability(facts, 'admin.grant') ? setForm(facts) : html`<p class="needs">Naming sets needs <code>admin.grant</code>.</p>`}
<h2>Labels</h2>
${dataTable(
  ['Label', 'On'],
  labels.map(
    ({ key, value, principals }) =>
      html`<tr><td><span class="token">${key}=${value}</span></td><td>${countLinks(principals, `label:${key}=${value}`)}</td></tr>`,
  ),
  html`<p>Nobody has a label yet. The page of each principal sets them.</p>`,
)}`,
  }
}

const setForm = ({ session }: Parameters<typeof hasCapability>[0]): HtmlFragment =>
  html`<details class="enroll"><summary>Name a set, or replace one</summary><form method="post" action="${SETS}">${csrf(session)}
<label>Name <input name="name" required maxlength="63" pattern="[a-z0-9][a-z0-9._\\-]*" autocomplete="off" placeholder="researcher"></label>
<label>Capabilities <input name="capabilities" class="caps" data-tokens="caller" autocomplete="off" placeholder="llm.chat, mcp.tools.list"></label>
<p class="faint">Nobody holds more or less by this.</p><button>Save the set</button></form></details>`

const tokensIn = ({ form }: FormSubmission): string[] =>
  (form.get('capabilities') ?? '')
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '')

export const setForms = (dashboard: DashboardContext) => {
  const { sets } = OPERATIONS
  return {
    put: formHandler(dashboard, sets.put, {
      given: (facts) => ({
        params: { name: facts.form.get('name') ?? '' },
        body: { capabilities: tokensIn(facts) },
      }),
      ...{ to: SETS, notice: 'updated' },
    }),
    delete: formHandler(dashboard, sets.delete, { to: SETS, notice: 'updated' }),
  }
}

/** GET /proxy/capabilities.json: a textbox's suggestions. */
export const capabilitiesJson =
  ({ context }: DashboardContext) =>
  async (facts: AdministrationFacts): Promise<Reply> =>
    jsonReply(200, (await perform(suggestCapabilities, context, {}, facts)).value)

const KINDS = { built_in: 'built in', tool: 'of a tool', operator: 'made by operators' } as const

/** The demand of each built-in token, besides the tools that name it. */
const BUILT_IN: Readonly<Record<string, string>> = {
  'llm.chat': 'every model call',
  'mcp.tools.list': 'tools/list',
  'mcp.tools.call': 'tools/call, if enforce_tools_call is on',
  'mcp.prompts.get': 'prompts of servers',
  'mcp.resources.read': 'resources of servers',
  'http.get': 'the built-in tool http.get',
}

/** The holders of each kind, each number with the list that it counts. */
const holdersOf = ({
  capability,
  holders,
}: Pick<CapabilitySuggestion, 'capability' | 'holders'>): HtmlFragment =>
  html`${Object.values(PRINCIPAL_KINDS).flatMap(({ type, plural }) => {
    const count = holders[type]
    const q = encodeURIComponent(`cap:${capability}`)
    return count === undefined
      ? []
      : [html`<a href="/proxy/${plural}?q=${q}">${countWithNoun(count, type).replace(' ', '\u00a0')}</a> `]
  })}`

/** GET /proxy/capabilities: who holds what, and what demands it. */
export const capabilitiesPage: DashboardPage = async ({ context }, facts) => {
  const { capabilities: known } = (await perform(suggestCapabilities, context, {}, facts)).value
  const demandersOf = ({ capability, demanded_by: demands }: (typeof known)[number]): HtmlFragment => {
    const own = capability.startsWith('admin.') ? 'administration' : BUILT_IN[capability]
    const all = own === undefined ? demands : [own, ...demands]
    return all.length === 0 ? html`<span class="faint">nothing here</span>` : html`${all.join(', ')}`
  }
  return {
    title: 'Capabilities',
    section: '/proxy/capabilities',
    body: html`<p><a href="/proxy/capabilities/sets">Named sets and labels</a></p>${dataTable(
      ['Capability', 'Kind', 'Held by', 'Required by'],
      known.map(
        (one) =>
          html`<tr><td><span class="token">${one.capability}</span></td><td>${KINDS[one.kind]}</td><td>${one.held_by === 0 ? html`<span class="faint">nobody</span>` : holdersOf(one)}</td><td>${demandersOf(one)}</td></tr>`,
      ),
      html``,
    )}`,
  }
}
