import { hash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { amountText } from '../../../plugins/limits/amount-text.ts'
import type { ChangePreview as Made } from '../../admin/conditions/run.ts'
import type { RehearsalChange } from '../../admin/operation/changes.ts'
import type { OperationResult } from '../../admin/operation/operation.ts'
import {
  countWithNoun,
  dataTable,
  EMPTY_HTML,
  type HtmlFragment,
  html,
  relativeTime,
} from '../frame/parts.ts'

/** Names the changes that somebody was shown, in any order of a set. Hex, 32 characters. */
export const shownChangesDigest = (changes: readonly RehearsalChange[]): string =>
  hash('sha256', canonicalize(changes.map(sortCapabilities)) ?? '').slice(0, 32)

const sortCapabilities = (change: RehearsalChange): RehearsalChange =>
  'capabilities' in change ? { ...change, capabilities: change.capabilities.toSorted() } : change

export type ChangePreviewView = OperationResult<Made>['value']

export function buttonOf({ totals }: Pick<ChangePreviewView, 'totals'>, label = 'Update'): string {
  const { newly_refused: refused, undecidable } = totals
  if (refused > 0) return `${label}: ${countWithNoun(refused, 'call')} of the last 30 days would be refused`
  return undecidable > 0 ? `${label}: ${countWithNoun(undecidable, 'call')} could go either way` : label
}

/** Renders the effect of a change on the calls of the last 30 days: refused, let through, not to be known. */
export function rehearsalOf(preview: ChangePreviewView, now: number): HtmlFragment {
  const {
    totals,
    newly_refused: refused,
    newly_allowed: allowed,
    undecidable,
    window,
    expectations,
    limits = [],
    newly_held: held,
  } = preview
  const quiet = totals.newly_refused + totals.newly_allowed + totals.undecidable === 0
  return html`<section id="rehearsal" aria-live="polite" data-button="${buttonOf(preview)}" data-refused="${String(totals.newly_refused)}">
${limits.map((one) => limitEffect(one, now))}
${quiet && limits.length === 0 && html`<p class="faint">Of ${countWithNoun(window.decisions, 'call')} in the last 30 days, none would have been decided differently.</p>`}
${totals.newly_refused > 0 && pile('refused', `${countWithNoun(totals.newly_refused, 'call')} would have been refused`, refused, now)}
${held !== undefined && html`<p class="pile refused">Somebody would be asked to approve ${countWithNoun(held.per_day, 'call')} a day, ${String(held.most_per_day)} at the most: on ${countWithNoun(held.days, 'day')} of the 30 there were any.</p>`}
${totals.newly_allowed > 0 && pile('allowed', `${countWithNoun(totals.newly_allowed, 'call')} would have been let through`, allowed, now)}
${totals.undecidable > 0 && html`<div class="pile unknown"><h3>${countWithNoun(totals.undecidable, 'call')} could go either way</h3><ul>${undecidable.map(({ why, decisions }) => html`<li>${why}: ${String(decisions)}</li>`)}</ul></div>`}
${expectations
  .filter(({ after }) => !after)
  .map(
    ({ line, sentence, before }) =>
      html`<p class="pile refused">${before ? 'Breaks an expectation' : 'An expectation that is already broken'} (line ${String(line)}): ${sentence}</p>`,
  )}
${preview.truncated && html`<p class="faint">Only the largest groups are shown.</p>`}
</section>`
}

type LimitEffectView = NonNullable<ChangePreviewView['limits']>[number]

const MAX_EFFECT_LINES = 20

/** Shows what a limit would have done: a sentence, and its principals, those first that it would have refused. */
function limitEffect(effect: LimitEffectView, now: number): HtmlFragment {
  const { name, summary, groups, refused, undecidable } = effect
  const kind = refused > 0 ? 'refused' : undecidable > 0 ? 'unknown' : 'allowed'
  return html`<div class="pile ${kind}"><h3>${name}: ${summary}</h3>${
    groups.length > 0 &&
    dataTable(
      ['Principal', 'Calls', 'Refused', 'Used at the most'],
      groups
        .slice(0, MAX_EFFECT_LINES)
        .map(
          ({ principal_id: who, calls, refused: over, first_refused: first, highest }) =>
            html`<tr><td>${who}</td><td>${calls.toLocaleString('en')}</td><td>${over.toLocaleString('en')}${first !== null && html` <span class="faint">first ${relativeTime(first.at, now)}</span>${first.request_id !== null && html` <a href="/proxy/activity/${first.request_id}">which</a>`}`}</td><td>${amountText(effect.measure, highest)}</td></tr>`,
        ),
      EMPTY_HTML,
    )
  }</div>`
}

export const pile = (
  kind: string,
  title: string,
  groups: ChangePreviewView['newly_refused'],
  now: number,
): HtmlFragment =>
  html`<div class="pile ${kind}"><h3>${title}</h3><ul>${groups
    .slice(0, 20)
    .map(
      ({ principal_id: who, action, tool, model, capability, decisions, last_at: last, samples }) =>
        html`<li><b>${String(decisions)}</b> × ${tool ?? model ?? action} ${who === null ? html`` : html`of ${who} `}<span class="faint">${capability ?? ''}</span> last ${relativeTime(last, now)} ${samples.map((id) => html`<a href="/proxy/activity/${id}" title="${id}">why</a> `)}</li>`,
    )}</ul></div>`
