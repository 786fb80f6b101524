import type { IncomingMessage, ServerResponse } from 'node:http'
import { textPieces } from '../../plugins/text-pieces.ts'
import type { Reply, StreamedBody } from './reply.ts'

/**
 * The reason of an answer's end. `complete`: the client has all of it, or all that counts by its API.
 * `upstream_broken`: the source broke off, or ended without saying that it was done. `client_gone`: the
 * caller hung up. `write_stalled`: the caller stopped reading. `drained`: this process is stopping.
 * `revoked`: the principal lost authority that the call needed.
 */
export type EndReason =
  | 'complete'
  | 'upstream_broken'
  | 'client_gone'
  | 'write_stalled'
  | 'drained'
  | 'revoked'

/** Ends a stream that is under way, as its dialect does. Does nothing once it is over. */
export type TerminateStream = (reason: 'drained' | 'revoked') => void

export interface ReplyEnding {
  readonly reason: EndReason
  readonly status: number
  readonly bytes: number
}

export interface SendOptions {
  /** The headers of every answer. The reply's own are added to them. */
  readonly headers: Record<string, string>
  /** Headers that no reply has other values of. */
  readonly fixed?: Readonly<Record<string, string>>
  /** A client that reads nothing for so long is cut off (docs/threats.md#t9, #f-20). ms. */
  readonly writeStallMs: number
  /** Called when a stream begins, with the function that ends it. */
  readonly onStream: (cut: TerminateStream) => void
}

/** Sends a reply. Resolves with its ending. Rejects if Node will not write one of its headers. */
export function sendReply(res: ServerResponse, reply: Reply, options: SendOptions): Promise<ReplyEnding> {
  return new Promise((resolve) => {
    const { status, body = '' } = reply
    if (res.destroyed) return resolve({ reason: 'client_gone', status, bytes: 0 })
    const headers = Object.assign(options.headers, reply.headers, options.fixed)
    if (reply.cookies) res.setHeader('set-cookie', reply.cookies)
    if (res.req?.method === 'HEAD' && typeof body === 'object' && 'source' in body) {
      body.source.on('error', () => {}).destroy()
      return sendWhole(res, { status, headers, body: null, writeStallMs: options.writeStallMs }, resolve)
    }
    if (typeof body !== 'object' || !('source' in body))
      return sendWhole(res, { status, headers, body, writeStallMs: options.writeStallMs }, resolve)
    res.writeHead(status, headers)
    return void new ReplyStream(res, body, options, (reason, bytes) => resolve({ reason, status, bytes }))
  })
}

interface WholeReply extends Pick<SendOptions, 'headers' | 'writeStallMs'> {
  readonly status: number
  /** Null: there would be one of a length that is not known. */
  readonly body: string | Buffer | null
}

function sendWhole(
  res: ServerResponse,
  { status, headers, body, writeStallMs }: WholeReply,
  ended: (ending: ReplyEnding) => void,
): void {
  // RFC 9110 §8.6: of a 304 it would be the length of what is not sent.
  if (body !== null && status !== 204 && status !== 304)
    headers['content-length'] = String(Buffer.byteLength(body))
  const sent = res.req?.method === 'HEAD' || body === null ? '' : body
  const bytes = Buffer.byteLength(sent)
  res.writeHead(status, headers)
  const stall = setTimeout(() => res.destroy(), writeStallMs)
  // Also right after the last byte was taken.
  res.on('close', () => {
    clearTimeout(stall)
    ended({ reason: res.writableFinished ? 'complete' : 'client_gone', status, bytes })
  })
  if (bytes <= PIECE) res.end(sent)
  else writeInPieces(res, sent)
}

/** The pieces that a long answer is written in. Bytes, or characters. */
const PIECE = 65_536

/** Writes a long answer as its client reads it: bytes written and not read are there three times. */
function writeInPieces(res: ServerResponse, body: string | Buffer): void {
  const pieces = textPieces(body, PIECE)
  const goOn = (): void => {
    for (let piece = pieces.next(); !piece.done; piece = pieces.next()) if (!res.write(piece.value)) return
    res.off('drain', goOn).end()
  }
  res.on('drain', goOn)
  goOn()
}

/**
 * Passes a source on as it comes: bytes that came together are written once, observed after they were
 * written, and the source waits while the client does. A source that breaks off is never ended cleanly: SDK
 * loops would take the cut text for the whole answer (docs/threats.md#t4). An answer whose last event was
 * written is whole, whoever then closes.
 */
class ReplyStream {
  readonly #res: ServerResponse
  readonly #body: StreamedBody
  readonly #options: SendOptions
  readonly #ended: (reason: EndReason, bytes: number) => void
  #bytes = 0
  #stall: NodeJS.Timeout | null = null
  #over = false
  #finished: EndReason | null = null
  /** True while the client has yet to take written bytes. */
  #waits = false
  #head: NodeJS.Immediate | undefined
  #endScreen: (() => void) | undefined

