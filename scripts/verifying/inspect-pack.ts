import type { DigestedState } from '../../db/ledger/authority/ledger-state.ts'
import type { LogTrust } from '../../db/ledger/tree/trusted.ts'
import { exportedPages } from '../../db/ledger/verify/export.ts'
import { inspectRows, type LedgerInspection, type ShowRows } from '../../db/ledger/verify/inspect.ts'
import { recomputer, StatesSaid } from '../../db/ledger/verify/recompute.ts'
import { lineBlocks } from '../lines.ts'
import { checksumFault, type EvidencePack, openPack } from './pack.ts'
import { packRowReader } from './pack-rows.ts'
import { packTables } from './pack-tables.ts'
import { packTree } from './pack-tree.ts'

/**
 * Verifies a pack of evidence (docs/ledger.md#evidence): its digests; its rows, their tiles and checkpoints;
 * and that the tables are those that the rows make. Throws one sentence if the file is none.
 */
export async function inspectPack(
  path: string,
  shown: ShowRows,
  trusted: LogTrust,
): Promise<LedgerInspection> {
  const pack = await openPack(path)
  try {
    const said = new StatesSaid()
    const wrong = await checksumFault(pack.zip, (chunk) => said.see(chunk))
    if (wrong !== null) return { ...NOT_READ, findings: [wrong] }
    const before = pack.first === 0 ? undefined : await pack.start()
    return before === null
      ? { ...NOT_READ, findings: ['state-start.json is no state'] }
      : await inspect(pack, { before, due: said.leaves }, shown, trusted)
  } finally {
    pack.zip.close()
  }
}

const NOT_READ: LedgerInspection = {
  verdict: { ok: true, rows: 0, streams: 0, open_decisions: 0 },
  findings: [],
  cutShort: null,
  notes: [],
  authority: null,
  tree: null,
}

async function inspect(
  pack: EvidencePack,
  { before, due }: { readonly before: DigestedState | undefined; readonly due: ReadonlySet<number> },
  shown: ShowRows,
  trusted: LogTrust,
): Promise<LedgerInspection> {
  const { zip, first, rows, origin } = pack
  const isWhole = first === 0 || before !== undefined
  const walk = recomputer({ before, due })
  const notes: string[] = []
  const tree = packTree(pack, trusted, (sentence) => notes.push(sentence))
  const tables = await packTables(pack, walk)
  let [from, until] = ['', '']
  const read = exportedPages(lineBlocks(await zip.stream('rows.ndjson')), {
    reader: packRowReader,
    onPage: tables.begin,
  })
  const found = await inspectRows(shown(read, rows), {
    authority: isWhole,
    isTail: !isWhole,
    before,
    walk,
    tree,
    onRow: (row) => {
      const at = row.recorded_at
      if (from === '' || at < from) from = at
      if (at > until) until = at
      tables.see(row)
    },
  })
  const isSound = found.verdict.ok && found.tree?.problems.length === 0 && found.tree.cutShort === null
  if (!isWhole)
    notes.push('not proven: decisions, and sets-start.json, which rest on rows in front of the pack')
  return {
    ...found,
    findings: [...found.findings, ...(isSound ? await tables.findings() : [])],
    notes: [
      `leaves ${first} to ${first + rows - 1} of ${origin}, recorded from ${from} to ${until}`,
      ...notes,
    ],
  }
}
