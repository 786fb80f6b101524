import type { DigestedState } from '../authority/ledger-state.ts'
import { LeafRow, rowLeafVersion } from '../canonical/leaf-row.ts'
import type { StoredRow } from '../record/leaf.ts'
import { leafHash } from '../tree/hashes.ts'
import type { TreeInspection, TreeVerdict } from '../tree/inspect.ts'
import { type DecisionRecomputer, isSound, type RecomputationReport, recomputer } from './recompute.ts'
import { chainVerifier, type DamagedRow, type LedgerVerdict } from './verify.ts'

export interface LedgerInspection {
  readonly verdict: LedgerVerdict
  /** Faults outside the chains, each as a sentence. */
  readonly findings: readonly string[]
  /** Why rows are missing at the end, as a sentence; null if that is not known. */
  readonly cutShort: string | null
  /** Omitted comparisons, and why. No fault. */
  readonly notes: readonly string[]
  /** Null if it was not asked for, or a chain is broken. */
  readonly authority: RecomputationReport | null
  /** Null if there is nothing to compare the rows with, or a chain is broken. */
  readonly tree: TreeVerdict | null
}

/** The exit code of an inspection, by precedence (docs/ledger.md#verifying). */
export function exitCodeOf({
  verdict,
  findings,
  cutShort,
  authority,
  tree,
}: LedgerInspection): 0 | 2 | 3 | 4 | 5 {
  if (!verdict.ok || findings.length > 0) return 2
  if (tree && tree.problems.length > 0) return 3
  if (cutShort !== null || (tree && tree.cutShort !== null)) return 4
  return authority && !isSound(authority) ? 5 : 0
}

/** Says how many rows are archived. */
export const unreadSegments = (rows: number, segments: number): string =>
  `not read: ${rows} rows in ${segments} segment${segments === 1 ? '' : 's'} of the archive`

/** Shows the progress of rows. `total`: how many come, as far as that is known. The same rows. */
export type ShowRows = (rows: RowSource, total?: number | ((done: number) => number)) => RowSource

/** Rows one after the other, or page by page. */
export type RowSource = AsyncIterable<RowOrPage> | Iterable<RowOrPage>

type RowOrPage = StoredRow | DamagedRow | readonly (StoredRow | DamagedRow)[]

export const pageOf = (next: RowOrPage): readonly (StoredRow | DamagedRow)[] => (isPage(next) ? next : [next])

const isPage = (next: RowOrPage): next is readonly (StoredRow | DamagedRow)[] => Array.isArray(next)

interface InspectRowsOptions {
  /** True: recompute decisions. */
  readonly authority: boolean
  /** True: a stream may begin in the middle, since something else binds the rows before. */
  readonly isTail?: boolean
  /** The state before the first row; one of the rows must say it. */
  readonly before?: DigestedState | undefined
  /** Sees each row that is whole. */
  readonly onRow?: (row: StoredRow) => void
  /** Makes the recomputation; for callers that read its state. */
  readonly walk?: DecisionRecomputer
  /** Compares the rows with their tree. Absent: there is none. */
  readonly tree?: TreeInspection | undefined
}

export async function inspectRows(
  rows: RowSource,
  { authority, isTail = false, before, onRow, walk = recomputer({ before }), tree }: InspectRowsOptions,
): Promise<LedgerInspection> {
  const chains = chainVerifier({
    tail: isTail,
    ...(authority ? { heads: walk.heads } : { streams: before?.state.streams }),
  })
  const findings: string[] = []
  reading: for await (const next of rows)
    for (const row of pageOf(next)) {
      if (!chains.add(row) || 'damaged' in row) break reading
      if (row.seq === 1 && !mayBegin(row))
        findings.push(`stream ${row.stream} does not begin with service.started`)
      if (authority) walk.add(row)
      onRow?.(row)
      const read = tree?.add(row instanceof LeafRow ? row.leafHash : leafHash(row.leaf))
      if (read) await read
    }
  const verdict = chains.verdict()
  const sealed = tree && verdict.ok ? await tree.verdict() : null
  // The row may be among those that are cut off.
  const isCut = sealed !== null && sealed.cutShort !== null && sealed.sealed === 0
  if (verdict.ok && before && !isCut && !walk.hasProven(before.state.leaf))
    findings.push(`no row says the state before leaf ${before.state.leaf}`)
  return {
    verdict,
    findings,
    cutShort: null,
    notes: [],
    authority: authority && verdict.ok ? walk.result() : null,
    tree: sealed,
  }
}

// Operators may act before the service has ever served: `make agent` on a new data directory.
const mayBegin = (row: StoredRow): boolean =>
  rowLeafVersion(row) === 1 || row.action === 'service.started' || row.principal_type === 'operator'
