import { amountText } from '../../../plugins/limits/amount-text.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import {
  listLimitsOfOne,
  listLimitUsage,
  type NamedMeter,
  type NamedUsage,
} from '../../admin/limits/usage.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage, PageContent } from '../frame/frame.ts'
import {
  countWithNoun,
  csrf,
  dataTable,
  EMPTY_HTML,
  type HtmlFragment,
  hasCapability,
  html,
  ledgerPrincipal,
  type PageViewer,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'
import { rehearsedFormHandler } from '../rehearsed/acting-rehearsed.ts'
import { typedLimit } from './typed.ts'
import { type ShownLimit, scopeText, usedBar, usedText } from './words.ts'

const NEEDS = OPERATIONS.limits.create.demands
/** Lines that the page has: the nearest to their amounts. */
const SHOWN = 100

/**
 * GET /proxy/limits: every limit, what is used of it, and who is nearest to it. `?q=`: those of such a name;
 * `?principal=`: those that its calls count on.
 */
export const limitsPage: DashboardPage = async (dashboard, facts) => {
  const { context } = dashboard
  const principal = new URLSearchParams(facts.query).get('principal')
  if (principal !== null) return ownLimitsPage(dashboard, facts, principal)
  const { limits } = (await perform(listLimitUsage, context, {}, facts)).value
  const q = (new URLSearchParams(facts.query).get('q') ?? '').trim()
  const found = limits.filter(({ limit }) => limit.name.includes(q))
  const isEmpty = limits.length === 0
  return {
    title: 'Limits',
    section: '/proxy/limits',
    body: html`${(q !== '' || limits.length > SHOWN) && searchForm(q)}<div class="stacked">${dataTable(
      ['Limit', 'Used'],
      found.slice(0, SHOWN).map((one) => lineOf(one, facts.at)),
      isEmpty ? emptyText(facts) : html`<p>No limit has that name. <a href="/proxy/limits">Show all</a></p>`,
    )}</div>${found.length > SHOWN && html`<p>${countWithNoun(found.length - SHOWN, 'limit is', 'limits are')} further from the amount than these.</p>`}
${makeForm(facts, isEmpty)}`,
  }
}

async function ownLimitsPage(
  { context }: DashboardContext,
  facts: AdministrationFacts,
  principal: string,
): Promise<PageContent> {
  const { limits } = (await perform(listLimitsOfOne, context, { query: { principal } }, facts)).value
  const rest = limits.length - SHOWN
  return {
    title: 'Limits',
    section: '/proxy/limits',
    body: html`<p class="lead">Of calls of <code>${principal}</code> alone. <a href="/proxy/limits">All</a></p>
<section class="card stacked" id="limits"><h2>Limits of its calls</h2>${dataTable(
      ['Limit', 'Used'],
      limits.slice(0, SHOWN).map((one) => lineOf(one, facts.at)),
      html`<p>No limit applies to its calls. <a href="/proxy/limits">Make one</a></p>`,
    )}${rest > 0 && html`<p>${countWithNoun(rest, 'limit is', 'limits are')} further from the amount than these.</p>`}</section>`,
  }
}

const searchForm = (q: string): HtmlFragment =>
  html`<form class="search" role="search" action="/proxy/limits"><input type="search" name="q" value="${q}" aria-label="Search limits" placeholder="part of a name" data-key="/"><button>Search</button></form>`

const emptyText = (facts: PageViewer): HtmlFragment =>
  html`<p>There is no limit yet: calls may use as much as they like.</p><p>A limit bounds what calls use: money, tokens, calls, or calls at once. It is for everybody, a group, a model or a tool, and holds from the next call on.</p>${hasCapability(facts, NEEDS) && html`<p><a class="button" href="#make">Make a limit</a></p>`}`

function lineOf({ limit, resets_at: resets, meters }: NamedUsage, now: number): HtmlFragment {
  return html`<tr><td><a class="row" href="${pathOf('limits', limit.limit_id)}">${limit.name}</a> ${limitBadges(limit)}<br><span class="faint">${scopeText(limit)}</span></td><td>${meters === null ? html`<span class="faint">open it to see</span>` : metersOf(limit, meters)}${resets !== null && html`<div class="faint">begins again ${relativeTime(resets, now)}</div>`}${overrideText(limit, now)}</td></tr>`
}

export const limitBadges = ({ on, strict }: ShownLimit): HtmlFragment =>
  html`${on === 'alert' && html`<span class="badge off">only alerts</span> `}${strict && html`<span class="badge">strict</span>`}`

/** Bars of meters, each with its principal if the limit is for each. */
export const metersOf = (limit: ShownLimit, meters: readonly NamedMeter[]): HtmlFragment =>
  meters.length === 0
    ? html`<span class="faint">nothing yet; ${amountText(limit.measure, limit.amount)} for each principal</span>`
    : html`${meters.map((meter) => html`<div>${usedBar(limit, meter)} ${usedText(limit, meter)}${meter.principal !== null && html` <span class="faint">${ledgerPrincipal(meter)}</span>`}</div>`)}`

/** Another amount that is in force, until when and why. */
export const overrideText = ({ override, measure }: ShownLimit, now: number): HtmlFragment =>
  override && Date.parse(override.until) > now
    ? html`<div><span class="badge warn">${amountText(measure, override.amount)} until ${override.until.slice(0, 16).replace('T', ' ')} UTC</span> <span class="faint">${override.reason}</span></div>`
    : EMPTY_HTML

const MEASURES = {
  cost: 'cost, in USD',
  tokens: 'tokens',
  calls: 'calls',
  concurrent: 'calls at once',
} as const
const PERIODS = ['month', 'week', 'day', 'hour', 'minute', 'second', 'ever']
const ACTS = { refuse: 'refuse the call', alert: 'only count and alert' } as const

const optionsOf = (choices: Readonly<Record<string, string>>): HtmlFragment =>
  html`${Object.entries(choices).map(([value, text]) => html`<option value="${value}">${text}</option>`)}`

const makeForm = (facts: PageViewer, isOpen: boolean): HtmlFragment =>
  hasCapability(facts, NEEDS)
    ? html`<details class="enroll" id="make"${isOpen ? html` open` : EMPTY_HTML}><summary>Make a limit</summary><form method="post" action="/proxy/limits">${csrf(facts.session)}
<label>Name <input name="name" required maxlength="63" pattern="[a-z0-9][a-z0-9._\\-]*" autocomplete="off" placeholder="red-month"></label>
<label>What is counted <select name="measure">${optionsOf(MEASURES)}</select></label>
<label>Amount <input name="amount" required maxlength="17" inputmode="decimal" autocomplete="off" placeholder="25.00"></label>
<label>Per <select name="per">${optionsOf(Object.fromEntries(PERIODS.map((one) => [one, one])))}</select></label>
<p class="faint">Windows are of the UTC calendar. Calls at once have no time. A limit of cost refuses calls of models without a price.</p>
<fieldset><legend>Calls that it is for: all that is filled in must fit; nothing means every call</legend>
<label>Of principals that hold <input name="holding" maxlength="64" autocomplete="off" placeholder="team.red"></label>
<label>Of the principals <input name="principals" maxlength="2048" autocomplete="off" placeholder="acme::*, acme::user::ada"></label>
<label>To the models <input name="models" maxlength="2048" autocomplete="off" placeholder="openai/*, anthropic/claude-opus-*"></label>
<label>Of the tools <input name="tools" maxlength="2048" autocomplete="off" placeholder="github.*"></label></fieldset>
<label>For each principal <input type="checkbox" name="each" value="true"> <span class="faint">else all have the amount together</span></label>
<label>Strict <input type="checkbox" name="strict" value="true"> <span class="faint">never passed: a call holds the most that it may use</span></label>
<label>Shown to callers <input type="checkbox" name="show" value="true" checked> <span class="faint">a refusal says its name and numbers</span></label>
<label>When it is used up <select name="on">${optionsOf(ACTS)}</select></label>
<button class="main">Make the limit</button></form></details>`
    : html`<p class="needs">Making a limit needs <code>${NEEDS}</code>.</p>`

/** POST /proxy/limits: shows what it would have done to the calls of the last 30 days, and then makes it. */
export const createLimitForm = (dashboard: DashboardContext) =>
  rehearsedFormHandler(dashboard, OPERATIONS.limits.create, {
    given: (facts) => ({ query: {}, body: typedLimit(facts) }),
    ...{ to: '/proxy/limits', notice: 'limit_made', label: 'Make the limit' },
    title: () => 'Make the limit',
  })
