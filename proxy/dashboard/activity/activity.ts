import type { ArchivePart } from '../../../db/ledger/read/archived-page.ts'
import { newestSegment } from '../../../db/ledger/tree/segments.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { Reply } from '../../http/reply.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import { ASSETS } from '../frame/frame.ts'
import { countWithNoun, EMPTY_HTML, type HtmlFragment, html } from '../frame/parts.ts'
import {
  type ActivityHref,
  type ActivityParams,
  parseActivityParams,
  WINDOWS,
  type WindowName,
} from './asked.ts'
import {
  type BarWindow,
  barsOf,
  barWindow,
  type ChartBar,
  countDecisions,
  type DecisionCounts,
} from './bars.ts'
import { type ActivityQuery, type CallFacet, type CallPage, callLines, callsOf, FACETS } from './calls.ts'

/**
 * GET /proxy/activity/live: server-sent events. The page then asks for itself once more, so one place renders
 * calls.
 */
export const liveActivity =
  ({ followers }: Pick<DashboardContext, 'followers'>) =>
  async ({ actor, hangup }: AdministrationFacts): Promise<Reply> => {
    const source = followers.open(actor.id)
    // Also if nobody is left to send it to.
    if (hangup.gone) source.destroy()
    else hangup.onGone(() => source.destroy())
    const headers = { 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' }
    return { status: 200, headers, body: { source } }
  }

interface ChartOptions {
  readonly shown: BarWindow
  readonly decided: DecisionCounts
  readonly here: ActivityHref
  readonly chosen: WindowName | null
  /** The words of the query that the counts cannot be narrowed by. */
  readonly notNarrowed: readonly string[]
}

/** The sizes of the drawing: it is stretched to the width that there is. */
const [WIDTH, HEIGHT, GAP] = [10, 100, 1]
const MIN_BAR_HEIGHT = 3

/** Draws allowed and refused calls over time as linked bars. `data-range`: the path without the range. */
function chart({ shown, decided, here, chosen, notNarrowed }: ChartOptions): HtmlFragment {
  const { from, to, goesOn, unitName, widened } = shown
  const end = goesOn ? 'now' : minuteOf(to)
  const bars = barsOf(shown, decided.counts)
  const most = Math.max(1, ...bars.map(({ allowed, denied }) => allowed + denied))
  return html`<section id="chart" class="chart" aria-label="Over time">
<p class="totals">${total('denied', decided.denied, here)} · ${total('allowed', decided.allowed, here)} <span class="faint">from ${minuteOf(from)} to ${end} UTC${widened ? ', widened to whole bars' : ''}, one bar is ${unitName}</span></p>
<p>${windows(here, chosen)}<a class="skip" href="#calls">Skip the chart</a></p>
${renderCountNotes(decided, notNarrowed)}
<svg role="group" aria-label="Bars over time" viewBox="0 0 ${String(bars.length * WIDTH)} ${String(HEIGHT)}" preserveAspectRatio="none" width="100%" height="96" data-range="${here({ since: null, until: null, window: null, cursor: null })}">${bars.map((bar, n) => renderBar(bar, n, most, here))}</svg>
<p class="axis faint"><span>${minuteOf(from)}</span><span>highest: ${most.toLocaleString('en')}</span><span>${end}</span></p>
<p class="faint" role="status" id="range"></p></section>`
}

const total = (verdict: 'allowed' | 'denied', count: number, here: ActivityHref): HtmlFragment =>
  html`<a class="verdict ${verdict}" href="${here({ status: verdict, cursor: null })}">${verdict}</a> <b>${count.toLocaleString('en')}</b>`

const windows = (here: ActivityHref, chosen: WindowName | null): readonly HtmlFragment[] =>
  Object.keys(WINDOWS).map(
    (name) =>
      html`<a class="chip" href="${here({ window: name, since: null, until: null, cursor: null })}"${name === chosen ? html` aria-current="true"` : EMPTY_HTML}>${name}</a> `,
  )

const renderCountNotes = ({ uncounted }: DecisionCounts, notNarrowed: readonly string[]): HtmlFragment =>
  html`${notNarrowed.length > 0 && html`<p class="needs">These numbers cover all calls: they are not filtered by ${notNarrowed.join(', ')}.</p>`}${uncounted > 0 && html`<p class="needs">About ${uncounted.toLocaleString('en')} of the newest rows are not in these numbers yet: they are still being counted.</p>`}`

function renderBar(
  { from, to, allowed, denied }: ChartBar,
  n: number,
  most: number,
  here: ActivityHref,
): HtmlFragment {
  const [since, until] = [isoOf(from), isoOf(to)]
  const what = `${minuteOf(from)} to ${endOf(from, to)}: denied ${denied.toLocaleString('en')}, allowed ${allowed.toLocaleString('en')}`
  const refusedHeight = heightOf(denied, most)
  const x = n * WIDTH
  return html`<a href="${here({ since, until, window: null, cursor: null })}" aria-label="${what}" data-since="${since}" data-until="${until}"><title>${what}</title>${rect('hit', x, 0, HEIGHT)}${piece('denied', x, HEIGHT - refusedHeight, refusedHeight)}${piece('allowed', x, HEIGHT - refusedHeight - heightOf(allowed, most), heightOf(allowed, most))}</a>`
}

const piece = (kind: string, x: number, y: number, height: number): HtmlFragment =>
  height === 0 ? EMPTY_HTML : rect(kind, x, Math.max(0, y), height)

const rect = (kind: string, x: number, y: number, height: number): HtmlFragment =>
  html`<rect class="${kind}" x="${String(x)}" y="${y.toFixed(1)}" width="${String(WIDTH - GAP)}" height="${height.toFixed(1)}"/>`

const heightOf = (count: number, most: number): number =>
  count === 0 ? 0 : Math.max(MIN_BAR_HEIGHT, (count / most) * HEIGHT)

const isoOf = (at: number): string => new Date(at).toISOString()
const minuteOf = (at: number): string => isoOf(at).slice(0, 16).replace('T', ' ')

const endOf = (from: number, to: number): string =>
  minuteOf(from).slice(0, 10) === minuteOf(to).slice(0, 10) ? minuteOf(to).slice(11) : minuteOf(to)

function activityForm({
  unknown,
  chosen,
  noise,
  times: { typed, problems },
  here,
}: ActivityParams): HtmlFragment {
  const hidden = Object.entries(chosen).filter(
    ([name]) => !['since', 'until', 'window', 'cursor'].includes(name),
  )
  const field = (name: 'since' | 'until', label: string): HtmlFragment =>
    html`<label>${label} <input name="${name}" value="${typed[name]}" placeholder="2026-11-22 14:30"${problems[name] === null ? EMPTY_HTML : html` aria-invalid="true" aria-describedby="${name}-problem"`}></label>`
  const problem = (name: 'since' | 'until', label: string): HtmlFragment =>
    problems[name] !== null
      ? html`<p class="problem" role="alert" id="${name}-problem">${label}: “${typed[name]}” ${problems[name] ?? ''}.</p>`
      : EMPTY_HTML
  return html`<form class="search" action="/proxy/activity">${field('since', 'From')}${field('until', 'to')}${hidden.map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}${noise && html`<input type="hidden" name="noise" value="yes">`}<button>Show</button> <a href="${here({ noise: noise ? null : 'yes', cursor: null })}">${noise ? 'Hide' : 'Show'} lists of tools</a></form>
${problem('since', 'From')}${problem('until', 'To')}${unknown.length > 0 && html`<p class="problem" role="alert">There is no filter ${unknown.join(', ')}. Filters are principal, action, status, reason, tool, model, since, until and window (1h, 24h, 7d, 30d). <a href="/proxy/activity">All calls</a></p>`}
<p class="chips">${Object.entries(chosen)
    .filter(([name]) => name !== 'cursor')
    .map(
      ([name, value]) =>
        html`<a class="chip" href="${here({ [name]: null, cursor: null })}" title="Remove this filter">${name}: ${value} ×</a> `,
    )}</p>`
}

const LINES = 100

/** GET /proxy/activity: one line for each call, newest first. The URL is the state. */
export const activityPage: DashboardPage = async (dashboard, facts) => {
  const asked = parseActivityParams(facts.query)
  const { problems } = asked.times
  const isWrong = problems.since !== null || problems.until !== null || asked.unknown.length > 0
  return {
    title: 'Activity',
    section: '/proxy/activity',
    script: ASSETS.activity.path,
    ...(isWrong && { status: 422 }),
    body: html`${activityForm(asked)}${isWrong ? EMPTY_HTML : await renderResults(dashboard, facts, asked)}`,
  }
}

async function renderResults(
  dashboard: DashboardContext,
  facts: AdministrationFacts,
  asked: ActivityParams,
): Promise<HtmlFragment> {
  const { chosen, noise, times, here } = asked
  const archived = await newestSegment(dashboard.context.database.kysely)
  const shown = barWindow(times, facts.at, archived && Date.parse(archived.until))
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
  const calls = await callsOf(dashboard, facts, {
    ...wanted,
    noise,
    most: LINES,
    goesOn: true,
  } satisfies ActivityQuery)
  const decided = await countDecisions(dashboard, facts, shown, which)
  const notNarrowed = [
    ...(['principal', 'tool', 'model', 'reason'] as const).filter((name) => chosen[name] !== undefined),
    ...(isVerdict ? [] : ['verdict']),
  ]
  return html`${chart({ shown, decided, here, chosen: times.window, notNarrowed })}
${renderFollowLink(asked)}
<div class="beside"><aside aria-label="Filter">${FACETS.map((facet) => facetOf(facet, calls, here))}</aside>
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
${renderArchive(found.archived)}
${found.next !== null && html`<p><a rel="next" href="${here({ cursor: found.next })}">${found.archived?.more ? `Older, in ${found.archived.more.file}` : 'Older'}</a></p>`}</section>`

/** The archived rows that are looked through in a second, about. */
const ROWS_PER_SECOND = 200_000

function renderArchive(part: ArchivePart | undefined): HtmlFragment {
  if (!part) return EMPTY_HTML
  const { read, more, unreadable } = part
  return html`${read.length > 0 && html`<p class="faint">Searched in the archive: ${read.join(', ')}.</p>`}${more !== null && html`<p class="faint">Also in ${countWithNoun(more.segments, 'segment', 'segments')} of the archive: ${countWithNoun(more.rows, 'row')}, ${String(Math.ceil(more.rows / ROWS_PER_SECOND))} s.</p>`}${unreadable.map((sentence) => html`<p class="needs">${sentence}</p>`)}`
}

const facetOf = (facet: CallFacet, { counts }: CallPage, here: ActivityHref): HtmlFragment => {
  const values = [...counts[facet]].toSorted(([, a], [, b]) => b - a).slice(0, 12)
  if (values.length === 0) return html``
  return html`<h3>${facet === 'status' ? 'verdict' : facet}</h3><ul>${values.map(
    ([value, count]) =>
      html`<li><a href="${here({ [facet]: value, cursor: null })}">${value}</a> ${String(count)}</li>`,
  )}</ul>`
}
