import type { Trusted } from '../../db/ledger/tree/trusted.ts'
import { exportedRows } from '../../db/ledger/verify/export.ts'
import { type Inspection, inspectRows, type Rows } from '../../db/ledger/verify/inspect.ts'
import { linesOf } from '../lines.ts'
import { openPack, type Pack, wrongSum } from './pack.ts'
import { packTables } from './pack-tables.ts'
import { packTree } from './pack-tree.ts'

/**
 * Verifies a pack of evidence (docs/ledger.md#evidence): its digests; its rows, their tiles and checkpoints; and that what is
 * taken from the rows is what they make. Throws one sentence where the file is none.
 */
export async function inspectPack(
  path: string,
  shown: (rows: Rows) => Rows,
  trusted: Trusted,
): Promise<Inspection> {
  const pack = await openPack(path)
  try {
    const wrong = await wrongSum(pack.zip)
    return wrong === null ? await inspect(pack, shown, trusted) : { ...NOT_READ, findings: [wrong] }
  } finally {
    pack.zip.close()
  }
}

const NOT_READ: Inspection = {
  verdict: { ok: true, rows: 0, streams: 0, open_decisions: 0 },
  findings: [],
  cutShort: null,
  notes: [],
  authority: null,
  tree: null,
}

async function inspect(pack: Pack, shown: (rows: Rows) => Rows, trusted: Trusted): Promise<Inspection> {
  const { zip, first, rows, origin } = pack
  const isWhole = first === 0
  const notes: string[] = []
  const tree = packTree(pack, trusted, (sentence) => notes.push(sentence))
  const tables = await packTables(pack)
  // One row is asked for after the other: it is of the last line.
  let line = ''
  const lines = async function* (): AsyncGenerator<string | null> {
    for await (const next of linesOf(await zip.stream('rows.ndjson'))) {
      line = next ?? ''
      yield next
    }
  }
  let [from, until] = ['', '']
  const found = await inspectRows(shown(exportedRows(lines())), {
    authority: isWhole,
    isTail: !isWhole,
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
