import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { listOpenRefusals, type OpenRefusal } from '../../admin/audit/attention.ts'
import { perform } from '../../admin/operation/operation.ts'
import { grantLink, whoLink } from '../activity/calls.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import {
  dataTable,
  EMPTY_HTML,
  type HtmlFragment,
  hasCapability,
  html,
  relativeTime,
} from '../frame/parts.ts'
import { actionText, ledgerWord, reasonWords } from '../frame/words.ts'
import { notNowForm } from './not-now.ts'

/** The refusals of the last day that nobody has settled; none for those who may not read the ledger. */
export async function openRefusals({ context }: DashboardContext, facts: AdministrationFacts) {
  if (!hasCapability(facts, listOpenRefusals.demands)) return { refusals: [], more: false }
  return (await perform(listOpenRefusals, context, {}, facts)).value
}

export const aboutRefusal = ({
  principal,
  action,
  tool,
  model,
  reason,
  required_capability,
}: OpenRefusal): string => JSON.stringify([principal, action, tool, model, reason, required_capability])

export const refusalsCard = (
  refusals: readonly OpenRefusal[],
  more: boolean,
  facts: AdministrationFacts,
): HtmlFragment =>
  refusals.length === 0
    ? EMPTY_HTML
    : html`<section class="card"><h2>Refused recently</h2><div class="calls">${dataTable(
        ['Who', 'What', 'Why', 'Times', 'First', 'Last', ''],
        refusals.map((one) => lineOf(one, facts)),
        EMPTY_HTML,
      )}</div>${more && html`<p class="faint">There are more kinds than are shown here.</p>`}<p><a href="/proxy/activity?status=denied">All refusals</a></p></section>`

export const titleOfRefusal = ({
  principal,
  action,
  tool,
  model,
  reason,
  required_capability: token,
}: OpenRefusal): HtmlFragment =>
  html`${principal ?? 'nobody known'}: ${actionText(action)} ${tool ?? model ?? ''}, ${reasonWords(reason, token)}`

function lineOf(one: OpenRefusal, facts: AdministrationFacts): HtmlFragment {
  const { principal, principal_type: type, action, tool, model, reason, required_capability: token } = one
  const who = whoLink(type, principal, action)
  const text = html`${actionText(action)} ${tool ?? model ?? ''}`
  const what =
    one.request_id === null ? text : html`<a class="row" href="/proxy/activity/${one.request_id}">${text}</a>`
  return html`<tr><td>${who}</td><td>${what} ${ledgerWord(action)}</td><td>${reasonWords(reason, token)} ${grantLink(type, principal, reason, token)}</td><td class="number">${one.count.toLocaleString('en')}</td><td>${relativeTime(one.first, facts.at)}</td><td>${relativeTime(one.last, facts.at)}</td><td>${notNowForm(aboutRefusal(one), titleOfRefusal(one), facts)}</td></tr>`
}
