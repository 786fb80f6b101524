import type { Database } from '../../database.ts'
import type { StreamPage } from '../read/stream-page.ts'
import type { Ledger } from '../record/ledger.ts'
import { archiveBoundary } from '../tree/segments.ts'
import { archivedLines, missingRows } from './archived-lines.ts'
import {
  beginCursors,
  moveCursors,
  moveLeaves,
  noteCursorFailure,
  readCursors,
  type SinkCursors,
} from './cursors.ts'
import type { HeadWatch, StreamHead } from './heads.ts'
import type { LedgerLine } from './line.ts'

/** A reader of the ledger with a cursor that is stored. */
export interface LedgerFollower {
  /** The name by which its cursors are found again. */
  readonly name: string
  /** The first row that it gets when it is new: one that comes after now, or the first of all. */
  readonly from: 'now' | 'start'
  /** True: with the readable names of users, while they exist. */
  readonly names: boolean
  /**
   * Takes a page: at most 500 rows or 1 MiB, in order within a stream. Resolves when they are where they must be:
   * the cursor moves then, and only then. If it rejects, the page comes again later; if the process ends before the
   * cursor has moved, too. So each row comes at least once. It must end soon after the signal fires.
   */
  readonly take: (page: readonly LedgerLine[], signal: AbortSignal) => Promise<void>
  /**
   * The last row of each stream that is certain, of those where others were taken which may be lost: the cursor goes
   * back to there. Asked once before each look for rows. Absent: what was taken is certain.
   */
  readonly doubtful?: () => ReadonlyMap<string, number>
}

interface FollowDependencies {
  readonly database: Pick<Database, 'kysely' | 'engine' | 'archive' | 'audit'>
  readonly ledger: Pick<Ledger, 'commit'>
  readonly heads: HeadWatch
  readonly clock: () => number
}

/**
 * Has a reader take all rows up to the heads of now: a page of each stream in turn. Rejects with what `take` says, with
 * a LedgerError `conflict` if somebody else has moved the cursor, with one sentence if rows cannot be read.
 */
export async function followLedger(
  { database, ledger, heads: watch, clock }: FollowDependencies,
  follower: LedgerFollower,
  signal: AbortSignal,
): Promise<void> {
  const { name, names } = follower
  const commit = async (statements: Parameters<Ledger['commit']>[0]['statements']): Promise<void> =>
    void (await ledger.commit({ statements: statements ?? [], entries: [], lazy: true }))
  const { size: archived } = await archiveBoundary(database.kysely)
  const cursors = await readCursors(database, name)
  const heads = await watch.read()
  if (!cursors.begun) {
    const at = clock()
    const isNow = follower.from === 'now'
    return commit(beginCursors(database, name, isNow ? heads : [], { leaves: isNow ? archived : 0, at }))
  }
  const { places } = cursors
  let { leaves } = cursors

  async function take(lines: readonly LedgerLine[]): Promise<void> {
    signal.throwIfAborted()
    await follower.take(lines, signal)
    const ends = new Map(lines.map(({ stream, seq }) => [stream, seq]))
    const moves = [...ends].map(([stream, to]) => ({ stream, from: places.get(stream) ?? null, to }))
    await commit(moveCursors(database, name, moves, clock()))
    for (const [stream, seq] of ends) places.set(stream, seq)
  }

  async function passLeaves(to: number): Promise<void> {
    if (to <= leaves) return
    await commit(moveLeaves(database, name, { from: leaves, to }, clock()))
    leaves = to
  }

  let unread: string | null = null
  async function takeArchived(): Promise<void> {
    const question = { from: leaves, places, names }
    for await (const page of archivedLines(database, question, signal)) {
      if (page.lines.length > 0) await take(page.lines)
      await passLeaves(page.leaves)
      ;({ unread } = page)
    }
  }

  async function goBack(): Promise<void> {
    const doubtful = [...(follower.doubtful?.() ?? [])]
    const moves = doubtful.flatMap(([stream, to]) => {
      const from = places.get(stream) ?? 0
      return to < from ? [{ stream, from, to }] : []
    })
    if (moves.length > 0) await commit(moveCursors(database, name, moves, clock()))
    for (const { stream, to } of moves) places.set(stream, to)
  }

  let ahead: { readonly stream: string; readonly after: number; readonly page: Promise<StreamPage> } | null =
    null
  const readPage = (stream: string, after: number): Promise<StreamPage> =>
    database.audit.streamPage({ stream, after, names }, signal)
  const pageAfter = (stream: string, after: number): Promise<StreamPage> =>
    ahead?.stream === stream && ahead.after === after ? ahead.page : readPage(stream, after)

  let hasArchived = false
  /** Takes the next page of a stream. */
  async function takeNext({ stream, head }: StreamHead, isAlone: boolean): Promise<void> {
    const after = places.get(stream) ?? 0
    const { lines, gap } = await pageAfter(stream, after)
    if (lines.length > 0) {
      // The next page is read while this one is taken: of one stream, so that a reader holds two pages.
      const end = after + lines.length
      ahead = isAlone && end < head ? { stream, after: end, page: readPage(stream, end) } : null
      ahead?.page.catch(() => {})
      return take(lines.map((line, n) => ({ stream, seq: after + n + 1, line })))
    }
    if (gap === null) throw new Error(`the rows of ${stream} after ${after} are gone`)
    if (hasArchived) throw new Error(missingRows(stream, [after + 1, gap - 1], unread))
    hasArchived = true
    await takeArchived()
  }

  await goBack()
  const isBehind = ({ stream, head }: StreamHead): boolean => (places.get(stream) ?? 0) < head
  for (let behind = heads.filter(isBehind); behind.length > 0; behind = behind.filter(isBehind))
    for (const one of behind) await takeNext(one, behind.length === 1)
  // What was archived before the heads were read is behind them all.
  await passLeaves(archived)
  if (cursors.failure) await commit([noteCursorFailure(database, name, null)])
}

/** Stores since when a reader fails, and why. */
export async function noteFailing(
  { database, ledger, clock }: Omit<FollowDependencies, 'heads'>,
  { name }: Pick<LedgerFollower, 'name'>,
  error: string,
): Promise<void> {
  const { begun, failure }: SinkCursors = await readCursors(database, name)
  if (!begun || failure?.error === error) return
  const since = failure?.since ?? new Date(clock()).toISOString()
  const statements = [noteCursorFailure(database, name, { since, error })]
  await ledger.commit({ statements, entries: [], lazy: true })
}
