import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { type ProvenRow, proveRows } from '../../proofs/request-proof.ts'
import { escapeHiddenJson } from '../../visible.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import {
  copyableCode,
  factList as factsOf,
  type HtmlFragment,
  html,
  htmlIf,
  joinHtml,
} from '../frame/parts.ts'

/** The rows of a request as the ledger has them: each with its exact leaf, its hash, and its proof once it is sealed. */
export async function ledgerCard(
  { context: { database } }: DashboardContext,
  id: string,
  rows: readonly AuditRow[],
): Promise<HtmlFragment> {
  const placed = await database.treeRows.ofRequest(id)
  const proven = await proveRows(database, placed)
  const leaves = new Map(placed.map(({ stream, seq, leaf }) => [`${stream}:${seq}`, leaf]))
  const proofs = new Map((proven ?? []).map((row) => [`${row.stream}:${row.seq}`, row]))
  const shown = rows.map((row) => {
    const place = `${row.stream}:${row.seq}`
    return rowOf(row, leaves.get(place) ?? null, proofs.get(place) ?? null)
  })
  const receipt = html`<p><a href="/v1/audit/proofs/${encodeURIComponent(id)}" download="${id}.json">Save as receipt</a>: rows, proofs, and the salts that open what they commit to. Verify it anywhere:</p>
<pre class="copy" tabindex="0">sallyport verify ${id}.json --body BODY --key VKEY</pre>`
  return html`<section class="card"><h2>In the ledger</h2>${joinHtml(shown)}
${htmlIf(proven !== null && placed.length > 0, () => receipt)}${htmlIf(proven === null, () => html`<p class="faint">Not sealed yet: that takes a second.</p>`)}</section>`
}

/** A row whole, as the export has it: what the hash is of, and what proves that it is in the log. */
const rowOf = (row: AuditRow, leaf: string | null, proof: ProvenRow | null): HtmlFragment =>
  html`<details><summary>${row.status}: row ${String(row.seq)} of ${row.stream}, <code>${row.row_hash.slice(0, 16)}</code></summary>${factsOf(
    [
      ['Hash', copyableCode(row.row_hash)],
      ['Before it', copyableCode(row.prev_hash)],
      ['Receipt', copyableCode(`stream=${row.stream}, seq=${row.seq}, hash=${row.row_hash}`)],
      ['Written by', `version ${row.version}, configuration ${row.config_digest}`],
    ],
  )}<pre>${JSON.stringify(row.detail, null, 2)}</pre>${htmlIf(leaf !== null, () => html`<details><summary>${escapeHiddenJson(leaf ?? '') === leaf ? 'Leaf: the exact bytes' : 'Leaf, with what hides escaped: an export has the exact bytes'}</summary><pre class="copy" tabindex="0">${escapeHiddenJson(leaf ?? '')}</pre></details>`)}${htmlIf(proof !== null, () => html`<details><summary>Inclusion proof, under a signed checkpoint</summary><pre class="copy" tabindex="0">${proof?.proof ?? ''}</pre></details>`)}</details>`
