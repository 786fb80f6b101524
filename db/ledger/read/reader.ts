import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Kysely } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import { parseLedgerCursor } from '../../support/cursor.ts'
import { stateText } from '../authority/ledger-state.ts'
import { SINGLE_STREAM_DIALECT } from '../counts/dialect.ts'
import type { CountedWindow, MinuteCounts, WindowCounts } from '../counts/row-counts.ts'
import type { SpendAnswer, SpendQuestion } from '../counts/spend-counts.ts'
import { groupSpends } from '../counts/spend-store.ts'
import { countPortion, countWithin } from '../counts/store.ts'
import { LedgerError } from '../record/entry.ts'
import { hashOf } from '../record/leaf.ts'
import { leafHash } from '../tree/hashes.ts'
import { stateBytes, stateTextIn } from '../tree/states.ts'
import { readState, recomputer } from '../verify/recompute.ts'
import type { LedgerVerdict } from '../verify/verify.ts'
import { type ArchiveFolder, ROWS_PER_READ, type RowFilter } from './find.ts'
import { exportedLines, ledgerRows, pageTexts, type ReadLedgerPages, verifyWithProgress } from './read.ts'
import { readStreamPage, type StreamPage, type StreamPageQuestion, streamPageTexts } from './stream-page.ts'

export type LedgerQuestion =
  | ({ readonly kind: 'list'; readonly filter: RowFilter } & ArchiveQuestion)
  | ({ readonly kind: 'export' } & ArchiveQuestion)
  | ({ readonly kind: 'stream' } & StreamPageQuestion)
  | { readonly kind: 'verify' }
  /** The hashes of the leaves of one stream, as bytes. */
  | { readonly kind: 'leaf-hashes'; readonly after: number; readonly most: number }
  /** One stream's rows: after a place, or in a window. */
  | { readonly kind: 'portion'; readonly after: number; readonly most: number }
  | { readonly kind: 'counts'; readonly window: CountedWindow }
  | { readonly kind: 'spends'; readonly asked: SpendQuestion }
  | { readonly kind: 'first-since'; readonly instant: string }
  | ({ readonly kind: 'state' } & StateQuestion)

/** `folder`: of the archive, into which the answer goes on. */
interface ArchiveQuestion {
  readonly folder: string | null
}

/** Asks what `count` rows after a place leave of a state (docs/ledger.md#state), as it is stored; null: of nothing. */
interface StateQuestion {
  readonly after: number
  readonly count: number
  readonly before: Uint8Array | null
}

/** A state as it is stored, and the place of the last row that made it. */
export interface MadeState {
  readonly place: number
  readonly sha256: string
  readonly state: Buffer
}

/** An answer: text as UTF-8, in pieces of {@link PIECE} and a row at the most. */
export type AnswerPieces = AsyncGenerator<Uint8Array<ArrayBuffer>, void, void>

/** Makes each piece when it is asked for. Throws an AbortError when the signal fires. */
export interface LedgerReaderBackend {
  readonly ask: (question: LedgerQuestion, signal: AbortSignal) => AnswerPieces
  readonly close: () => Promise<void>
}

const PIECE = 65_536

/** Answers on this thread. `pages`: how the engine reads the whole ledger; default stream by stream. */
export async function* answerTo(
  db: Kysely<DatabaseSchema>,
  question: LedgerQuestion,
  signal: AbortSignal,
  pages?: ReadLedgerPages,
): AnswerPieces {
  if (question.kind === 'leaf-hashes') return yield* leafHashes(db, question, signal)
  const encoder = new TextEncoder()
  if (question.kind === 'verify') {
    for await (const step of verifyWithProgress(db, { signal, ...(pages && { pages }) }))
      yield encoder.encode(JSON.stringify(step))
    return
  }
  if (question.kind === 'state') return yield* stateAfter(db, question, signal, pages)
  let text = ''
  for await (const next of textsOf(db, question, signal, pages)) {
    text += next
    if (text.length < PIECE) continue
    yield encoder.encode(text)
    text = ''
  }
  if (text !== '') yield encoder.encode(text)
}

