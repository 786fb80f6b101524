import type { Page } from '../page.ts'
import { all, counted, type Html, html, when } from '../parts.ts'
import { callsOf, FACETS, type Facet, type Found, linesOf, type Wanted } from './calls.ts'

/** The query's names: the audit API's, and those of what a decision says beside. */
const NAMES = [
  'principal',
  'action',
  'status',
  'reason',
  'tool',
  'model',
  'since',
  'until',
  'cursor',
] as const
const LINES = 100

/** GET /proxy/activity: one line for each call, newest first. The URL is the state: a bookmark is a saved view. */
export const activityPage: Page = async (dashboard, facts) => {
  const asked = new URLSearchParams(facts.query)
  const chosen = Object.fromEntries(
    NAMES.flatMap((name) => (asked.get(name) ? [[name, asked.get(name) ?? '']] : [])),
  )
  const noise = asked.get('noise') === 'yes'
  const found = await callsOf(dashboard, facts, { ...chosen, noise, most: LINES } satisfies Wanted)
  const here = (changes: Readonly<Record<string, string | null>>): string => queryOf(chosen, noise, changes)
  return {
    title: 'Activity',
    section: '/proxy/activity',
    body: html`<form class="search" action="/proxy/activity"><label>From <input name="since" value="${chosen.since ?? ''}" placeholder="2026-11-22T00:00:00Z"></label><label>to <input name="until" value="${chosen.until ?? ''}"></label>${all(
      Object.entries(chosen)
        .filter(([name]) => !['since', 'until', 'cursor'].includes(name))
        .map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`),
    )}<button>Show</button> <a href="${here({ noise: noise ? null : 'yes', cursor: null })}">${noise ? 'Hide' : 'Show'} lists of tools</a></form>
<p class="chips">${all(
      Object.entries(chosen)
        .filter(([name]) => name !== 'cursor')
        .map(
          ([name, value]) =>
            html`<a class="chip" href="${here({ [name]: null, cursor: null })}" title="Take this away">${name}: ${value} ×</a> `,
        ),
    )}</p>
<div class="beside"><aside aria-label="Narrow it">${all(FACETS.map((facet) => facetOf(facet, found, here)))}</aside>
<section id="calls" data-live="${chosen.cursor || chosen.until ? '' : here({})}">${linesOf(found.calls, facts.at, html`<p>No call fits.</p><p>An agent's first call shows up here: <code class="copy" tabindex="0">make demo</code> makes some.</p>`)}
<p class="faint">${counted(found.fitting, 'call fits', 'calls fit')} among the ${counted(found.rows, 'row')} that were looked at${found.oldest === null ? '' : `, back to ${found.oldest}`}.</p>
${when(found.next !== null, () => html`<p><a rel="next" href="${here({ cursor: found.next })}">Older</a></p>`)}</section></div>`,
  }
}

function queryOf(
  chosen: Readonly<Record<string, string>>,
  noise: boolean,
  changes: Readonly<Record<string, string | null>>,
): string {
  const next = new URLSearchParams({ ...chosen, ...(noise && { noise: 'yes' }) })
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) next.delete(name)
    else next.set(name, value)
  }
  return `/proxy/activity?${next.toString()}`
}

/** The words by which a facet is asked for: `principal` by the name that the ledger or the API has. */
const facetOf = (
  facet: Facet,
  { counts }: Found,
  here: (changes: Readonly<Record<string, string | null>>) => string,
): Html => {
  const values = [...counts[facet]].toSorted(([, a], [, b]) => b - a).slice(0, 12)
  if (values.length === 0) return html``
  return html`<h3>${facet === 'status' ? 'verdict' : facet}</h3><ul>${all(
    values.map(
      ([value, count]) =>
        html`<li><a href="${here({ [facet]: value, cursor: null })}">${value}</a> ${String(count)}</li>`,
    ),
  )}</ul>`
}
