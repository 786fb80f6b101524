import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { AnswerPieces, LedgerQuestion, LedgerReaderBackend } from '../../ledger/read/reader.ts'
import type { FromReader, ReaderOptions, ToReader } from './messages.ts'

/** The time without a question after which the thread is let go. ms. */
const IDLE_MS = 10_000
/** The compiled package has it as .js: like the file that this is. */
const CODE = `./reader${extname(import.meta.filename)}`

type LedgerReaderReply = Exclude<FromReader, { readonly kind: 'failed' }>

/**
 * Reads the ledger of a database file on a thread with a connection of its own. The thread is there while it
 * is needed; if it ends, the answers under way fail, and the next question starts another one.
 */
export class ReaderThread implements LedgerReaderBackend {
  readonly #options: ReaderOptions
  #thread: Worker | null = null
  /** The answers under way, by the id of their question, and what waits or has waited for their last piece. */
  readonly #answers = new Map<number, PromiseWithResolvers<LedgerReaderReply> | null>()
  #lastId = 0
  #idle: NodeJS.Timeout | null = null

  constructor(file: string) {
    this.#options = { file }
  }

  async *ask(question: LedgerQuestion, signal: AbortSignal): AnswerPieces {
    const id = this.#begin()
    // Also if the answer is never read on.
    const gone = (): void => this.#end(id, signal.reason)
    signal.addEventListener('abort', gone, { once: true })
    try {
      let answer = await this.#send({ kind: 'ask', id, question })
      while (answer.kind === 'piece') {
        yield answer.bytes
        answer = await this.#send({ kind: 'more', id })
      }
    } finally {
      signal.removeEventListener('abort', gone)
      this.#end(id, ended())
    }
  }

  async close(): Promise<void> {
    if (this.#idle) clearTimeout(this.#idle)
    if (this.#thread) await this.#rest(this.#thread)
  }

  #begin(): number {
    if (this.#idle) clearTimeout(this.#idle)
    this.#thread ??= this.#start()
    this.#thread.ref()
    this.#lastId += 1
    this.#answers.set(this.#lastId, null)
    return this.#lastId
  }

  #send(message: Extract<ToReader, { readonly kind: 'ask' | 'more' }>): Promise<LedgerReaderReply> {
    const asked = Promise.withResolvers<LedgerReaderReply>()
    if (!this.#answers.has(message.id)) return Promise.reject(ended())
    this.#answers.set(message.id, asked)
    this.#thread?.postMessage(message)
    return asked.promise
  }

  #hear(message: FromReader): void {
    const asked = this.#answers.get(message.id)
    if (message.kind === 'failed') asked?.reject(new Error(message.message))
    else asked?.resolve(message)
  }

  #end(id: number, reason: unknown): void {
    const asked = this.#answers.get(id)
    if (!this.#answers.delete(id)) return
    asked?.reject(reason)
    this.#thread?.postMessage({ kind: 'end', id } satisfies ToReader)
    const thread = this.#thread
    if (!thread || this.#answers.size > 0) return
    thread.unref()
    this.#idle = setTimeout(() => void this.#rest(thread), IDLE_MS).unref()
  }

  #start(): Worker {
    const thread = new Worker(new URL(CODE, import.meta.url), { workerData: this.#options })
    // Under `node --watch` Node reports what the thread imports through the port of its messages.
    thread.on('message', (message: object) => 'kind' in message && this.#hear(message as FromReader))
    thread.on('error', (error) => this.#lose(thread, error))
    thread.on('exit', () => this.#lose(thread, ended()))
    return thread
  }

  #rest(thread: Worker): Promise<unknown> {
    this.#lose(thread, ended())
    return thread.terminate()
  }

  #lose(thread: Worker, error: Error): void {
    if (this.#thread !== thread) return
    this.#thread = null
    const waiting = [...this.#answers.values()]
    this.#answers.clear()
    for (const asked of waiting) asked?.reject(error)
  }
}

const ended = (): Error => new Error('the thread that reads the ledger ended')
