import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { PRINCIPAL_KINDS } from '../../admin/operation/kinds.ts'
import { perform } from '../../admin/operation/operation.ts'
import { type CapabilitySuggestion, suggestCapabilities } from '../../admin/principals/capabilities.ts'
import { jsonReply, type Reply } from '../../http/reply.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import { countWithNoun, dataTable, type HtmlFragment, html, joinHtml } from '../frame/parts.ts'

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
  joinHtml(
    Object.values(PRINCIPAL_KINDS).flatMap(({ type, plural }) => {
      const count = holders[type]
      const q = encodeURIComponent(`cap:${capability}`)
      return count === undefined
        ? []
        : [html`<a href="/proxy/${plural}?q=${q}">${countWithNoun(count, type).replace(' ', '\u00a0')}</a> `]
    }),
  )

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
