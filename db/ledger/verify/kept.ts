import type { Kysely } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import type { DigestedState } from '../authority/ledger-state.ts'
import { MAIN_STREAM, type StoredRow } from '../record/leaf.ts'
import { listSegments, type StoredSegment } from '../tree/segments.ts'
import { statesUpTo, textOfState } from '../tree/states.ts'
import { currentTree, readEdge, tileReader } from '../tree/store.ts'
import type { TreeStart } from '../tree/walk.ts'
import { readState } from './recompute.ts'

/** The rows that are left of a ledger whose beginning is archived (docs/ledger.md#segments). */
export interface KeptRows {
  readonly segments: readonly StoredSegment[]
  /** The place after which they begin. */
  readonly after: number
  /** What the archived rows have left; null if that cannot be read. */
  readonly before: DigestedState | null
}

/** Finds which rows of a ledger are left; null if nothing is archived. */
export async function keptRows(kysely: Kysely<DatabaseSchema>): Promise<KeptRows | null> {
  const segments = await listSegments(kysely)
  const last = segments.at(-1)
  const tree = await currentTree(kysely)
  if (!last || !tree) return null
  const [state] = await statesUpTo({ kysely }, tree.tree, last.last + 1, 1)
  const text = state?.leaf === last.last + 1 ? await textOfState({ kysely }, state).catch(() => null) : null
  return { segments, after: last.last_place, before: text === null ? null : stateIn(text) }
}

/** How the rows that are left are verified: without what is before them, chains begin in the middle. */
export const chainStartOf = (kept: KeptRows | null) => ({
  authority: kept === null || kept.before !== null,
  isTail: kept !== null && kept.before === null,
  before: kept?.before ?? undefined,
})

function stateIn(text: string): DigestedState | null {
  try {
    return readState(text)
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
  }
}

/** The edge of the tree at the end of what is archived. */
export async function treeStartOf(kysely: Kysely<DatabaseSchema>, kept: KeptRows): Promise<TreeStart> {
  const size = (kept.segments.at(-1)?.last ?? -1) + 1
  const tree = await currentTree(kysely)
  return { size, edge: await readEdge(tileReader(kysely, tree?.tree ?? 0), size) }
}

/** Sees if the rows that are left say what is archived, and what the rows before them have left. */
export class KeptWatch {
  readonly #kept: KeptRows | null
  #first: StoredRow | null = null
  #saysSo = false

  constructor(kept: KeptRows | null) {
    this.#kept = kept
  }

  see(row: StoredRow): void {
    this.#first ??= row
    const last = this.#kept?.segments.at(-1)
    if (row.action !== 'ledger.archived' || row.stream !== last?.stream || row.seq !== last.seq) return
    const { file, first, sha256, state } = last
    this.#saysSo = row.detail === JSON.stringify({ file, first, last: last.last, sha256, state })
  }

  findings(): readonly string[] {
    if (!this.#kept) return []
    const { segments, before } = this.#kept
    const end = segments.at(-1)?.last ?? 0
    const { stream = '', seq = 0 } = this.#first ?? {}
    const isGap = stream === MAIN_STREAM && segments.at(-1)?.stream === MAIN_STREAM && seq > end + 2
    return [
      ...(this.#saysSo ? [] : [`no row says that the rows up to leaf ${end} are archived`]),
      ...(before ? [] : [`there is no state before leaf ${end + 1}, by which the rows behind it are judged`]),
      ...(isGap
        ? [`the rows begin with ${stream}:${seq}, but only those up to leaf ${end} are archived`]
        : []),
    ]
  }

  notes(): readonly string[] {
    if (!this.#kept) return []
    const { segments } = this.#kept
    const count = `${segments.length} segment${segments.length === 1 ? '' : 's'}`
    return [`not read: ${(segments.at(-1)?.last ?? 0) + 1} rows in ${count} of the archive`]
  }
}
