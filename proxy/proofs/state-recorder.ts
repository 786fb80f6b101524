import type { Logger } from 'pino'
import type { Database } from '../../db/database.ts'
import { STATE_ACTION } from '../../db/ledger/authority/ledger-state.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { bytesOfState, type StoredState, statesUpTo, storeState } from '../../db/ledger/tree/states.ts'
import { currentTree } from '../../db/ledger/tree/store.ts'
import { TILE_WIDTH } from '../../db/ledger/tree/tiles.ts'
import { timestamp } from '../../db/support/statement.ts'
import { noteEntry } from '../../plugins/audit/entries.ts'
import { type RoundsTask, rounds } from '../tasks/rounds.ts'

const NAME = 'record-state'
const EVERY_MS = 15_000
/** The time from one state to the next. ms. */
const STATE_INTERVAL_MS = 86_400_000
/** A long way to catch up is said in the log. Rows. */
const MANY_ROWS = 1_000_000

export interface StateDependencies {
  readonly database: Pick<Database, 'kysely' | 'treeRows' | 'audit' | 'leads'>
  readonly ledger: Pick<Ledger, 'commit'>
  readonly configDigest: () => string
  readonly clock: () => number
  readonly log: Logger
}

interface StateWanted {
  readonly tree: number
  /** A multiple of 256 that is sealed. */
  readonly leaf: number
}

/**
 * Says once a day, in the process that leads, what the sealed rows so far have left (docs/ledger.md#state),
 * if 256 rows or more have been sealed since; and after so many rows.
 */
export function recordStates(given: StateDependencies & { readonly rows: () => number }): RoundsTask {
  const { database, clock, rows } = given
  return rounds({
    name: NAME,
    everyMs: EVERY_MS,
    leads: () => database.leads(NAME),
    atOnce: 1,
    waits: false,
    atStart: true,
    due: async function* (): AsyncGenerator<StateWanted> {
      const tree = await currentTree(database.kysely)
      if (!tree) return
      const [last] = await statesUpTo(database, tree.tree, tree.size, 1)
      const [from, sealed] = [last?.leaf ?? 0, wholeTiles(tree.size)]
      const next = from + wholeTiles(rows())
      const isLate = clock() - Date.parse(last?.at ?? tree.begun_at) >= STATE_INTERVAL_MS
      if (sealed >= next || (isLate && sealed > from)) yield { tree: tree.tree, leaf: Math.min(sealed, next) }
    },
    idOf: ({ tree }) => `${tree}`,
    work: async (wanted, signal) => {
      try {
        await recordState(given, wanted, signal)
      } catch (error) {
        if (!signal.aborted) given.log.warn({ err: error }, 'the state of the ledger could not be recorded')
      }
    },
  })
}

const wholeTiles = (leaves: number): number => leaves - (leaves % TILE_WIDTH)

/** Records the state of the first `leaf` sealed rows, a multiple of 256, unless it is. Throws an AbortError. */
export async function recordState(
  { database, ledger, configDigest, clock, log }: StateDependencies,
  { tree, leaf }: StateWanted,
  signal: AbortSignal,
): Promise<StoredState> {
  const [last] = await statesUpTo(database, tree, leaf, 1)
  if (last?.leaf === leaf) return last
  const before = last ? await bytesOfState(database, last) : null
  const [from, after] = [last?.leaf ?? 0, last?.place ?? 0]
  if (leaf - from > MANY_ROWS) log.info({ rows: leaf - from }, 'the state of the ledger is computed')
  const { place, sha256, state } = await database.audit.state({ after, count: leaf - from, before }, signal)
  const at = clock()
  const detail = { leaf, sha256 }
  const [row] = await ledger.commit({
    entries: [noteEntry({ action: STATE_ACTION, detail }, at, configDigest())],
    lazy: true,
  })
  if (!row) throw new Error('the row of a state was not stored')
  const { stream, seq } = row
  const stored = { tree, leaf, place, sha256, at: timestamp(at), stream, seq }
  await ledger.commit({ statements: [storeState(database, stored, state)], entries: [] })
  return stored
}