function textsOf(
  db: Kysely<DatabaseSchema>,
  question: Exclude<LedgerQuestion, { readonly kind: 'leaf-hashes' | 'verify' | 'state' }>,
  signal: AbortSignal,
  pages: ReadLedgerPages | undefined,
): AsyncIterable<string> | Iterable<Promise<string>> {
  if (question.kind === 'stream') return streamPageTexts(db, question, signal)
  if (question.kind === 'list') return pageTexts(db, question.filter, signal, question.folder)
  if (question.kind === 'portion')
    return [countPortion(db, SINGLE_STREAM_DIALECT, { ...question, until: LAST }).then(asText)]
  if (question.kind === 'first-since') return [firstSince(db, question.instant, signal).then(asText)]
  if (question.kind === 'counts')
    return [countWithin(db, SINGLE_STREAM_DIALECT, question.window).then(asText)]
  if (question.kind === 'spends') return [groupSpends(db, SINGLE_STREAM_DIALECT, question.asked).then(asText)]
  return exportedLines(db, { signal, ...(pages && { pages }) }, question.folder)
}

async function* stateAfter(
  db: Kysely<DatabaseSchema>,
  { after, count, before }: StateQuestion,
  signal: AbortSignal,
  pages: ReadLedgerPages | undefined,
): AnswerPieces {
  const state = before === null ? undefined : readState(await stateTextIn(before))
  if (state === null) throw new Error('the stored state of the ledger is none')
  const walk = recomputer({ before: state, judges: false })
  let [left, place] = [count, after]
  for await (const row of ledgerRows(db, { signal, after, ...(pages && { pages }) })) {
    if ('damaged' in row) break
    walk.add(row)
    // The place by which an engine orders rows.
    place = 'place' in row && typeof row.place === 'number' ? row.place : row.seq
    left -= 1
    if (left === 0) break
  }
  if (left > 0) throw new Error(`${left} rows are missing before the state of leaf ${count}`)
  const text = stateText(walk.state())
  yield Uint8Array.from(Buffer.from(`${place} ${hashOf(text)}\n`))
  yield Uint8Array.from(await stateBytes(text))
}

const SPAN = 4_096

/**
 * The seq of the first row recorded at or after an instant; null if there is none. Span by span: a clock may
 * have been set back, so no index can say.
 */
async function firstSince(
  db: Kysely<DatabaseSchema>,
  instant: string,
  signal: AbortSignal,
): Promise<number | null> {
  const { first, last } = await db
    .selectFrom('audit_log')
    .select(({ fn }) => [fn.min<number>('seq').as('first'), fn.max<number>('seq').as('last')])
    .executeTakeFirstOrThrow()
  for (let after = first - 1; after < last; after += SPAN) {
    const found = await db
      .selectFrom('audit_log')
      .select('seq')
      .where('seq', '>', after)
      .where('seq', '<=', after + SPAN)
      .where('recorded_at', '>=', instant)
      .orderBy('seq')
      .limit(1)
      .executeTakeFirst()
    if (found) return found.seq
    await nextTurn(undefined, { signal })
  }
  return null
}

const asText = (value: unknown): string => JSON.stringify(value)

const LAST = Number.MAX_SAFE_INTEGER

async function* leafHashes(
  db: Kysely<DatabaseSchema>,
  { after, most }: { readonly after: number; readonly most: number },
  signal: AbortSignal,
): AnswerPieces {
  for (let done = 0; done < most; ) {
    const rows = await db
      .selectFrom('audit_log')
      .select('leaf')
      .where('seq', '>', after + done)
      .orderBy('seq')
      .limit(Math.min(ROWS_PER_READ, most - done))
      .execute()
    // A copy with a buffer of its own, which is handed over.
    if (rows.length > 0) yield Uint8Array.from(Buffer.concat(rows.map(({ leaf }) => leafHash(leaf))))
    if (rows.length < ROWS_PER_READ) return
    done += rows.length
    await nextTurn(undefined, { signal })
  }
}

const NEVER = new AbortController().signal

// Each holds some rows in memory, and all share one thread.
const MAX_PAGE_READS = 16
const MAX_WHOLE_READS = 10

/**
 * Reads the ledger for operators. A question ends when its signal fires, which it must if the answer is not
 * read to its end. Rejects with a {@link LedgerError} `busy` if 16 pages are being read, or 10 exports and
 * verifications.
 */
export class LedgerReader {
  readonly #answering: LedgerReaderBackend
  readonly #archive: ArchiveFolder
  readonly #pages = new ReadSlots(MAX_PAGE_READS)
  readonly #whole = new ReadSlots(MAX_WHOLE_READS)

  constructor(answering: LedgerReaderBackend, archive: ArchiveFolder = { path: null }) {
    this.#answering = answering
    this.#archive = archive
  }

  /**
   * One page as JSON text; resolves when its first piece is there. Rejects with a RangeError for a cursor of
   * others.
   */
  async list(filter: RowFilter, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    if (filter.cursor !== undefined) parseLedgerCursor(filter.cursor)
    return this.#begin(this.#pages, { kind: 'list', filter, folder: this.#archive.path }, signal)
  }

