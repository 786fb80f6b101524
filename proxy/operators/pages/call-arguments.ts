import { escapeHidden, hiddenCharacters } from '../../visible.ts'
import { EMPTY_HTML, type HtmlFragment, html } from './html.ts'

/** The most spaces in a row that a reader sees as they are. */
const MAX_SPACES = 3

// Blanks of other kinds look like spaces, and are none.
const BLANKS = /( {4,}|[\p{Zs}--[ ]]+)/v

/**
 * Renders all arguments of a call, uncut. Characters that hide are written out, and many spaces in a row are
 * counted: what stands behind them is next to them.
 */
export function renderArguments(text: string): HtmlFragment {
  const parts = text.split(BLANKS)
  return html`${warningOf(text)}<pre class="whole">${parts.map((part, at) => (at % 2 === 0 ? html`${part}` : blanksOf(part)))}</pre>`
}

function blanksOf(run: string): HtmlFragment {
  if (run.startsWith(' ')) return html`<mark>${String(run.length)} spaces</mark>`
  const codes = Array.from(run, (one) => `\\u{${(one.codePointAt(0) ?? 0).toString(16)}}`)
  return html`<mark>${codes.join('')}</mark>`
}

function warningOf(text: string): HtmlFragment {
  const hidden = [...hiddenCharacters(text).values()].flat()
  const isLong = new RegExp(` {${MAX_SPACES + 1},}`).test(text)
  const said = [
    ...(hidden.length > 0 ? [`characters that hide: ${hidden.join(', ')}`] : []),
    ...(isLong ? ['many spaces in a row'] : []),
  ]
  return said.length === 0
    ? EMPTY_HTML
    : html`<p><span class="badge warn">look closely</span> There are ${escapeHidden(said.join('; '))}.</p>`
}
