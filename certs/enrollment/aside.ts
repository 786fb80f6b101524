import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import { CertificateError } from '../certificate-error.ts'
import type {
  CertificateTaskName,
  CertificateTaskReply,
  CertificateTaskRequest,
  CertificateTasks,
} from './aside-messages.ts'

/** The time without a question after which the thread is let go. ms. */
const IDLE_MS = 10_000
/** The compiled package has it as .js: like the file that this is. */
const CODE = `./aside-thread${extname(import.meta.filename)}`

/**
 * Reads certificates, requests and bundles that others made on a thread of its own, so that none of them, and
 * no number of them, holds up a call (docs/threats.md#e2). Each task is the function of its name, and throws
 * as that does. The thread is there while it is needed.
 */
class CertificateThread {
  #thread: Worker | null = null
  readonly #asked: PromiseWithResolvers<unknown>[] = []
  #idle: NodeJS.Timeout | null = null

  async ask<T extends CertificateTaskName>(
    task: T,
    input: Parameters<CertificateTasks[T]>[0],
  ): Promise<Awaited<ReturnType<CertificateTasks[T]>>> {
    const question: CertificateTaskRequest = { task, input }
    const asked = Promise.withResolvers<unknown>()
    if (this.#idle) clearTimeout(this.#idle)
    // Throws if the machine gives no thread: only a question that was sent stands in the list of open
    // questions.
    this.#thread ??= this.#start()
    const thread = this.#thread
    this.#asked.push(asked)
    thread.ref()
    thread.postMessage(question)
    // Proven by certs/enrollment/aside-thread.ts: the answer is that of the task.
    return (await asked.promise) as Awaited<ReturnType<CertificateTasks[T]>>
  }

  #start(): Worker {
    const thread = new Worker(new URL(CODE, import.meta.url))
    // Under `node --watch` Node reports what the thread imports through the port of its messages.
    thread.on(
      'message',
      (message: object) => 'kind' in message && this.#hear(thread, message as CertificateTaskReply),
    )
    thread.on('error', (error) => this.#lose(thread, error))
    thread.on('exit', () => this.#lose(thread, new Error('the thread that reads certificates ended')))
    return thread
  }

  #hear(thread: Worker, answer: CertificateTaskReply): void {
    const asked = this.#asked.shift()
    if (answer.kind === 'done') asked?.resolve(answer.value)
    else if (answer.kind === 'refused') asked?.reject(new CertificateError(answer.reason, answer.message))
    else asked?.reject(new Error(answer.message))
    if (this.#asked.length > 0) return
    thread.unref()
    this.#idle = setTimeout(() => this.#rest(thread), IDLE_MS).unref()
  }

  #rest(thread: Worker): void {
    this.#thread = null
    void thread.terminate()
  }

  #lose(thread: Worker, error: Error): void {
    if (this.#thread !== thread) return
    this.#thread = null
    for (const { reject } of this.#asked.splice(0)) reject(error)
  }
}

/** One for the process: it remembers nothing between two questions. */
export const certificateThread = new CertificateThread()