  export(signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    return this.#begin(this.#whole, { kind: 'export', folder: this.#archive.path }, signal)
  }

  async verify(signal: AbortSignal, onRows?: (rows: number) => void): Promise<LedgerVerdict> {
    let last: number | LedgerVerdict = 0
    const pieces = await this.#begin(this.#whole, { kind: 'verify' }, signal)
    for await (const piece of pieces) {
      // Proven by answerTo.
      last = JSON.parse(Buffer.from(piece).toString()) as number | LedgerVerdict
      if (typeof last === 'number') onRows?.(last)
    }
    if (typeof last === 'number') throw new Error('verifying ended without a verdict')
    return last
  }

  /** Reads the rows of a stream after a place, as many as one page holds. Throws an AbortError. */
  async streamPage(question: StreamPageQuestion, signal: AbortSignal): Promise<StreamPage> {
    return readStreamPage(await joinPieces(this.#answering.ask({ kind: 'stream', ...question }, signal)))
  }

  async leafHashes(after: number, most: number): Promise<Buffer> {
    const pieces: Uint8Array[] = []
    const question: LedgerQuestion = { kind: 'leaf-hashes', after, most }
    for await (const piece of this.#answering.ask(question, NEVER)) pieces.push(piece)
    return Buffer.concat(pieces)
  }

  async portion(after: number, most: number): Promise<MinuteCounts> {
    // Proven by leafPartTexts, here and below.
    return JSON.parse(
      await joinPieces(this.#answering.ask({ kind: 'portion', after, most }, NEVER)),
    ) as MinuteCounts
  }

  /** Computes a state; whoever asks never holds its text, which may be long. Throws an AbortError. */
  async state(question: StateQuestion, signal: AbortSignal): Promise<MadeState> {
    const pieces: Uint8Array[] = []
    for await (const piece of this.#answering.ask({ kind: 'state', ...question }, signal)) pieces.push(piece)
    const [head, ...state] = pieces
    const [place, sha256 = ''] = Buffer.from(head ?? [])
      .toString()
      .trim()
      .split(' ')
    return { place: Number(place), sha256, state: Buffer.concat(state) }
  }

  async firstSince(instant: string): Promise<number | null> {
    const question: LedgerQuestion = { kind: 'first-since', instant }
    return JSON.parse(await joinPieces(this.#answering.ask(question, NEVER))) as number | null
  }

  async counts(window: CountedWindow, signal: AbortSignal): Promise<WindowCounts> {
    const pieces = await this.#begin(this.#pages, { kind: 'counts', window }, signal)
    return JSON.parse(await joinPieces(pieces)) as WindowCounts
  }

  async spends(asked: SpendQuestion, signal: AbortSignal): Promise<SpendAnswer> {
    const pieces = await this.#begin(this.#pages, { kind: 'spends', asked }, signal)
    return JSON.parse(await joinPieces(pieces)) as SpendAnswer
  }

  close(): Promise<void> {
    return this.#answering.close()
  }

  async #begin(places: ReadSlots, question: LedgerQuestion, signal: AbortSignal): Promise<AnswerPieces> {
    signal.throwIfAborted()
    const leave = places.take()
    // An answer that nobody begins to read is not ended by its reader.
    signal.addEventListener('abort', leave, { once: true })
    const pieces = this.#answering.ask(question, signal)
    const done = (): void => {
      signal.removeEventListener('abort', leave)
      leave()
    }
    try {
      const first = await pieces.next()
      return prependPiece(first, pieces, done)
    } catch (error) {
      done()
      throw error
    }
  }
}

async function joinPieces(pieces: AsyncIterable<Uint8Array>): Promise<string> {
  const all: Uint8Array[] = []
  for await (const piece of pieces) all.push(piece)
  return Buffer.concat(all).toString()
}

async function* prependPiece(
  first: IteratorResult<Uint8Array<ArrayBuffer>, void>,
  pieces: AnswerPieces,
  done: () => void,
): AnswerPieces {
  try {
    if (first.done) return
    yield first.value
    yield* pieces
  } finally {
    done()
  }
}

class ReadSlots {
  readonly #most: number
  #taken = 0

  constructor(most: number) {
    this.#most = most
  }

  /** Takes a place; the returned function leaves it, once. */
  take(): () => void {
    if (this.#taken >= this.#most)
      throw new LedgerError('busy', `the ledger is read ${this.#taken} times already`)
    this.#taken += 1
    let left = false
    return () => {
      if (!left) this.#taken -= 1
      left = true
    }
  }
}
