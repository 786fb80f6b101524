import { promisify } from 'node:util'
import { inflate } from 'node:zlib'
import type { Kysely } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import type { DigestedState } from '../authority/ledger-state.ts'
import { MAIN_STREAM, type StoredRow } from '../record/leaf.ts'
import { listSegments, type StoredSegment } from '../tree/segments.ts'
import type { SignedCheckpoint } from '../tree/trusted.ts'
import { unreadSegments } from './inspect.ts'
import { readState } from './recompute.ts'

/** The rows that are read of a ledger whose beginning is archived (docs/ledger.md#segments), or is under a checkpoint. */
export interface KeptRows {
  readonly segments: readonly StoredSegment[]
  /** The place after which they begin. */
  readonly after: number
  /** The leaves before them. */
  readonly size: number
  /** The state that the rows before them have left; null if it cannot be read. */
  readonly before: DigestedState | null
  /** The leaves between what is archived and the first of them. */
  readonly skipped: number
}

/** Finds which rows of a ledger are left; null if nothing is archived. */
export async function keptRows(kysely: Kysely<DatabaseSchema>): Promise<KeptRows | null> {
  const segments = await listSegments(kysely)
  const last = segments.at(-1)
  if (!last) return null
  const stored = await statesOf(kysely, last.last + 1)
    .orderBy('tree', 'desc')
    .executeTakeFirst()
  const before = stored?.leaf === last.last + 1 ? await stateIn(stored.state) : null
  return { segments, after: last.last_place, size: last.last + 1, before, skipped: 0 }
}

/**
 * Finds the rows behind the last state before a checkpoint; all that are left if there is none. Throws one
 * sentence if the checkpoint ends in what is archived.
 */
export async function rowsSince(
  kysely: Kysely<DatabaseSchema>,
  { size }: Pick<SignedCheckpoint, 'size'>,
): Promise<KeptRows | null> {
  const kept = await keptRows(kysely)
  const archived = kept?.size ?? 0
  if (size < archived)
    throw new Error(
      `the checkpoint is of ${size} rows, but the first ${archived} are archived: add --archive and their folder`,
    )
  const stored = await statesOf(kysely, size)
    .where('tree', '=', (of) => of.selectFrom('audit_trees').select(({ fn }) => fn.max('tree').as('tree')))
    .executeTakeFirst()
  if (!stored || stored.leaf <= archived) return kept
  const { leaf, place } = stored
  const [segments, before] = [kept?.segments ?? [], await stateIn(stored.state)]
  return { segments, after: place, size: leaf, before, skipped: leaf - archived }
}

const statesOf = (kysely: Kysely<DatabaseSchema>, leaf: number) =>
  kysely.selectFrom('audit_states').selectAll().where('leaf', '<=', leaf).orderBy('leaf', 'desc').limit(1)

/** Why a verification cannot begin in the middle. */
export const NO_STATES =
  'the database is of another version of the service, or not whole: verify it without --since'

/** The start of a verification of them: without what is before them, chains begin in the middle. */
export const chainStartOf = (kept: KeptRows | null) => ({
  authority: kept === null || kept.before !== null,
  isTail: kept !== null && kept.before === null,
  before: kept?.before ?? undefined,
})

const inflated = promisify(inflate)
/** A million principals. */
const MAX_STATE_BYTES = 512 * 1_048_576

/** Reads a stored state; null if it is none. */
async function stateIn(stored: Uint8Array): Promise<DigestedState | null> {
  try {
    return readState((await inflated(stored, { maxOutputLength: MAX_STATE_BYTES })).toString())
  } catch (error) {
    if (error instanceof Error) return null
    throw error
  }
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
    const { segments, before, size, skipped } = this.#kept
    const end = segments.at(-1)?.last ?? 0
    const { stream = '', seq = 0 } = this.#first ?? {}
    const isGap = stream === MAIN_STREAM && segments.at(-1)?.stream === MAIN_STREAM && seq > end + 2
    return [
      ...(this.#saysSo || skipped > 0 ? [] : [`no row says that the rows up to leaf ${end} are archived`]),
      ...(before ? [] : [`there is no state before leaf ${size}, by which the rows behind it are judged`]),
      ...(isGap && skipped === 0
        ? [`the rows begin with ${stream}:${seq}, but only those up to leaf ${end} are archived`]
        : []),
    ]
  }

  /** `since`: the checkpoint behind which rows are verified. */
  notes(since?: Pick<SignedCheckpoint, 'size'>): readonly string[] {
    const { segments = [], size = 0, skipped = 0 } = this.#kept ?? {}
    const under = since && `the checkpoint of ${since.size} rows`
    return [
      ...(segments.length > 0 ? [unreadSegments(size - skipped, segments.length)] : []),
      ...(under === undefined
        ? []
        : skipped > 0
          ? [`not read: ${skipped} rows before leaf ${size}, which are under ${under}`]
          : [`no state is stored before ${under}: every row that is here was read`]),
    ]
  }
}
