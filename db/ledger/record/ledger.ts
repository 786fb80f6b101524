import { setImmediate as nextTurn } from 'node:timers/promises'
import type { AuthorityChanges } from '../../authority-moves.ts'
import type { Database } from '../../database.ts'
import { messageOf } from '../../support/error-message.ts'
import type { JsonObject } from '../../support/json.ts'
import { portionsOf } from '../../support/pages.ts'
import { settledDetail } from '../meters/detail.ts'
import { heldByDecision } from '../meters/held.ts'
import { draftOf, placesIn, type RowDraft, type RowOrigin } from './draft.ts'
import { LedgerError, type LedgerUnit, LimitReached, type SealedRow } from './entry.ts'
import type { LedgerWork, LedgerWriter, OpenDecision, UnfinishedDecisions, WorkResult } from './writer.ts'

/** Hears what became of a unit: the places of its rows, or why nothing of it was stored. */
export type CommitCallback = (error: Error | null, sealed: readonly SealedRow[]) => void

export interface Ledger {
  /**
   * Calls `done` once: with the places of the unit's rows when statements and rows are durable; if nothing of
   * the unit was stored, with a {@link LedgerError}, or a TypeError for what can never be stored, such as a
   * float in `detail`. Never before it returns, and in the order of the rows. If `done` throws, that is an
   * uncaught exception of the process, after the later units are told.
   */
  submit(unit: LedgerUnit, done: CommitCallback): void
  commit(unit: LedgerUnit): Promise<readonly SealedRow[]>
  /**
   * Writes an outcome `unknown` for every open decision of an earlier run, or of a writer that is gone;
   * resolves with their number. `at`: ms since the epoch. Call it before this run's `service.started`.
   */
  recover(at: number, configDigest: string): Promise<number>
  /** The number of rows that wait for their commit, under way or queued. */
  readonly waiting: number
  /** True if the last write could not be made. A refused unit is no failure. */
  readonly failing: boolean
  /** The last durable row; null while there is none. */
  readonly head: SealedRow | null
  /** Resolves once, with why, when the ledger can never be written again. The process must end. */
  readonly failed: Promise<Error>
  close(): Promise<void>
}

export interface LedgerOptions {
  readonly database: Pick<Database, 'openWriter' | 'authority'>
  /** The version of the service, for `version` of every row. */
  readonly version: string
  /** The rows that may wait; calls leave a quarter to others ({@link roomFor}). Default 8,192. */
  readonly queueLimit?: number
  /** The time that lazy units wait. ms. Default 5. Longer leaves more `unknown` outcomes after a crash. */
  readonly delayMs?: number
}

/**
 * Opens the ledger of a migrated database and holds its stream alone. Rejects with one sentence if another
 * process holds it, the audit tables are not ours, or one of the last 1,000 rows does not verify.
 */
export async function openLedger(options: LedgerOptions): Promise<Ledger> {
  return new CommitQueue(await options.database.openWriter(), options)
}

// A batch's memory and the time it holds the write lock stay small; the rest stays in the queue.
const MAX_BATCH = 512

/** A batch that takes longer, and fails, was held up by a database that says nothing. ms. */
const PATIENCE_MS = 1_000

const NO_ROWS: readonly SealedRow[] = []

/** The drafts that are made in one turn of the loop. */
const DRAFTS_AT_ONCE = 32

interface QueuedWork extends LedgerWork {
  readonly done: CommitCallback
}

/**
 * The queue before a writer. While one batch is under way the next one fills: load makes the batches. Lazy
 * units go with the next one that is not, in the order of their coming; or by themselves, after a while.
 *
 * State: `#enqueue` alone adds to the queue, `#drain` alone takes from it, and one `#drain` runs at a time.
 * The head is that of the last batch the writer has made durable; the writer owns the chain. A crash loses
 * queued units, which nobody was told are durable: a call without a row, refused, never work without a row.
 */
class CommitQueue implements Ledger {
  readonly #writer: LedgerWriter
  readonly #origin: RowOrigin
  readonly #authority: AuthorityChanges
  readonly #limit: number
  readonly #delayMs: number
  readonly #failed = Promise.withResolvers<Error>()
  #queue: QueuedWork[] = []
  #waiting = 0
  /** True if the queue must move on: a unit in it cannot wait. */
  #pressed = false
  #delayed: NodeJS.Timeout | null = null
  #draining: Promise<void> | null = null
  #head: SealedRow | null
  #fault: Error | null = null
  #failing = false
  #closed: Promise<void> | null = null

