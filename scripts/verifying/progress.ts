import { pageOf, type RowSource, type ShowRows } from '../../db/ledger/verify/inspect.ts'
import { printNotice, printProgress } from '../print.ts'

/** The time from one line to the next: on a terminal, where it is the same line, and elsewhere. ms. */
const [TERMINAL_MS, ELSEWHERE_MS] = [500, 10_000]

/** Shows on standard error how far a verification is, and how long it will take. */
export class VerifyProgress {
  /** The rows that are known to come. */
  #total = 0
  #done = 0
  readonly #from = performance.now()
  #shownAt = this.#from
  readonly #everyMs: number

  constructor(everyMs = process.stderr.isTTY ? TERMINAL_MS : ELSEWHERE_MS) {
    this.#everyMs = everyMs
  }

  /** Counts rows that come later. */
  expect(rows: number): void {
    this.#total += rows
  }

  /** The same rows. `total`: those that were not expected yet; a function: all that seem to come. */
  readonly show: ShowRows = (rows, total = 0) => {
    if (typeof total === 'number') this.#total += total
    return this.#counted(rows, typeof total === 'number' ? () => this.#total : total)
  }

  async *#counted(
    rows: RowSource,
    total: (done: number) => number,
  ): AsyncGenerator<ReturnType<typeof pageOf>> {
    try {
      for await (const next of rows) {
        const page = pageOf(next)
        this.#done += page.length
        const now = performance.now()
        if (now - this.#shownAt >= this.#everyMs) {
          this.#shownAt = now
          const text = progressText(this.#done, total(this.#done), (now - this.#from) / 1_000)
          if (process.stderr.isTTY) printProgress(text)
          else printNotice(text)
        }
        yield page
      }
    } finally {
      printProgress(null)
    }
  }
}

/** For output that a program reads. */
export const SILENT: Pick<VerifyProgress, 'expect' | 'show'> = { expect: () => {}, show: (rows) => rows }

/** Says the rows done, the rate, and the rest of the time. `total`: 0 if it is not known. */
export function progressText(done: number, total: number, seconds: number): string {
  const rate = Math.round(done / seconds)
  const left = Math.ceil((total - done) / Math.max(rate, 1))
  const rest =
    left < 120 ? `${left} s` : left < 7_200 ? `${Math.round(left / 60)} min` : `${Math.round(left / 3_600)} h`
  const of = total > done ? ` of ${counted(total)}` : ''
  return `${counted(done)}${of} rows, ${counted(rate)} rows/s${total > done ? `, ${rest} left` : ''}`
}

const counted = (count: number): string => Math.round(count).toLocaleString('en')
