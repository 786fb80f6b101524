import type { Worker } from 'node:cluster'
import type { Duplex, Readable } from 'node:stream'
import { Channel } from './channel.ts'
import { DATABASE_FD, type Measured, type OfParent, type OfWorker } from './messages.ts'

/** How a worker has ended. */
export interface End {
  readonly code: number | null
  readonly signal: string | null
}

/** So many beats may be missing before a worker counts as hung; and before its first one, while it starts. */
const SILENT_BEATS = 10
const STARTING_BEATS = 60

/** A worker as the process above it sees it. */
export class Member {
  /** From 1 on: who takes the place of a worker has its number. */
  readonly number: number
  /** Of this process alone: nobody else ever has it. */
  readonly id: number
  readonly channel: Channel<OfParent, OfWorker>
  /** Resolves when the process has ended. */
  readonly ended: Promise<End>
  /** Resolves when everything that it has sent is read, too. */
  readonly gone: Promise<void>
  /** Null until it serves. */
  url: string | null = null
  /** True once its process has ended. */
  dead = false
  /** True once it was killed: its process ends in a moment. */
  dying = false
  /** True once it writes no more rows. */
  silent = false
  /** Its metrics, as they were when somebody asked last. */
  measured: Measured = []
  readonly #worker: Worker
  #missing = 0
  #mayMiss = STARTING_BEATS

  constructor(number: number, worker: Worker, answers: (member: Member) => OfParent) {
    this.number = number
    this.id = worker.id
    this.#worker = worker
    const ours = answers(this)
    const beat = (): void => {
      this.#missing = 0
      this.#mayMiss = SILENT_BEATS
    }
    this.channel = new Channel<OfParent, OfWorker>((message) => this.#send(message), { ...ours, beat })
    worker.on('message', (message: object) => this.channel.hear(message))
    const { process: child } = worker
    // A process that could not be started, or a message to one that has just ended: its end says so.
    child.on('error', () => {})
    this.ended = new Promise((resolve) => {
      child.once('exit', (code, signal) => {
        this.dead = true
        this.channel.end(new Error(`worker ${number} has ended`))
        resolve({ code, signal })
      })
    })
    this.gone = new Promise((resolve) => child.once('close', () => resolve()))
  }

  get serves(): boolean {
    return this.url !== null
  }

  /** What it writes to standard output. */
  get output(): Readable | null {
    return this.#worker.process.stdout
  }

  /** Its way to the database, where that is above it. */
  get database(): Duplex {
    // Made by crew.ts as a pipe, which is both.
    return this.#worker.process.stdio[DATABASE_FD] as unknown as Duplex
  }

  /** Counts a beat that has not come yet. Returns whether too many are missing. */
  misses(): boolean {
    this.#missing += 1
    return this.#missing > this.#mayMiss
  }

  kill(): void {
    this.dying = true
    this.#worker.process.kill('SIGKILL')
  }

  #send(message: object): void {
    // To one that has ended nothing is sent; `ended` says so to whoever waits.
    if (this.#worker.isConnected()) this.#worker.process.send(message, undefined, undefined, () => {})
  }
}