  constructor(writer: LedgerWriter, { database, version, queueLimit = 8_192, delayMs = 5 }: LedgerOptions) {
    this.#writer = writer
    this.#authority = database.authority
    this.#origin = { stream: writer.stream, version }
    this.#limit = queueLimit
    this.#delayMs = delayMs
    this.#head = writer.head
    void writer.lost.then((fault) => this.#fail(fault))
  }

  get waiting(): number {
    return this.#waiting
  }

  get failing(): boolean {
    return this.#failing || this.#fault !== null
  }

  get head(): SealedRow | null {
    return this.#head
  }

  get failed(): Promise<Error> {
    return this.#failed.promise
  }

  commit(unit: LedgerUnit): Promise<readonly SealedRow[]> {
    if (unit.entries.length > DRAFTS_AT_ONCE) return this.#commitMany(unit)
    return new Promise((resolve, reject) => {
      this.submit(unit, (error, sealed) => (error ? reject(error) : resolve(sealed)))
    })
  }

  /** Makes the drafts in slices: a change of a thousand principals has as many, and others their turn. */
  async #commitMany(unit: LedgerUnit): Promise<readonly SealedRow[]> {
    const drafts: RowDraft[] = []
    for (const some of portionsOf(unit.entries, DRAFTS_AT_ONCE)) {
      drafts.push(...some.map((entry) => draftOf(entry, this.#origin)))
      await nextTurn()
    }
    return new Promise((resolve, reject) => {
      this.submit(unit, (error, sealed) => (error ? reject(error) : resolve(sealed)), drafts)
    })
  }

  submit(unit: LedgerUnit, done: CommitCallback, drafts?: readonly RowDraft[]): void {
    try {
      this.#enqueue(unit, done, drafts)
    } catch (error) {
      process.nextTick(done, error, NO_ROWS)
    }
  }

  #enqueue(unit: LedgerUnit, done: CommitCallback, drafts?: readonly RowDraft[]): void {
    if (this.#closed) throw new LedgerError('closed', 'the audit ledger is closed')
    if (this.#fault) throw unavailable(this.#fault)
    // Before it joins the queue: what can never be stored must not share a batch with what can.
    const waiter = waiterOf(unit, this.#origin, done, drafts)
    const size = sizeOf(waiter)
    if (this.#waiting + size > roomFor(unit, waiter, this.#limit)) {
      // The units that wait may all be lazy.
      this.#flush()
      throw new LedgerError('busy', `${this.#waiting} audit rows are waiting already`)
    }
    this.#waiting += size
    this.#queue.push(waiter)
    // A full batch gains nothing by waiting.
    if (unit.lazy && this.#queue.length < MAX_BATCH) this.#delay()
    else this.#flush()
  }

  async recover(at: number, configDigest: string): Promise<number> {
    if (this.#fault) throw unavailable(this.#fault)
    let recovered = 0
    for (const unfinished of await this.#writer.unfinished()) {
      for (const unit of recoveryUnits(unfinished, at, configDigest)) await this.commit(unit)
      recovered += unfinished.decisions.length
    }
    return recovered
  }

  close(): Promise<void> {
    this.#closed ??= this.#finish()
    return this.#closed
  }

  async #finish(): Promise<void> {
    this.#flush()
    await this.#draining
    await this.#writer.close()
  }

  #flush(): void {
    if (this.#delayed) clearTimeout(this.#delayed)
    this.#delayed = null
    if (this.#queue.length === 0) return
    this.#pressed = true
    this.#draining ??= this.#drain()
  }

  #delay(): void {
    // The drain under way looks at its end for units that are still queued.
    if (this.#draining) return
    this.#delayed ??= setTimeout(() => this.#flush(), this.#delayMs)
  }

  async #drain(): Promise<void> {
    // So that everything committed in this turn of the event loop shares the first batch.
    await Promise.resolve()
    while (this.#pressed) {
      const batch = this.#queue.splice(0, MAX_BATCH)
      this.#pressed = this.#queue.length > 0
      await this.#write(batch)
    }
    this.#draining = null
    if (this.#queue.length > 0) this.#delay()
  }

  async #write(batch: readonly QueuedWork[]): Promise<void> {
    let results: readonly WorkResult[]
    const from = performance.now()
    try {
      if (this.#fault) throw this.#fault
      results = await this.#writer.write(batch)
    } catch (error) {
      this.#failing = true
      // It may be stored all the same.
      if (batch.some(changesAuthority)) this.#authority.advance()
      for (const waiter of batch) this.#tell(waiter, unavailable(error))
      if (performance.now() - from > PATIENCE_MS) this.#refuseAll()
      return
    }
    for (const [index, waiter] of batch.entries()) this.#settle(waiter, results[index])
  }

  /** Units that came while the database was silent have waited as long, and would wait as long again. */
  #refuseAll(): void {
    const silent = unavailable(new Error('the database did not answer'))
    this.#pressed = false
    for (const waiter of this.#queue.splice(0)) this.#tell(waiter, silent)
  }

  // A crash between the writer's commit and this line leaves a decision whose call was never made: a grant
  // with no work, never work with no row.
  #settle(waiter: QueuedWork, result: WorkResult | undefined): void {
    if (!result) {
      this.#failing = true
      this.#tell(waiter, unavailable(new Error('the writer did not answer for this unit')))
    } else if ('sealed' in result) {
      this.#failing = false
      this.#head = result.sealed.at(-1) ?? this.#head
      // Before its author hears of it: after that answer nothing leaves by the former state.
      if (changesAuthority(waiter)) this.#authority.advance()
      this.#tell(waiter, null, result.sealed)
    } else {
      this.#tell(waiter, refusalOf(result))
    }
  }

  #tell(waiter: QueuedWork, error: Error | null, sealed = NO_ROWS): void {
    // First: a caller who is told may submit the next unit at once.
    this.#waiting -= sizeOf(waiter)
    try {
      waiter.done(error, sealed)
    } catch (thrown) {
      process.nextTick(() => {
        throw thrown
      })
    }
  }

  #fail(fault: Error): void {
    this.#fault = fault
    this.#failed.resolve(fault)
  }
}

function unavailable(cause: unknown): LedgerError {
  const seen = messageOf(cause)
  return new LedgerError('unavailable', `the audit ledger cannot be written: ${seen}`, { cause })
}

type RefusedWork = Exclude<WorkResult, { readonly sealed: unknown }>

function refusalOf(result: RefusedWork): Error {
  if (result.refused === 'over') return new LimitReached(result.over)
  const { refused, message } = result
  return refused === 'fault' ? new Error(message) : new LedgerError(refused, message)
}

/** A slice of the queue, as its part of all of it. */
const SLICES = 8

/**
 * Returns how many rows may wait, this unit's included, for it to be let into a queue of `limit` rows. Calls
 * come as fast as they like, so units that may take authority away have the last slice to themselves, and
 * units that wait for nobody, such as outcomes, the one before it (docs/threats.md#pools). A queue of fewer
 * rows than slices keeps nothing.
 */
function roomFor({ lazy = false, ofChange }: LedgerUnit, work: LedgerWork, limit: number): number {
  const slice = Math.floor(limit / SLICES)
  if (lazy) return limit - slice
  return (ofChange ?? changesAuthority(work)) ? limit : limit - 2 * slice
}

/**
 * Tells whether work may change somebody's authority: it may unless each of its statements says by `beside`
 * that it cannot.
 */
const changesAuthority = ({ statements }: LedgerWork): boolean =>
  statements.some(({ beside }) => beside === undefined)

// A unit without rows has its place in the queue too.
const sizeOf = ({ drafts }: LedgerWork): number => Math.max(1, drafts.length)

function waiterOf(
  { assertions = [], statements = [], reservations = [], settlements = [], entries }: LedgerUnit,
  origin: RowOrigin,
  done: CommitCallback,
  drafts: readonly RowDraft[] = entries.map((entry) => draftOf(entry, origin)),
): QueuedWork {
  for (const { sql, parameters } of statements) {
    if (!parameters.every(isBindable))
      throw new TypeError(`a parameter of "${sql}" is of a type that no column holds`)
  }
  // An engine may have made a change by the time that it finds no room.
  if (reservations.length > 0 && statements.some(({ beside }) => beside !== 'claim'))
    throw new TypeError('a unit with reservations changes nothing else')
  const isLimited = entries.some(({ detail }) => detail.limits !== undefined)
  const places = isLimited ? drafts.reduce((sum, draft) => sum + placesIn(draft), 0) : 0
  if (places !== 2 * reservations.length + settlements.length)
    throw new TypeError(`rows leave ${places} places for the numbers of their limits`)
  return { assertions, statements, reservations, settlements, drafts, done }
}

// A value that cannot cross to the writer's thread would throw there for the whole batch.
function isBindable(value: unknown): boolean {
  return (
    value === null || ['string', 'number', 'bigint'].includes(typeof value) || value instanceof Uint8Array
  )
}

/** Makes the outcomes of decisions that were left open, some at a time. The first one says that nobody else makes them. */
export function recoveryUnits(
  { statements, decisions }: UnfinishedDecisions,
  at: number,
  configDigest: string,
): readonly LedgerUnit[] {
  const unitOf = (some: readonly OpenDecision[]): LedgerUnit => {
    const held = some.map((decision) => [decision, heldByDecision(decision)] as const)
    return {
      settlements: held.flatMap(([, { settlements }]) => settlements),
      entries: held.map(([decision, use]) => ({
        ...decision,
        ...{ at, status: 'unknown', detail: unknownDetail(use), config_digest: configDigest },
      })),
    }
  }
  const [first = [], ...more] = portionsOf(decisions, MAX_BATCH)
  return [{ statements, ...unitOf(first) }, ...more.map(unitOf)]
}

const unknownDetail = ({ settlements, microusd }: ReturnType<typeof heldByDecision>): JsonObject => ({
  reason: 'crash',
  ...(settlements.length > 0 && { limits: settlements.map(settledDetail) }),
  ...(microusd !== null && { cost: { microusd, price: null, priced: 'reserved' } }),
})
