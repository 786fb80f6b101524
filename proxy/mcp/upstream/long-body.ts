import { Readable } from 'node:stream'
import { type CallAuthority, confirmed } from '../../../plugins/call-authority.ts'
import { piecesOf } from '../../../plugins/text-pieces.ts'
import { turn } from '../../../plugins/turns.ts'

/** Characters that are written, and so encoded and encrypted, at once. */
const PIECE = 131_072

/** A long text as the body of a request, and its header, name and value. */
export interface LongBody {
  readonly body: Readable
  readonly headers: readonly string[]
}

/**
 * Has a long text written a piece in a turn of the loop (docs/threats.md#a5), framed as any other. None goes out once
 * its call is not allowed any more.
 */
export const longBody = (text: string | Buffer, authority: CallAuthority): LongBody => ({
  body: Readable.from(inTurn(text, authority), { objectMode: false }),
  headers: ['content-length', String(Buffer.byteLength(text))],
})

async function* inTurn(text: string | Buffer, authority: CallAuthority): AsyncGenerator<string | Buffer> {
  for (const piece of piecesOf(text, PIECE)) {
    await turn()
    if (!authority.unchanged) await confirmed(authority)
    yield piece
  }
}
