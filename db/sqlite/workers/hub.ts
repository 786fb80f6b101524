import { extname } from 'node:path'
import type { Duplex } from 'node:stream'
import { messageOf } from '../../support/error-message.ts'
import { openSqliteDatabase } from '../database.ts'
import type { OnCopied } from '../ledger/form/rebuild.ts'
import { type AskedThread, askedThread } from '../ledger/thread.ts'
import { type Frame, readFrames, sendFrame, sendValue, valueIn } from './frames.ts'
import { DOWN, type FromShared, type Notice, type ToShared, UP, type Welcome } from './messages.ts'
import { Turn } from './turn.ts'

/** The process above the workers, for its half of their SQLite database. */
export interface Hub {
  /** Serves a worker over a channel until that ends. `worker`: a number that no other one ever has. */
  readonly attach: (worker: number, channel: Duplex) => void
  /** Says which worker does what one alone does; the one before does it no more. */
  readonly lead: (worker: number) => void
  /** Resolves once, when the ledger will never be written again. */
  readonly lost: Promise<Error>
  /** Closes the ledger, once the workers are gone. */
  readonly close: () => Promise<void>
}

/**
 * Migrates the database in a file and holds its ledger for workers that are other processes: the one lease, the one
 * connection that writes (docs/operating.md#workers). Throws as `openSqliteDatabase` and `openSqliteWriter` do.
 */
export async function openHub(file: string, onCopied?: OnCopied): Promise<Hub> {
  // For its migrations.
  await (await openSqliteDatabase(file, onCopied)).close()
  // The compiled package has it as .js: like the file that this is.
  const code = new URL(`./writer${extname(import.meta.filename)}`, import.meta.url)
  const thread = await askedThread<ToShared, FromShared>(code, file)
  return new SqliteHub(thread)
}

/** What is sent to the thread together, at the most. Bytes. */
const TOGETHER = 1_048_576

interface Job {
  readonly worker: number
  readonly frame: Frame
}

/** A frame that only says that a worker is gone: behind everything that it has sent. */
const GONE: Frame = { kind: 0, id: 0, body: new Uint8Array() }

/**
 * State: `#jobs` is what waits for the thread, in the order of its coming; one turn with the thread is under way at a
 * time. What a worker has sent is written whole, or nothing of it, also when the worker has died meanwhile.
 */
class SqliteHub implements Hub {
  readonly #thread: AskedThread<ToShared, FromShared>
  readonly #channels = new Map<number, Duplex>()
  readonly #turn = new Turn()
  #jobs: Job[] = []
  #working: Promise<void> | null = null
  #leader: number | null = null

  constructor(thread: AskedThread<ToShared, FromShared>) {
    this.#thread = thread
    void thread.lost.then((error) => {
      for (const channel of this.#channels.values()) sendValue(channel, DOWN.lost, 0, messageOf(error))
    })
  }

  get lost(): Promise<Error> {
    return this.#thread.lost
  }

  attach(worker: number, channel: Duplex): void {
    this.#channels.set(worker, channel)
    readFrames(channel, (frame) => this.#hear(worker, channel, frame))
    // A worker that was killed: its end says so.
    channel.on('error', () => channel.destroy())
    channel.once('close', () => this.#gone(worker))
    sendValue(channel, DOWN.opened, 0, { head: this.#thread.head } satisfies Welcome)
    if (this.#leader === worker) this.lead(worker)
  }

  lead(worker: number): void {
    this.#leader = worker
    for (const [one, channel] of this.#channels) sendValue(channel, DOWN.leads, 0, one === worker)
  }

  async close(): Promise<void> {
    while (this.#working) await this.#working
    await this.#thread.close({ kind: 'close' })
  }

  #hear(worker: number, channel: Duplex, frame: Frame): void {
    switch (frame.kind) {
      case UP.write:
      case UP.unfinished:
        this.#do({ worker, frame })
        break
      case UP.lock:
        this.#turn.wait(worker, () => sendValue(channel, DOWN.locked, frame.id, null))
        break
      case UP.unlock:
        this.#turn.end(worker)
        break
      case UP.tell:
        this.#tell(worker, valueIn(frame))
        break
      default:
        channel.destroy()
    }
  }

  #tell(worker: number, notice: Notice): void {
    for (const [one, channel] of this.#channels) if (one !== worker) sendValue(channel, DOWN.told, 0, notice)
  }

  #gone(worker: number): void {
    this.#channels.delete(worker)
    this.#turn.leave(worker)
    this.#do({ worker, frame: GONE })
  }

  #do(job: Job): void {
    this.#jobs.push(job)
    this.#working ??= this.#work()
  }

  async #work(): Promise<void> {
    for (let [job] = this.#jobs; job; [job] = this.#jobs) {
      const together = this.#take()
      try {
        await (job.frame.kind === UP.write ? this.#write(together) : this.#ask(job))
      } catch (error) {
        for (const one of together) this.#answer(one, DOWN.failed, messageOf(error))
      }
    }
    this.#working = null
  }

  /** Takes the next job, and the batches behind a batch. */
  #take(): readonly Job[] {
    let bytes = 0
    const until = this.#jobs.findIndex(({ frame: { kind, body } }) => {
      bytes += body.length
      return kind !== UP.write || bytes > TOGETHER
    })
    return this.#jobs.splice(0, until === -1 ? this.#jobs.length : Math.max(1, until))
  }

  async #write(jobs: readonly Job[]): Promise<void> {
    const parts = jobs.map(({ worker, frame }) => ({ owner: worker, batch: new Uint8Array(frame.body) }))
    const buffers = parts.map(({ batch }) => batch.buffer)
    const answer = await this.#thread.ask({ kind: 'write', parts }, buffers)
    if (answer.kind !== 'written') throw new Error(`the audit writer answered batches with ${answer.kind}`)
    for (const [place, { worker, frame }] of jobs.entries()) {
      const channel = this.#channels.get(worker)
      const results = answer.results[place]
      if (channel && results) sendFrame(channel, DOWN.written, frame.id, results)
    }
  }

  async #ask(job: Job): Promise<void> {
    const { worker, frame } = job
    if (frame === GONE) return void (await this.#thread.ask({ kind: 'gone', owner: worker }))
    const answer = await this.#thread.ask({ kind: 'unfinished', owner: worker })
    if (answer.kind !== 'unfinished') throw new Error(`the audit writer answered with ${answer.kind}`)
    this.#answer(job, DOWN.unfinished, answer.decisions)
  }

  #answer({ worker, frame }: Job, kind: number, value: unknown): void {
    const channel = this.#channels.get(worker)
    if (channel && frame !== GONE) sendValue(channel, kind, frame.id, value)
  }
}
