import { all, type Html, html, NOTHING, when } from '../frame/parts.ts'
import type { Here } from './asked.ts'
import { type Bar, type BarWindow, barsOf } from './bars.ts'
import type { Decided } from './decided.ts'
import { WINDOWS, type WindowName } from './times.ts'

interface Charted {
  readonly shown: BarWindow
  readonly decided: Decided
  readonly here: Here
  readonly chosen: WindowName | null
  /** The words of the query that the counts cannot be narrowed by. */
  readonly notNarrowed: readonly string[]
}

/** The sizes of the drawing: it is stretched to the width that there is. */
const [WIDTH, HEIGHT, GAP] = [10, 100, 1]
/** So much of the height at least has what is there at all. */
const LEAST = 3

/**
 * What was allowed and refused over time, as bars that are links: each narrows the page to its part. Above it the totals
 * of the window, word first. `data-range`: where a script leads for a range of bars, but for the range.
 */
export function chart({ shown, decided, here, chosen, notNarrowed }: Charted): Html {
  const { from, to, goesOn, unitName, widened } = shown
  const end = goesOn ? 'now' : minuteOf(to)
  const bars = barsOf(shown, decided.counts)
  const most = Math.max(1, ...bars.map(({ allowed, denied }) => allowed + denied))
  return html`<section id="chart" class="chart" aria-label="Over time">
<p class="totals">${total('denied', decided.denied, here)} · ${total('allowed', decided.allowed, here)} <span class="faint">from ${minuteOf(from)} to ${end} UTC${widened ? ', widened to whole bars' : ''}, a bar for ${unitName}</span></p>
<p>${all(windows(here, chosen))}<a class="skip" href="#calls">Past the chart</a></p>
${said(decided, notNarrowed)}
<svg role="group" aria-label="Bars over time" viewBox="0 0 ${String(bars.length * WIDTH)} ${String(HEIGHT)}" preserveAspectRatio="none" width="100%" height="96" data-range="${here({ since: null, until: null, window: null, cursor: null })}">${all(
    bars.map((bar, n) => drawn(bar, n, most, here)),
  )}</svg>
<p class="axis faint"><span>${minuteOf(from)}</span><span>highest: ${most.toLocaleString('en')}</span><span>${end}</span></p>
<p class="faint" role="status" id="range"></p></section>`
}

const total = (verdict: 'allowed' | 'denied', count: number, here: Here): Html =>
  html`<a class="verdict ${verdict}" href="${here({ status: verdict, cursor: null })}">${verdict}</a> <b>${count.toLocaleString('en')}</b>`

const windows = (here: Here, chosen: WindowName | null): readonly Html[] =>
  Object.keys(WINDOWS).map(
    (name) =>
      html`<a class="chip" href="${here({ window: name, since: null, until: null, cursor: null })}"${name === chosen ? html` aria-current="true"` : NOTHING}>${name}</a> `,
  )

/** Where the numbers are not of what the table shows, they say so. */
const said = ({ uncounted }: Decided, notNarrowed: readonly string[]): Html =>
  html`${when(notNarrowed.length > 0, () => html`<p class="needs">These numbers are of all calls: they are not narrowed by ${notNarrowed.join(', ')}.</p>`)}${when(uncounted > 0, () => html`<p class="needs">About ${uncounted.toLocaleString('en')} of the newest rows are not in these numbers yet: they are being counted.</p>`)}`

function drawn({ from, to, allowed, denied }: Bar, n: number, most: number, here: Here): Html {
  const [since, until] = [isoOf(from), isoOf(to)]
  const what = `${minuteOf(from)} to ${endOf(from, to)}: denied ${denied.toLocaleString('en')}, allowed ${allowed.toLocaleString('en')}`
  const refusedHeight = heightOf(denied, most)
  const x = n * WIDTH
  return html`<a href="${here({ since, until, window: null, cursor: null })}" aria-label="${what}" data-since="${since}" data-until="${until}"><title>${what}</title>${rect('hit', x, 0, HEIGHT)}${piece('denied', x, HEIGHT - refusedHeight, refusedHeight)}${piece('allowed', x, HEIGHT - refusedHeight - heightOf(allowed, most), heightOf(allowed, most))}</a>`
}

const piece = (kind: string, x: number, y: number, height: number): Html =>
  height === 0 ? NOTHING : rect(kind, x, Math.max(0, y), height)

const rect = (kind: string, x: number, y: number, height: number): Html =>
  html`<rect class="${kind}" x="${String(x)}" y="${y.toFixed(1)}" width="${String(WIDTH - GAP)}" height="${height.toFixed(1)}"/>`

const heightOf = (count: number, most: number): number =>
  count === 0 ? 0 : Math.max(LEAST, (count / most) * HEIGHT)

const isoOf = (at: number): string => new Date(at).toISOString()
const minuteOf = (at: number): string => isoOf(at).slice(0, 16).replace('T', ' ')

/** The end of a bar: its day too, where that is another one. */
const endOf = (from: number, to: number): string =>
  minuteOf(from).slice(0, 10) === minuteOf(to).slice(0, 10) ? minuteOf(to).slice(11) : minuteOf(to)
