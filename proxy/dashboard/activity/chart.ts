import { EMPTY_HTML, type HtmlFragment, html, htmlIf, joinHtml } from '../frame/parts.ts'
import type { ActivityHref } from './asked.ts'
import { type BarWindow, barsOf, type ChartBar } from './bars.ts'
import type { DecisionCounts } from './decided.ts'
import { WINDOWS, type WindowName } from './times.ts'

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
/** The least part of the height for a value above zero. */
const MIN_BAR_HEIGHT = 3

/**
 * Draws the allowed and refused calls over time, as bars that are links: each narrows the page to its part.
 * Above it the totals of the window, word first. `data-range`: the path of a script's link for a range of
 * bars, without the range.
 */
export function chart({ shown, decided, here, chosen, notNarrowed }: ChartOptions): HtmlFragment {
  const { from, to, goesOn, unitName, widened } = shown
  const end = goesOn ? 'now' : minuteOf(to)
  const bars = barsOf(shown, decided.counts)
  const most = Math.max(1, ...bars.map(({ allowed, denied }) => allowed + denied))
  return html`<section id="chart" class="chart" aria-label="Over time">
<p class="totals">${total('denied', decided.denied, here)} · ${total('allowed', decided.allowed, here)} <span class="faint">from ${minuteOf(from)} to ${end} UTC${widened ? ', widened to whole bars' : ''}, one bar is ${unitName}</span></p>
<p>${joinHtml(windows(here, chosen))}<a class="skip" href="#calls">Skip the chart</a></p>
${renderCountNotes(decided, notNarrowed)}
<svg role="group" aria-label="Bars over time" viewBox="0 0 ${String(bars.length * WIDTH)} ${String(HEIGHT)}" preserveAspectRatio="none" width="100%" height="96" data-range="${here({ since: null, until: null, window: null, cursor: null })}">${joinHtml(
    bars.map((bar, n) => renderBar(bar, n, most, here)),
  )}</svg>
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

/** Says so if the numbers are not those of the table. */
const renderCountNotes = ({ uncounted }: DecisionCounts, notNarrowed: readonly string[]): HtmlFragment =>
  html`${htmlIf(notNarrowed.length > 0, () => html`<p class="needs">These numbers cover all calls: they are not filtered by ${notNarrowed.join(', ')}.</p>`)}${htmlIf(uncounted > 0, () => html`<p class="needs">About ${uncounted.toLocaleString('en')} of the newest rows are not in these numbers yet: they are still being counted.</p>`)}`

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

/** The end of a bar: its day too, if that is another one. */
const endOf = (from: number, to: number): string =>
  minuteOf(from).slice(0, 10) === minuteOf(to).slice(0, 10) ? minuteOf(to).slice(11) : minuteOf(to)
