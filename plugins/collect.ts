import type { Readable } from 'node:stream'
import type { MemoryReservation } from './arrival.ts'
import { BYTES_AT_ONCE, runInSlices, type WorkSteps } from './turns.ts'

/** The least that is allocated at once. Bytes. */
const MIN_STEP_BYTES = 4096
/** Bytes. */
const COPIED_AT_ONCE = 1_048_576
const NOTHING = Buffer.alloc(0)

interface BodySegment {
  readonly bytes: Buffer
  /** Null: it is a piece as it came, whose memory others may look at. */
  readonly own: ArrayBuffer | null
}

/**
 * Collects bytes that come in pieces of any size. It holds at most 1.1 times the bytes that came, and 4 KiB:
 * a body in pieces of one byte would else cost some 300 bytes for each (docs/threats.md#a2). A large piece is
 * kept as it came, and a sole one handed out so: nothing is copied twice. A declared length allocates nothing
 * by itself.
 */
export class ByteCollector {
  readonly #limit: number
  readonly #declared: number
  readonly #isGranted: boolean
  /** The sole piece so far, or what {@link bytes} has handed out; then there are no segments. */
  #whole: Buffer | null = null
  #segments: BodySegment[] = []
  /** Bytes at the end of the last segment that hold nothing yet. */
  #free = 0
  #length = 0
  #closed = false

  /**
   * `limit`: bytes; more is not kept. `declared`: past it nothing is allocated ahead. `isGranted`: there is room
   * for all that is declared, so it is allocated once 64 KiB have come, and nothing is joined in the end.
   */
  constructor(limit: number, declared = Number.POSITIVE_INFINITY, isGranted = false) {
    this.#limit = limit
    this.#declared = declared
    this.#isGranted = isGranted
  }

  get length(): number {
    return this.#length
  }

  get capacity(): number {
    return this.#length + this.#free
  }

  /** Takes a piece. False: past the limit, so everything is dropped until {@link clear}. */
  add(piece: Buffer): boolean {
    if (this.#closed) return false
    if (piece.length > this.#limit - this.#length) {
      this.close()
      return false
    }
    if (piece.length === 0) return true
    if (this.#length === 0) this.#whole = piece
    else {
      this.#divide()
      this.#append(piece)
    }
    this.#length += piece.length
    return true
  }

  /** Returns everything in one piece, which stays as it is whatever is added later. */
  bytes(): Buffer {
    if (this.#whole) return this.#whole
    const joining = this.#joining()
    for (let step = joining.next(); ; step = joining.next()) if (step.done) return step.value
  }

  /** Like {@link bytes}, in slices if they are many. Nothing may be added until it resolves. */
  async bytesInTurns(): Promise<Buffer> {
    return this.#length <= COPIED_AT_ONCE ? this.bytes() : runInSlices(this.#joining())
  }

  /** True: everything was dropped, and each further piece is. */
  get closed(): boolean {
    return this.#closed
  }

  /** Drops everything, and each further piece, until {@link clear}. */
  close(): void {
    this.clear()
    this.#closed = true
  }

  clear(): void {
    this.#whole = null
    this.#segments = []
    this.#free = 0
    this.#length = 0
    this.#closed = false
  }

  /** Makes a segment of the sole piece: it is one no longer. */
  #divide(): void {
    if (!this.#whole) return
    const piece = this.#whole
    this.#whole = null
    this.#length = 0
    this.#append(piece)
    this.#length = piece.length
  }

  #append(piece: Buffer): void {
    const fits = Math.min(piece.length, this.#free)
    const last = this.#segments.at(-1)?.bytes
    if (last && fits > 0) piece.copy(last, last.length - this.#free, 0, fits)
    this.#free -= fits
    const rest = piece.length - fits
    if (rest === 0) return
    const length = this.#length + fits
    if (this.#isGranted && length + rest > BYTES_AT_ONCE) {
      this.#appendToWhole(piece.subarray(fits), length)
      return
    }
    // Its memory is its own, or as good as that.
    if (rest >= MIN_STEP_BYTES && rest * 1.1 >= piece.buffer.byteLength) {
      this.#segments.push({ bytes: piece.subarray(fits), own: null })
      return
    }
    const ahead = Math.min(Math.max(MIN_STEP_BYTES, Math.floor(length / 10)), this.#declared - length)
    const bytes = Buffer.allocUnsafeSlow(Math.max(rest, ahead))
    piece.copy(bytes, 0, fits)
    this.#segments.push({ bytes, own: bytes.buffer })
    this.#free = bytes.length - rest
  }

  /** Allocates all that is declared, and moves what has come to it. */
  #appendToWhole(piece: Buffer, length: number): void {
    const whole = Buffer.allocUnsafeSlow(Math.max(this.#declared, length + piece.length))
    let at = 0
    for (const { bytes } of this.#segments) at += bytes.copy(whole, at, 0, length - at)
    piece.copy(whole, length)
    this.#segments = [{ bytes: whole, own: whole.buffer }]
    this.#free = whole.length - length - piece.length
  }

  *#joining(): WorkSteps<Buffer> {
    this.#whole ??= yield* this.#joined()
    this.#segments = []
    this.#free = 0
    return this.#whole
  }

  *#joined(): WorkSteps<Buffer> {
    const [first] = this.#segments
    if (!first) return NOTHING
    if (this.#segments.length === 1) return first.bytes.subarray(0, this.#length)
    const whole = Buffer.allocUnsafeSlow(this.#length)
    let at = 0
    for (const { bytes, own } of this.#segments) {
      const end = Math.min(bytes.length, this.#length - at)
      for (let from = 0; from < end; from += COPIED_AT_ONCE) {
        bytes.copy(whole, at + from, from, Math.min(from + COPIED_AT_ONCE, end))
        yield
      }
      at += end
      // Freed here and now: until the next collection of garbage there would be everything twice.
      own?.transfer(0)
    }
    return whole
  }
}

/**
 * Reads the whole of a stream of bytes, and counts them on `held`: it is not read on while they do not fit.
 * Resolves with null if it is longer than `limit` bytes, and destroys it then. Rejects with the stream's
 * error, and with `overloaded`.
 */
export async function collectBytes(
  stream: Readable,
  limit: number,
  held: MemoryReservation | null = null,
): Promise<Buffer | null> {
  const collector = new ByteCollector(limit)
  // Not in object mode and without an encoding: its pieces are buffers. Leaving the loop destroys it.
  for await (const piece of stream as AsyncIterable<Buffer>) {
    const later = held?.reserveAnswerInTurn(piece.length)
    if (later) await later
    if (!collector.add(piece)) return null
  }
  return collector.length > BYTES_AT_ONCE ? collector.bytesInTurns() : collector.bytes()
}

/** Counts the most that is held at once of something that grows and shrinks. False: it does not fit. */
export function peakReservation(
  held: Pick<MemoryReservation, 'tryReserve'> | null,
): (bytes: number) => boolean {
  let counted = 0
  return (bytes) => {
    if (held === null || bytes <= counted) return true
    const fits = held.tryReserve(bytes - counted)
    if (fits) counted = bytes
    return fits
  }
}
