import { copyableCode, dataTable, EMPTY_HTML, type HtmlFragment, html, joinHtml } from '../frame/parts.ts'
import type { ConfigurationInForce } from './in-force.ts'

/** The operators' files in force: where each lies, which lines say what, and its digest. No value of any. */
export const filesCard = ({ files }: ConfigurationInForce, digest: string): HtmlFragment =>
  html`<section class="card"><h2>Files in force</h2><p>All together: ${copyableCode(digest)}</p>${dataTable(
    ['File', 'Plugin', 'Options and their lines', 'Digest'],
    files.map(
      ({ path, plugin, shadow, options, digest: own }) =>
        html`<tr><td>${copyableCode(path)}</td><td>${plugin}${shadow ? html` <span class="badge">only watches</span>` : EMPTY_HTML}</td><td>${joinHtml(options.map(({ name, line }) => html`<code>${name}</code> <span class="faint">line ${String(line)}</span> `))}</td><td><code title="${own}">${own.slice(0, 12)}</code></td></tr>`,
    ),
    html`<p>There are none.</p>`,
  )}<p class="faint">On the machine, <code class="copy" tabindex="0">make check-config</code> says what they come to, before they are reloaded.</p></section>`
