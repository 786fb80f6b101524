import { constants, openSync, write as writeFd, writeSync } from 'node:fs'
import { isatty } from 'node:tty'

/** Lines are held back until they are as long as this. Characters. */
const CHUNK_LENGTH = 65_536
/** The longest time that lines are held back. ms. */
const HELD_MS = 250
/** The most that lines may hold while the output does not take them. Bytes. */
export const MAX_WAITING_BYTES = 8 * 1024 * 1024
/** The first and the longest pause before an output that took nothing is tried again. ms. */
const MIN_PAUSE_MS = 10
const MAX_PAUSE_MS = 250
/** The longest time that an orderly end waits for a reader of the lines. ms. */
const READ_MS = 1_000
/** The longest time that an end without a word waits for them, on the loop. ms. */
const LAST_MS = 200

const STDOUT = 1

/**
 * Standard output, for whole lines. The gateway serves without its log (docs/threats.md#h16). Up to {@link
 * MAX_WAITING_BYTES} wait until it takes them; further lines are dropped and counted, and a line says how
 * many.
 *
 * One write is under way at a time, on a thread. It does not wait for the reader of a pipe, a socket or a
 * terminal. A file on a disk that hangs (NFS) does hold the thread.
 */
export class LogOutput {
  lost = 0
  readonly #fd: number
  readonly #lossLine: (lost: number) => string
  #lines: string[] = []
  #length = 0
  /** Chunks of whole lines, but for the first one, of which a part may be written. */
  readonly #chunks: Buffer[] = []
  #waiting = 0
  #isWriting = false
  #pause: NodeJS.Timeout | null = null
  #pauseMs = MIN_PAUSE_MS
  /** The error of the last write; null if it succeeded. */
  #fault: unknown = null
  /** The lines that were dropped and that no line tells of yet. */
  #untold = 0
  readonly #onEmpty = new Set<() => void>()

  /** `lossLine`: makes the line, without its end, which says that so many lines were lost. */
  constructor(lossLine: (lost: number) => string) {
    this.#lossLine = lossLine
    // Else an error of either one would end the process.
    for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})
    this.#fd = isatty(STDOUT) ? openTerminal() : STDOUT
    setInterval(() => this.#cut(), HELD_MS).unref()
    process.once('beforeExit', () => this.#cut())
    process.once('exit', () => this.flushSync())
  }

  /** Tells whether lines are being lost, or the output fails. False while a slow reader has lost none yet. */
  get isLosing(): boolean {
    return this.#untold > 0 || (this.#fault !== null && !isFull(this.#fault))
  }

  write(lines: string): void {
    if (this.#waiting + this.#length + lines.length > MAX_WAITING_BYTES) {
      const count = lines.split('\n').length - 1
      this.lost += count
      this.#untold += count
      return
    }
    this.#lines.push(lines)
    this.#length += lines.length
    if (this.#length >= CHUNK_LENGTH) this.#cut()
  }

  /** Resolves when all lines are written, or after a second. */
  flushed(): Promise<void> {
    this.#cut()
    if (this.#chunks.length === 0) return Promise.resolve()
    return new Promise((resolve) => {
      const late = setTimeout(resolve, READ_MS)
      this.#onEmpty.add(() => {
        clearTimeout(late)
        resolve()
      })
    })
  }

  /** Writes the held lines, on the loop. Gives up on an output that takes nothing. */
  flushSync(): void {
    this.#cutLines()
    const until = performance.now() + LAST_MS
    const at = this.#isWriting ? 1 : 0
    for (let chunk = this.#chunks[at]; chunk; chunk = this.#chunks[at]) {
      const count = tryWrite(this.#fd, chunk)
      if (count > 0) this.#remove(at, count)
      else if (performance.now() > until) return
      else Atomics.wait(NEVER_WOKEN, 0, 0, MIN_PAUSE_MS)
    }
  }

  #cut(): void {
    this.#cutLines()
    this.#writeNext()
  }

  #cutLines(): void {
    if (this.#length === 0) return
    const lines = this.#lines.join('')
    this.#lines = []
    this.#length = 0
    this.#push(lines)
  }

  #push(lines: string): void {
    const chunk = Buffer.from(lines)
    this.#waiting += chunk.length
    this.#chunks.push(chunk)
  }

  #remove(at: number, count: number): void {
    const chunk = this.#chunks[at]
    if (!chunk) return
    this.#waiting -= count
    this.#chunks.splice(at, 1, ...(count < chunk.length ? [chunk.subarray(count)] : []))
  }

  #writeNext(): void {
    const [chunk] = this.#chunks
    if (!chunk || this.#isWriting || this.#pause) return
    this.#isWriting = true
    writeFd(this.#fd, chunk, 0, chunk.length, null, (error, count) => {
      this.#isWriting = false
      this.#fault = error
      if (error) this.#tryLater()
      else this.#took(chunk, count)
    })
  }

  /** Tries again whatever the error: a disk may have room again, and a reader read again. */
  #tryLater(): void {
    this.#pause = setTimeout(() => {
      this.#pause = null
      this.#writeNext()
    }, this.#pauseMs).unref()
    this.#pauseMs = Math.min(this.#pauseMs * 2, MAX_PAUSE_MS)
  }

  #took(chunk: Buffer, count: number): void {
    this.#pauseMs = MIN_PAUSE_MS
    this.#remove(0, count)
    if (count === chunk.length && this.#untold > 0) this.#tellLoss()
    this.#writeNext()
    if (this.#chunks.length > 0) return
    for (const resolve of this.#onEmpty) resolve()
    this.#onEmpty.clear()
  }

  /** Says how many lines were lost, after the lines that came before the loss. */
  #tellLoss(): void {
    this.#cutLines()
    this.#push(`${this.#lossLine(this.#untold)}\n`)
    this.#untold = 0
  }
}

/** Tells whether an error says that a pipe, a socket or a terminal is full. */
const isFull = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && error.code === 'EAGAIN'

/**
 * Opens the terminal of standard output once more, so that a write does not wait while it is stopped: the
 * flags of the descriptor are everybody's who has it.
 */
function openTerminal(): number {
  try {
    return openSync('/dev/fd/1', constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch {
    // A terminal of another user, which this one was handed: while it is stopped, one thread waits.
    return STDOUT
  }
}

/** Writes as much of a chunk as it can. Returns the count of its bytes; 0 if the output takes none. */
function tryWrite(fd: number, chunk: Buffer): number {
  try {
    return writeSync(fd, chunk)
  } catch {
    // There is nobody left to tell.
    return 0
  }
}

const NEVER_WOKEN = new Int32Array(new SharedArrayBuffer(4))
