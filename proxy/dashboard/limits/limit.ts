import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { showNamedUsage } from '../../admin/limits/usage.ts'
import { perform } from '../../admin/operation/operation.ts'
import { type FormSubmission, inputById } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  button,
  copyableCode,
  csrf,
  exactTime,
  factList,
  type HtmlFragment,
  hasCapability,
  html,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'
import { rehearsedFormHandler } from '../rehearsed/acting-rehearsed.ts'
import { limitBadges, metersOf, overrideText } from './limits.ts'
import { typedAmount, typedInstant } from './typed.ts'
import { amountInput, rateText, type ShownLimit, scopeText } from './words.ts'

const NEEDS = OPERATIONS.limits.change.demands

/** GET /proxy/limits/{id}: one limit, what is used of it, and the forms that change it. */
export const limitPage: DashboardPage = async ({ context }, facts) => {
  const params = { id: facts.params.id ?? '' }
  const { value: limit, revision = 0 } = await perform(OPERATIONS.limits.get, context, { params }, facts)
  const { resets_at: resets, meters } = (await perform(showNamedUsage, context, { params }, facts)).value
  const { at } = facts
  return {
    title: limit.name,
    section: '/proxy/limits',
    body: html`<section class="card"><h2>Limit</h2>${factList([
      ['Id', copyableCode(limit.limit_id)],
      ['For', html`${scopeText(limit)} ${limitBadges(limit)}`],
      ['Amount', html`${rateText(limit)}${limit.each && ' for each principal'}${overrideText(limit, at)}`],
      ['Used', metersOf(limit, meters ?? [])],
      ['Begins again', resets === null ? 'never: it has no window' : exactTime(resets, at)],
      ['Refused callers', limit.show ? 'are told its name and numbers' : 'are told when it begins again'],
      [
        'Changed',
        html`${relativeTime(limit.updated_at, at)} by ${limit.changed_by ?? 'nobody known'}; made ${relativeTime(limit.created_at, at)} by ${limit.created_by ?? 'nobody known'}`,
      ],
    ])}</section>
${changeCard(limit, { ifMatch: `"${revision}"`, resets }, facts)}`,
  }
}

interface ShownState {
  readonly ifMatch: string
  readonly resets: string | null
}

function changeCard(
  limit: ShownLimit,
  { ifMatch, resets }: ShownState,
  facts: AdministrationFacts,
): HtmlFragment {
  if (!hasCapability(facts, NEEDS)) return html`<p class="needs">Changing it needs <code>${NEEDS}</code>.</p>`
  const path = pathOf('limits', limit.limit_id)
  const state = html`${csrf(facts.session)}<input type="hidden" name="if_match" value="${ifMatch}">`
  const amount = (label: string, value: string): HtmlFragment =>
    html`<label>${label} <input name="amount" required maxlength="17" inputmode="decimal" autocomplete="off" value="${value}"></label>`
  const unit = limit.measure === 'cost' ? ' in USD' : ''
  return html`<section class="card"><h2>Change it</h2>
<form method="post" action="${path}/amount" class="search">${state}${amount(`Amount${unit}`, amountInput(limit, limit.amount))}<button>Change the amount</button></form>
<details class="enroll"><summary>Another amount for a while</summary><form method="post" action="${path}/override">${state}
${amount(`Amount until then${unit}`, '')}
<label>Until, in UTC <input name="until" required maxlength="40" autocomplete="off" placeholder="2026-11-22 14:30" value="${resets === null ? '' : resets.slice(0, 16).replace('T', ' ')}"></label>
<label>Why <input name="reason" required maxlength="512" autocomplete="off"></label>
<button>Override the amount</button></form></details>
<p>${limit.override !== null && button(facts, NEEDS, `${path}/end-override`, 'End the override', { if_match: ifMatch })} ${button(facts, NEEDS, `${path}/remove`, 'Remove it', { if_match: ifMatch })}</p></section>`
}

/** The forms of one limit. Each carries the state that it was made on. */
export function limitForms(dashboard: DashboardContext) {
  const { limits } = OPERATIONS
  const shown = async (facts: FormSubmission) =>
    (await perform(limits.get, dashboard.context, { params: { id: facts.params.id ?? '' } }, facts)).value
  const to = ({ params }: FormSubmission): string => pathOf('limits', params.id ?? '')
  /** The measure is fixed: it says in which unit the amount was typed. */
  const amountOf = async (facts: FormSubmission) => typedAmount(facts, (await shown(facts)).measure)
  return {
    amount: async (facts: FormSubmission) => {
      const body = { amount: await amountOf(facts) }
      return rehearsedFormHandler(dashboard, limits.change, {
        ...{ to, notice: 'limit_changed', label: 'Change the amount' },
        title: () => 'Change the limit',
        given: () => ({ ...inputById(facts), query: {}, body }),
      })(facts)
    },
    override: async (facts: FormSubmission) => {
      const reason = facts.form.get('reason') ?? ''
      const body = { amount: await amountOf(facts), until: typedInstant(facts), reason }
      return rehearsedFormHandler(dashboard, limits.override, {
        ...{ to, notice: 'limit_changed', label: 'Override the amount' },
        title: () => 'Override the limit',
        given: () => ({ ...inputById(facts), body }),
      })(facts)
    },
    endOverride: rehearsedFormHandler(dashboard, limits.endOverride, {
      ...{ to, notice: 'limit_changed', label: 'End the override' },
      title: () => 'End the override',
      given: inputById,
    }),
    remove: rehearsedFormHandler(dashboard, limits.remove, {
      ...{ to: '/proxy/limits', notice: 'limit_removed', label: 'Remove it' },
      title: () => 'Remove the limit',
      given: inputById,
      warning: async (facts) => removalText(await shown(facts)),
    }),
  }
}

const removalText = (limit: ShownLimit): HtmlFragment =>
  html`<p><b>${limit.name}</b> is ${rateText(limit)} for ${scopeText(limit)}. Once it is removed, it refuses none of them. Another one of that name begins at nothing.</p>`
