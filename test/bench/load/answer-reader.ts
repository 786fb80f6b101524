/**
 * The events of an {@link AnswerReader}: `first` at the first byte of a body, `whole` when the answer is
 * complete, with its length.
 */
export interface AnswerEvents {
  readonly first: () => void
  readonly whole: (status: number, bodyBytes: number) => void
}

const HEAD_END = Buffer.from('\r\n\r\n')
const LINE_END = Buffer.from('\r\n')

type Place = 'head' | 'length' | 'chunk-size' | 'chunk' | 'last'

/**
 * Reads one connection's answers: the status, content-length and the chunked coding, which tell the end of
 * each. Does NOT decode or keep a body. Expects a peer that speaks HTTP/1.1 correctly.
 */
export class AnswerReader {
  readonly #events: AnswerEvents
  #place: Place = 'head'
  #status = 0
  /** Bytes of the body, or of this chunk and its line end, that are still to come. */
  #left = 0
  /** Bytes of the body, without the framing of its chunks. */
  #bytes = 0
  #rest: Buffer | null = null
  #hasBegun = false

  constructor(events: AnswerEvents) {
    this.#events = events
  }

  feed(piece: Buffer): void {
    let bytes: Buffer | null = this.#rest ? Buffer.concat([this.#rest, piece]) : piece
    this.#rest = null
    while (bytes && bytes.length > 0) {
      const used: number = this.#step(bytes)
      // Not enough for this step: it is tried again with what comes next.
      if (used === 0) {
        this.#rest = bytes
        return
      }
      bytes = used === bytes.length ? null : bytes.subarray(used)
    }
  }

  /** Takes one step; returns its bytes, 0 where it needs more. */
  #step(bytes: Buffer): number {
    switch (this.#place) {
      case 'head':
        return this.#head(bytes)
      case 'length':
      case 'chunk':
        return this.#body(bytes)
      case 'chunk-size':
        return this.#chunkSize(bytes)
      case 'last':
        return this.#last(bytes)
    }
  }

  #head(bytes: Buffer): number {
    const end = bytes.indexOf(HEAD_END)
    if (end < 0) return 0
    const head = bytes.toString('latin1', 0, end)
    this.#status = Number(head.slice(9, 12))
    this.#hasBegun = false
    this.#bytes = 0
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1]
    if (length === undefined) {
      this.#place = /\r\ntransfer-encoding: *chunked/i.test(head) ? 'chunk-size' : 'head'
    } else {
      this.#left = Number(length)
      this.#bytes = this.#left
      this.#place = 'length'
      if (this.#left === 0) this.#finish()
    }
    return end + HEAD_END.length
  }

  #body(bytes: Buffer): number {
    this.#begin()
    const used = Math.min(this.#left, bytes.length)
    this.#left -= used
    if (this.#left > 0) return used
    if (this.#place === 'length') this.#finish()
    else this.#place = 'chunk-size'
    return used
  }

  #chunkSize(bytes: Buffer): number {
    const end = bytes.indexOf(LINE_END)
    if (end < 0) return 0
    const size = Number.parseInt(bytes.toString('latin1', 0, end), 16)
    this.#left = size + LINE_END.length
    this.#bytes += size
    this.#place = size === 0 ? 'last' : 'chunk'
    return end + LINE_END.length
  }

  /** Takes the empty line after the last chunk; no trailers are expected. */
  #last(bytes: Buffer): number {
    if (bytes.length < LINE_END.length) return 0
    this.#finish()
    return LINE_END.length
  }

  #begin(): void {
    if (this.#hasBegun) return
    this.#hasBegun = true
    this.#events.first()
  }

  #finish(): void {
    this.#place = 'head'
    this.#events.whole(this.#status, this.#bytes)
  }
}
