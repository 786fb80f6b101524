import { hash } from 'node:crypto'
import type { AttentionDeferral } from '../../../db/operators/deferrals.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { deferCard, listOpenRefusals, type OpenRefusal } from '../../admin/audit/attention.ts'
import { perform } from '../../admin/operation/operation.ts'
import { grantLink, whoLink } from '../activity/calls.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import {
  actionText,
  button,
  csrf,
  dataTable,
  EMPTY_HTML,
  type HtmlFragment,
  hasCapability,
  html,
  ledgerWord,
  reasonWords,
  relativeTime,
} from '../frame/parts.ts'

export const cardId = (about: string): string => hash('sha256', about).slice(0, 32)

const NOT_NOW = '/proxy/attention/not-now'

const SPANS = [
  ['4', '4 hours'],
  ['24', 'a day'],
  ['168', '7 days'],
  ['720', '30 days'],
] as const

/** The form that puts a card off: until when, and why. */
export const notNowForm = (about: string, title: HtmlFragment, facts: AdministrationFacts): HtmlFragment =>
  hasCapability(facts, deferCard.demands)
    ? html`<details class="not-now"><summary>Not now</summary><form method="post" action="${NOT_NOW}">${csrf(facts.session)}<input type="hidden" name="card" value="${cardId(about)}"><input type="hidden" name="title" value="${plainText(title).slice(0, 300)}">
<label>For <select name="hours">${SPANS.map(([hours, text]) => html`<option value="${hours}">${text}</option>`)}</select></label>
<label>Why <input name="reason" required maxlength="500" autocomplete="off"></label>
<button>Not now</button></form></details>`
    : EMPTY_HTML

const ENTITIES: Readonly<Record<string, string>> = {
  '&amp;': '&',
  '&lt;': '<',
  '&gt;': '>',
  '&quot;': '"',
  '&#39;': "'",
}

export const plainText = ({ text }: HtmlFragment): string =>
  text.replaceAll(/<[^>]*>/g, '').replaceAll(/&(?:amp|lt|gt|quot|#39);/g, (one) => ENTITIES[one] ?? one)

/** Says what is put off, by whom, why and until when. */
export const deferredCard = (
  deferred: readonly AttentionDeferral[],
  facts: AdministrationFacts,
): HtmlFragment =>
  deferred.length === 0
    ? EMPTY_HTML
    : html`<section class="card" id="not-now"><h2>Not now</h2><ul>${deferred.map(
        ({ card, title, until, reason, by }) =>
          html`<li>${title} <span class="faint">until ${relativeTime(until, facts.at)}, by ${by}: ${reason}</span> ${button(facts, deferCard.demands, NOT_NOW, 'Show it again', { card, title, reason, hours: '0' })}</li>`,
      )}</ul></section>`

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
