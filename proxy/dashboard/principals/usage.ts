import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { CapabilityUsage } from '../../admin/rehearsals/usage.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  capabilityTokens,
  dataTable,
  type HtmlFragment,
  hasCapability,
  html,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'
import type { CallerPlural } from './kinds.ts'
import { readPrincipalDetail } from './kinds.ts'

/** GET /proxy/{kind}/{id}/usage: which capabilities its calls demanded, and which it holds in vain. */
export const usagePage =
  (plural: CallerPlural): DashboardPage =>
  async (dashboard, facts) => {
    const one = await readPrincipalDetail(dashboard, plural, facts.params.id ?? '', facts)
    const given = { params: { id: one.id }, query: {} }
    const { value } = await perform(OPERATIONS[plural].usage, dashboard.context, given, facts)
    const path = pathOf(plural, one.id)
    return {
      title: `Used by ${one.value.display_name || one.value.name}`,
      section: `/proxy/${plural}`,
      body: html`${renderHeldUsage(value, one.value.capabilities, facts)}
<section class="card" id="usage"><h2>Used in the last 30 days</h2>
<p>${value.decisions.toLocaleString('en')} calls. ${value.unused.length > 0 ? '' : 'It used every capability that it holds.'} ${value.missing.length > 0 && html`Refused because it lacked: ${capabilityTokens(value.missing)}`}</p>
${dataTable(
  ['Capability', 'Allowed', 'Refused', 'Last', 'For'],
  value.capabilities.map(
    ({ capability, held: holds, allowed, denied, last_allowed_at: last, tools, models }) =>
      html`<tr><td><span class="token">${capability}</span>${!holds && html` <span class="badge off">not held</span>`}</td><td class="number">${String(allowed)}</td><td class="number">${String(denied)}</td><td>${relativeTime(last, facts.at)}</td><td>${[...tools, ...models].join(', ')}</td></tr>`,
  ),
  html`<p>It has made no calls in the last 30 days.</p>`,
)}
${suggestedOf(value, path, facts)}</section>
<p><a href="${path}">Back</a></p>`,
    }
  }

type SuggestedSet = Pick<CapabilityUsage, 'suggested'> | { readonly suggested: readonly string[] }

function renderHeldUsage(
  {
    capabilities,
  }: {
    readonly capabilities: readonly Pick<
      CapabilityUsage['capabilities'][number],
      'capability' | 'last_allowed_at' | 'granted_at'
    >[]
  },
  held: readonly string[],
  { at }: AdministrationFacts,
): HtmlFragment {
  if (held.length === 0) return html`<p id="held">${capabilityTokens([])}</p>`
  const known = new Map(capabilities.map((one) => [one.capability, one]))
  return html`<ul id="held" class="held">${held.map((token) => {
    const { last_allowed_at: last = null, granted_at: since = null } = known.get(token) ?? {}
    return html`<li><span class="token">${token}</span> ${last === null ? unusedBadge(since, at) : html`<span class="badge">used ${relativeTime(last, at)}</span>`}</li>`
  })}</ul>`
}

const JUST_NOW_MS = 3_600_000

const unusedBadge = (since: string | null, at: number): HtmlFragment => {
  if (since === null) return html`<span class="badge off">unused for 30 days</span>`
  const when =
    at - Date.parse(since) < JUST_NOW_MS
      ? html`<time datetime="${since}" title="${since}">just now</time>`
      : relativeTime(since, at)
  return html`<span class="badge">granted ${when}, not used yet</span>`
}

function suggestedOf({ suggested }: SuggestedSet, path: string, facts: AdministrationFacts): HtmlFragment {
  const text = suggested.join(', ')
  const typed = `${path}?${new URLSearchParams({ set: text }).toString()}`
  return html`<p>The smallest set that would have allowed every call that was allowed: <code class="copy" tabindex="0">${text || 'nothing'}</code> ${hasCapability(facts, 'admin.grant') && html`<a href="${typed}">Put it into the form</a>`}</p>`
}
