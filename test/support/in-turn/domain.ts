// In a worker (worker.ts), in place of the package by which tap knows whose an error is that nobody caught. The package
// follows each promise by an async hook, which costs a tenth of a file's time.
import { AsyncLocalStorage } from 'node:async_hooks'

type ErrorHandler = (error: unknown, type: string) => void

/** The tests of a file that run, the innermost last; first the one that stands for the file. */
const filesOwn = new AsyncLocalStorage<Domain[]>()
/** tap's own test first, then those that stand for files. */
const outermost: Domain[] = []

export class Domain {
  readonly onerror: ErrorHandler
  readonly #siblings = filesOwn.getStore() ?? outermost

  constructor(onerror: ErrorHandler) {
    this.onerror = onerror
    this.#siblings.push(this)
  }

  destroy(): void {
    const at = this.#siblings.indexOf(this)
    if (at >= 0) this.#siblings.splice(at, 1)
  }
}

/** Runs a file whose test was made last: an error in it is its innermost test's, one after its end is tap's own test's. */
export const runFile = (work: () => Promise<void>): Promise<void> => filesOwn.run(outermost.slice(-1), work)

function tell(error: unknown, type: string): void {
  const file = filesOwn.getStore() ?? []
  const running = file.findLast((domain, at) => at > 0 || outermost.includes(domain)) ?? outermost[0]
  running?.onerror(error, type)
  if (running) return
  console.error(error)
  process.exit(1)
}

process.on('uncaughtException', (error) => tell(error, 'uncaughtException'))
process.on('unhandledRejection', (error) => tell(error, 'unhandledRejection'))
