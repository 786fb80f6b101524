import { hash } from 'node:crypto'
import type { AttentionDeferral } from '../../../db/operators/deferrals.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { deferCard } from '../../admin/audit/attention.ts'
import {
  button,
  csrf,
  EMPTY_HTML,
  type HtmlFragment,
  hasCapability,
  html,
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
