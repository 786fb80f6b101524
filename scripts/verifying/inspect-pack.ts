import type { DigestedState } from '../../db/ledger/authority/ledger-state.ts'
import type { LogTrust } from '../../db/ledger/tree/trusted.ts'
import { exportedRows } from '../../db/ledger/verify/export.ts'
import { inspectRows, type LedgerInspection, type RowSource } from '../../db/ledger/verify/inspect.ts'
import { recomputer, statesSaidIn } from '../../db/ledger/verify/recompute.ts'
import { lineBlocks, streamLines } from '../lines.ts'
import { checksumFault, type EvidencePack, openPack } from './pack.ts'
import { packTables } from './pack-tables.ts'
import { packTree } from './pack-tree.ts'

/**
 * Verifies a pack of evidence (docs/ledger.md#evidence): its digests; its rows, their tiles and checkpoints;
 * and that the tables are those that the rows make. Throws one sentence if the file is none.
 */
export async function inspectPack(
  path: string,
  shown: (rows: RowSource) => RowSource,
  trusted: LogTrust,
): Promise<LedgerInspection> {
  const pack = await openPack(path)
  try {
    const wrong = await checksumFault(pack.zip)
    if (wrong !== null) return { ...NOT_READ, findings: [wrong] }
    const before = pack.first === 0 ? undefined : await pack.start()
    return before === null
      ? { ...NOT_READ, findings: ['state-start.json is no state'] }
      : await inspect(pack, before, shown, trusted)
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
  before: DigestedState | undefined,
  shown: (rows: RowSource) => RowSource,
  trusted: LogTrust,
): Promise<LedgerInspection> {
  const { zip, first, rows, origin } = pack
  const isWhole = first === 0 || before !== undefined
  const due = await statesSaidIn(lineBlocks(await zip.stream('rows.ndjson')))
  const walk = recomputer({ before, due })
  const notes: string[] = []
  const tree = packTree(pack, trusted, (sentence) => notes.push(sentence))
  const tables = await packTables(pack, walk)
  // One row is asked for after the other: it is of the last line.
  let line = ''
  const lines = async function* (): AsyncGenerator<string | null> {
    for await (const next of streamLines(await zip.stream('rows.ndjson'))) {
      line = next ?? ''
      yield next
    }
  }
  let [from, until] = ['', '']
  const found = await inspectRows(shown(exportedRows(lines())), {
    authority: isWhole,
    isTail: !isWhole,
    before,
    walk,
    tree,
    onRow: (row) => {
      if (from === '' || row.recorded_at < from) from = row.recorded_at
      if (row.recorded_at > until) until = row.recorded_at
      tables.see(row, line)
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