  constructor(
    res: ServerResponse,
    body: StreamedBody,
    options: SendOptions,
    ended: (reason: EndReason, bytes: number) => void,
  ) {
    this.#res = res
    this.#body = body
    this.#options = options
    this.#ended = ended
    this.#begin()
  }

  #begin(): void {
    const { source, screen } = this.#body
    this.#endScreen = screen?.begin?.({
      write: (bytes) => {
        if (bytes.length > 0 && !this.#over && !this.#res.writableEnded) this.#write(bytes)
      },
      end: () => this.#breakOff('upstream_broken'),
    })
    // With the first chunk in one write, unless that lets the client wait for the head.
    this.#head = setImmediate(() => this.#res.flushHeaders())
    source.on('readable', () => this.#take())
    source.once('end', () => this.#finish())
    source.once('error', () => this.#sourceBroke())
    source.once('close', () => this.#sourceBroke())
    if (source.errored) this.#sourceBroke()
    this.#res.on('drain', () => this.#resume())
    this.#res.once('close', () => this.#gone())
    this.#options.onStream((reason) => this.#breakOff(reason))
  }

  // Not by `data`, which has an event, and a write, for each piece: those of one byte would hold up everybody
  // (docs/threats.md#a3).
  #take(): void {
    while (!this.#over && !this.#waits) {
      // Without an encoding, and each chunk a buffer.
      const chunk = this.#body.source.read() as Buffer | null
      if (chunk === null) return
      this.#pass(chunk)
    }
  }

  #pass(come: Buffer): void {
    const { screen } = this.#body
    const chunk = screen ? screen.push(come) : come
    if (chunk === null) this.#cut('upstream_broken')
    else if (chunk.length > 0) this.#write(chunk)
  }

  #write(chunk: Buffer): void {
    if (this.#bytes === 0) clearImmediate(this.#head)
    this.#bytes += chunk.length
    if (!this.#res.write(chunk)) this.#wait()
    this.#body.observe?.(chunk)
  }

  #wait(): void {
    this.#waits = true
    this.#watchStall()
  }

  #watchStall(): void {
    this.#stall ??= setTimeout(() => {
      this.#close('write_stalled')
      this.#res.destroy()
    }, this.#options.writeStallMs)
  }

  #resume(): void {
    this.#waits = false
    this.#clearStall()
    this.#take()
  }

  #finish(): void {
    if (this.#over) return
    // An HTTP message may "end" cut short: only `complete` says that its framing was honoured.
    const { complete } = this.#body.source as Partial<IncomingMessage>
    if (complete === false) {
      this.#sourceBroke()
      return
    }
    this.#writeRest()
    const isWhole = this.#body.isWhole?.(true) !== false
    if (isWhole || !this.#body.isRewritten) this.#end(isWhole ? 'complete' : 'upstream_broken')
    else this.#cut('upstream_broken')
  }

  /** Ends the answer as its source has, and never as one that was cut. */
  #end(reason: EndReason): void {
    this.#finished = reason
    // The last piece may be too small to have filled the buffer, and still never be taken.
    this.#watchStall()
    this.#res.end(() => this.#close(reason))
  }

  /** Writes what was held back: nothing more comes that it could be the beginning of. */
  #writeRest(): void {
    const rest = this.#body.screen?.flush()
    if (rest && rest.length > 0) this.#write(rest)
  }

  #sourceBroke(): void {
    if (this.#over || this.#res.writableEnded) return
    this.#writeRest()
    this.#breakOff('upstream_broken')
  }

  /** Ends the answer before its source does; one that is whole as it is is not cut by that. */
  #breakOff(reason: EndReason): void {
    if (this.#over || this.#res.writableEnded) return
    if (this.#isWhole()) {
      this.#end('complete')
      this.#body.source.destroy()
    } else this.#cut(reason)
  }

  #cut(reason: EndReason): void {
    if (this.#over || this.#res.writableEnded) return
    const event = this.#body.brokenOff?.() ?? ''
    this.#close(reason)
    this.#body.source.destroy()
    // Also without an event: what was written just now is yet to be sent.
    this.#res.write(event, () => this.#res.destroy())
    // A client that does not read must not keep the connection open by that.
    setTimeout(() => this.#res.destroy(), 1_000).unref()
  }

  #gone(): void {
    if (this.#res.writableFinished) this.#close(this.#finished ?? 'complete')
    // Clients hang up as soon as they have read the last event.
    else this.#close(!this.#waits && this.#isWhole() ? 'complete' : 'client_gone')
    if (!this.#body.source.destroyed) this.#body.source.destroy()
  }

  /** A length that was announced, and not reached, makes the answer a cut one to its client. */
  #isWhole(): boolean {
    return this.#options.headers['content-length'] === undefined && this.#body.isWhole?.(false) === true
  }

  #close(reason: EndReason): void {
    if (this.#over) return
    this.#over = true
    clearImmediate(this.#head)
    this.#clearStall()
    this.#endScreen?.()
    this.#ended(reason, this.#bytes)
  }

  #clearStall(): void {
    if (this.#stall) clearTimeout(this.#stall)
    this.#stall = null
  }
}
