import { promisify } from 'node:util'
import { inflate } from 'node:zlib'
import type { Kysely, Selectable } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import type { DigestedState } from '../authority/ledger-state.ts'
import { MAIN_STREAM, type StoredRow } from '../record/leaf.ts'
import { readState } from './recompute.ts'

/** A segment of the archive, as the table has it. */
type KeptSegment = Selectable<DatabaseSchema['audit_segments']>

/** The rows that are left of a ledger whose beginning is archived (docs/ledger.md#segments). */
export interface KeptRows {
  readonly segments: readonly KeptSegment[]
  /** The place after which they begin. */
  readonly after: number
  /** The state that the archived rows have left; null if it cannot be read. */
  readonly before: DigestedState | null
}

/** Finds which rows of a ledger are left; null if nothing is archived. */
export async function keptRows(kysely: Kysely<DatabaseSchema>): Promise<KeptRows | null> {
  const segments = await kysely.selectFrom('audit_segments').selectAll().orderBy('first').execute()
  const last = segments.at(-1)
  if (!last) return null
  const stored = await kysely
    .selectFrom('audit_states')
    .select('state')
    .where('leaf', '=', last.last + 1)
    .orderBy('tree', 'desc')
    .limit(1)
    .executeTakeFirst()
  return { segments, after: last.last_place, before: stored ? await stateIn(stored.state) : null }
}

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
