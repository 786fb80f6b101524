import { Readable } from 'node:stream'
import { turn } from '../../../plugins/turns.ts'

/** Characters that are written, and so encoded and encrypted, at once. */
const PIECE = 131_072

/** A long text as the body of a request, and its header. */
export interface LongBody {
  readonly body: Readable
  readonly headers: { readonly 'content-length': string }
}

/** Has a long text written a piece in a turn of the loop (docs/threats.md#a5), framed as any other. */
export const longBody = (text: string | Buffer): LongBody => ({
  body: Readable.from(piecesOf(text), { objectMode: false }),
  headers: { 'content-length': String(Buffer.byteLength(text)) },
})

async function* piecesOf(text: string | Buffer): AsyncGenerator<Buffer> {
  for (let at = 0, end = 0; at < text.length; at = end) {
    await turn()
    end = Math.min(at + PIECE, text.length)
    // The two halves of a character are written together.
    if (typeof text === 'string' && end < text.length && isFirstHalf(text.charCodeAt(end - 1))) end -= 1
    yield typeof text === 'string' ? Buffer.from(text.slice(at, end)) : text.subarray(at, end)
  }
}

const isFirstHalf = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdbff
