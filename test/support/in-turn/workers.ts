// Workers of a run of the tests (test/run.ts): processes that run one file after another (worker.ts).
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'

/** To a worker: a file, and the time that it may take. ms. */
export interface FileToRun {
  readonly file: string
  readonly timeout: number
}

/** The result of a file that has ended. */
export interface FileResult {
  readonly ok: boolean
  readonly timedOut: boolean
  /** The text that the file would have written by itself. */
  readonly tap: string
  readonly ms: number
  /** The worker's memory. Bytes. */
  readonly rss: number
}

/** From a worker: a file's result, or an error that came when its file had ended. */
export type WorkerReport = FileResult | { readonly late: string }

/** A worker that has broken off: the files that it ran, the last one without a result. */
export interface BrokenOff {
  readonly files: readonly string[]
  readonly reason: string
}

/** What spares a thread that starts a third of its CPU time: paths that are not asked for links, and fewer collections. */
const SPARING = ['--preserve-symlinks', '--min-semi-space-size=4']
/** A worker ends after so many files, or with so much memory: what a file leaves behind adds up. */
const MAX_FILES = 36
const MAX_BYTES = 700 * 2 ** 20
/** The time for a worker to notice by itself that a file takes too long, or to end when it has no more of them. ms. */
const PATIENCE_MS = 15_000

export class Worker {
  readonly #child: ChildProcess
  readonly #files: string[] = []
  readonly #ended: Promise<string>
  readonly #patience: number

  constructor(env: NodeJS.ProcessEnv, patience = PATIENCE_MS) {
    this.#patience = patience
    const args = [...SPARING, join(import.meta.dirname, 'worker.ts')]
    // Its standard output is not for tap's parser: what a file prints goes where its errors go.
    this.#child = spawn(process.execPath, args, { env, stdio: [0, 2, 2, 'ipc'] })
    this.#ended = once(this.#child, 'exit').then(([code, signal]) => `ended with ${signal ?? `code ${code}`}`)
  }

  get child(): ChildProcess {
    return this.#child
  }

  /** Runs a file. The worker takes no other one where it breaks off, or where the result says that it took too long. */
  async run(file: string, timeout: number): Promise<FileResult | BrokenOff> {
    this.#files.push(file)
    const { promise, resolve } = Promise.withResolvers<FileResult | string>()
    const take = (message: WorkerReport | { setTimeout: number }): void => {
      if ('late' in message) resolve(`an error came after the end of its file: ${message.late}`)
      if ('tap' in message) resolve(message)
    }
    this.#child.on('message', take)
    void this.#ended.then(resolve)
    const longest = timeout + this.#patience
    const timer = setTimeout(() => resolve(`said nothing for ${longest / 1_000} s`), longest)
    this.#child.send({ file, timeout } satisfies FileToRun, () => {})
    const result = await promise
    clearTimeout(timer)
    this.#child.off('message', take)
    if (typeof result !== 'string' && !result.timedOut) return result
    this.#child.kill('SIGKILL')
    return typeof result === 'string' ? { files: this.#files, reason: result } : result
  }

  /** Tells whether it has run enough. */
  isSpent({ rss, timedOut }: FileResult): boolean {
    return timedOut || this.#files.length >= MAX_FILES || rss > MAX_BYTES
  }

  /** Resolves when it has ended by itself; with what is wrong where it has not. */
  async end(): Promise<BrokenOff | null> {
    if (this.#child.connected) this.#child.disconnect()
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), this.#patience)
    const reason = await this.#ended
    clearTimeout(timer)
    return reason === 'ended with code 0' ? null : { files: this.#files, reason }
  }
}
