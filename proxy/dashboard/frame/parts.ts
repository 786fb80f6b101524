import type { Refusal } from '../../../plugins/refusal.ts'
import { type HtmlFragment, html } from '../../operators/pages/html.ts'

/** Why something was not done, each field by name: by its own, or as `nameOf` calls it. */
export function problemList(
  { reason, message, detail }: Refusal,
  nameOf: (field: string) => string = (field) => field,
): HtmlFragment {
  const { errors, expectations } = detail as Detail
  // The refusal's message speaks of additions to the URL by callers of the API.
  if (reason === 'expectation_broken' && expectations)
    return html`<div class="problem" role="alert"><p>This would break an expectation:</p><ul>${expectations.map(({ line, sentence }) => html`<li>${sentence} (line ${String(line)})</li>`)}</ul></div>`
  if (!errors) return html`<p class="problem" role="alert">${message}</p>`
  return html`<ul class="problem" role="alert">${errors.map(({ field, message: why }) => html`<li><code>${nameOf(field)}</code> ${why}</li>`)}</ul>`
}

interface Detail {
  readonly errors?: readonly { readonly field: string; readonly message: string }[]
  readonly expectations?: readonly { readonly line: number; readonly sentence: string }[]
}

export { EMPTY_HTML, exactHtml, HtmlFragment, html } from '../../operators/pages/html.ts'

const UNITS: readonly (readonly [name: string, ms: number])[] = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1_000],
]

/** An instant relative to `now`, the exact one on hover. `at`: RFC 3339, or null: never. */
export function relativeTime(at: string | null, now: number): HtmlFragment {
  if (at === null) return html`<span class="faint">never</span>`
  return html`<time datetime="${at}" title="${at}">${relativeText(Date.parse(at) - now)}</time>`
}

/** An instant to the second, and relative to `now`. `at`: RFC 3339, or null: never. */
export const exactTime = (at: string | null, now: number): HtmlFragment =>
  at === null
    ? relativeTime(at, now)
    : html`${relativeTime(at, now)} <span class="faint">${at.slice(0, 19).replace('T', ' ')}</span>`

function relativeText(ms: number): string {
  const [name, unit] = UNITS.find(([, least]) => Math.abs(ms) >= least) ?? ['s', 1_000]
  const count = Math.floor(Math.abs(ms) / unit)
  if (count === 0) return 'now'
  return ms < 0 ? `${count} ${name} ago` : `in ${count} ${name}`
}

export const countWithNoun = (count: number, one: string, many = `${one}s`): string =>
  `${count.toLocaleString('en')} ${count === 1 ? one : many}`

/** A value that somebody may want elsewhere: selected by a click, copied by a script. */
export const copyableCode = (value: string): HtmlFragment =>
  html`<code class="copy" tabindex="0">${value}</code>`

/** Lines that somebody takes along, under what they are for. A script puts a button beside that. */
export const copyableCommand = (title: string, text: HtmlFragment): HtmlFragment =>
  html`<figure class="command"><figcaption>${title}</figcaption><pre class="copy" tabindex="0">${text}</pre></figure>`

export const capabilityTokens = (capabilities: readonly string[]): HtmlFragment =>
  capabilities.length === 0
    ? html`<span class="faint">nothing</span>`
    : html`${capabilities.map((one) => html`<span class="token">${one}</span> `)}`

export const factList = (
  rows: readonly (readonly [name: string, value: HtmlFragment | string])[],
): HtmlFragment =>
  html`<dl class="facts">${rows.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`

/** A table; if there are no rows, what to do about that. */
export const dataTable = (
  heads: readonly string[],
  rows: readonly HtmlFragment[],
  empty: HtmlFragment,
): HtmlFragment =>
  rows.length === 0
    ? html`<div class="empty">${empty}</div>`
    : html`<div class="wide" role="region" tabindex="0" aria-label="${heads.filter((head) => head !== '').join(', ')}"><table><thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
<tbody>${rows}</tbody></table></div>`

export const csrf = (session: { readonly csrf: string } | undefined): HtmlFragment =>
  html`<input type="hidden" name="csrf" value="${session?.csrf ?? ''}">`

/** A button that posts to `action`; if its operator may not, the capability it needs instead. */
export const button = (
  facts: PageViewer,
  needs: string,
  action: string,
  label: string,
  fields: Readonly<Record<string, string>> = {},
): HtmlFragment =>
  hasCapability(facts, needs)
    ? html`<form method="post" action="${action}" class="inline">${csrf(facts.session)}${Object.entries(
        fields,
      ).map(
        ([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`,
      )}<button>${label}</button></form>`
    : html`<span class="needs">${label} needs <code>${needs}</code></span>`

export interface PageViewer {
  readonly actor: { readonly capabilities: readonly string[] }
  readonly session?: { readonly csrf: string }
}

export const hasCapability = ({ actor }: PageViewer, capability: string): boolean =>
  actor.capabilities.includes(capability)

export const pathOf = (plural: string, id: string): string => `/proxy/${plural}/${encodeURIComponent(id)}`
