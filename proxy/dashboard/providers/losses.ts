import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { listRefusedLosses } from '../../admin/audit/losses.ts'
import { perform } from '../../admin/operation/operation.ts'
import { whoLink } from '../activity/calls.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { dataTable, type HtmlFragment, hasCapability, html, relativeTime } from '../frame/parts.ts'

type RefusedLosses = Awaited<ReturnType<(typeof listRefusedLosses)['run']>>['value']['losses']

const TITLE = html`<h2>Not translated</h2>`

/** Shows which losses calls were refused for in 30 days: of which models, and whose. */
export async function lossesCard(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): Promise<HtmlFragment> {
  if (!hasCapability(facts, listRefusedLosses.demands))
    return html`<section class="card" id="losses">${TITLE}<p class="needs">Seeing what was refused needs <code>admin.audit</code>.</p></section>`
  const { value } = await perform(listRefusedLosses, context, {}, facts)
  const { losses, more, since } = value
  return html`<section class="card" id="losses">${TITLE}
<p>Calls of the last 30 days that were refused as <code>translation_lossy</code>: the provider of their model speaks another API, and cannot be told of this. Accept a loss with <code>lossy</code> of the provider or alias in <code>50-llm.yaml</code>.</p>
${dataTable(
  ['Loss', 'Model', 'Calls', 'Whose', 'Last'],
  losses.map((one) => lineOf(one, facts.at)),
  html`<p>None.</p>`,
)}${more && html`<p class="faint">Back to ${relativeTime(since, facts.at)}. There may be more.</p>`}</section>`
}

function lineOf(
  { loss, model, count, callers, more_callers: rest, last, request_id: id }: RefusedLosses[number],
  at: number,
) {
  const who = callers.map(
    ({ principal, principal_type: type }, index) =>
      html`${index > 0 && ', '}${whoLink(type, principal, 'egress_llm_chat')}`,
  )
  const when = relativeTime(last, at)
  return html`<tr><td><code>${loss}</code></td><td>${model ?? ''}</td><td class="number">${count.toLocaleString('en')}</td><td>${who}${rest > 0 && html` and ${rest.toLocaleString('en')} more`}</td><td>${id === null ? when : html`<a class="row" href="/proxy/activity/${id}">${when}</a>`}</td></tr>`
}
