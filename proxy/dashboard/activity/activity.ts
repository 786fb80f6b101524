import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { ASSETS } from '../frame/assets.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/page.ts'
import { countWithNoun, EMPTY_HTML, type HtmlFragment, html, htmlIf, joinHtml } from '../frame/parts.ts'
import { type ActivityHref, type ActivityParams, parseActivityParams } from './asked.ts'
import { barWindow } from './bars.ts'
import { type ActivityQuery, type CallFacet, type CallPage, callLines, callsOf, FACETS } from './calls.ts'
import { chart } from './chart.ts'
import { countDecisions } from './decided.ts'

/** The form, and the chosen filters: each can be taken away. */
function activityForm({ chosen, noise, times: { typed, problems }, here }: ActivityParams): HtmlFragment {
  const hidden = Object.entries(chosen).filter(
    ([name]) => !['since', 'until', 'window', 'cursor'].includes(name),
  )
  const field = (name: 'since' | 'until', label: string): HtmlFragment =>
    html`<label>${label} <input name="${name}" value="${typed[name]}" placeholder="2026-11-22 14:30"${problems[name] === null ? EMPTY_HTML : html` aria-invalid="true" aria-describedby="${name}-problem"`}></label>`
  const problem = (name: 'since' | 'until', label: string): HtmlFragment =>
    htmlIf(
      problems[name] !== null,
      () =>
        html`<p class="problem" role="alert" id="${name}-problem">${label}: “${typed[name]}” ${problems[name] ?? ''}.</p>`,
    )
  return html`<form class="search" action="/proxy/activity">${field('since', 'From')}${field('until', 'to')}${joinHtml(
    hidden.map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`),
  )}${htmlIf(noise, () => html`<input type="hidden" name="noise" value="yes">`)}<button>Show</button> <a href="${here({ noise: noise ? null : 'yes', cursor: null })}">${noise ? 'Hide' : 'Show'} lists of tools</a></form>
${problem('since', 'From')}${problem('until', 'To')}
<p class="chips">${joinHtml(
    Object.entries(chosen)
      .filter(([name]) => name !== 'cursor')
      .map(
        ([name, value]) =>
          html`<a class="chip" href="${here({ [name]: null, cursor: null })}" title="Remove this filter">${name}: ${value} ×</a> `,
      ),
  )}</p>`
}

const LINES = 100

/**
 * GET /proxy/activity: one line for each call, newest first. The URL is the state: a bookmark is a saved
 * view.
 */
export const activityPage: DashboardPage = async (dashboard, facts) => {
  const asked = parseActivityParams(facts.query)
  const { problems } = asked.times
  const isWrong = problems.since !== null || problems.until !== null
  return {
    title: 'Activity',
    section: '/proxy/activity',
    script: ASSETS.activity.path,
    ...(isWrong && { status: 422 }),
    body: html`${activityForm(asked)}${isWrong ? EMPTY_HTML : await renderResults(dashboard, facts, asked)}`,
  }
}

/** Counts and calls. A moving window begins with its first bar. */
async function renderResults(
  dashboard: DashboardContext,
  facts: AdministrationFacts,
  asked: ActivityParams,
): Promise<HtmlFragment> {
  const { chosen, noise, times, here } = asked
  const shown = barWindow(times, facts.at)
  const { window: _, ...others } = chosen
  const since = times.window === null ? times.since : shown.from
  const wanted = {
    ...others,
    ...(since !== null && { since: new Date(since).toISOString() }),
    ...(times.until !== null && { until: new Date(times.until).toISOString() }),
  }
  const { action, status } = chosen
  const isVerdict = status === undefined || status === 'allowed' || status === 'denied'
  const which = {
    noise,
    ...(action !== undefined && { action }),
    ...(isVerdict && status !== undefined && { status }),
  }
  // One after the other: few may read the ledger at once.
  const calls = await callsOf(dashboard, facts, { ...wanted, noise, most: LINES } satisfies ActivityQuery)
  const decided = await countDecisions(dashboard, facts, shown, which)
  const notNarrowed = [
    ...(['principal', 'tool', 'model', 'reason'] as const).filter((name) => chosen[name] !== undefined),
    ...(isVerdict ? [] : ['verdict']),
  ]
  return html`${chart({ shown, decided, here, chosen: times.window, notNarrowed })}
${renderFollowLink(asked)}
<div class="beside"><aside aria-label="Filter">${joinHtml(FACETS.map((facet) => facetOf(facet, calls, here)))}</aside>
${table(calls, here, facts.at)}</div>`
}

/** Renders the place for new calls: a link to ask for them, and a script's sign that it hears of them. */
const renderFollowLink = ({ chosen, here }: ActivityParams): HtmlFragment =>
  chosen.cursor || chosen.until
    ? EMPTY_HTML
    : html`<p id="follow" data-live="${here({}).replace('/proxy/activity', '/proxy/activity/live')}"><a href="${here({})}">Reload</a></p>`

const table = (found: CallPage, here: ActivityHref, at: number): HtmlFragment =>
  html`<section id="calls" tabindex="-1">${callLines(found.calls, at, html`<p>No calls match.</p><p>An agent's first call shows up here: <code class="copy" tabindex="0">make demo</code> makes some.</p>`)}
<p class="faint">${countWithNoun(found.fitting, 'line matches', 'lines match')} among the ${countWithNoun(found.rows, 'row')} that were searched${found.oldest === null ? '' : `, back to ${found.oldest}`}.</p>
${htmlIf(found.next !== null, () => html`<p><a rel="next" href="${here({ cursor: found.next })}">Older</a></p>`)}</section>`

/** The words by which a facet is asked for: `principal` by the name that the ledger or the API has. */
const facetOf = (facet: CallFacet, { counts }: CallPage, here: ActivityHref): HtmlFragment => {
  const values = [...counts[facet]].toSorted(([, a], [, b]) => b - a).slice(0, 12)
  if (values.length === 0) return html``
  return html`<h3>${facet === 'status' ? 'verdict' : facet}</h3><ul>${joinHtml(
    values.map(
      ([value, count]) =>
        html`<li><a href="${here({ [facet]: value, cursor: null })}">${value}</a> ${String(count)}</li>`,
    ),
  )}</ul>`
}
