import { Readable } from 'node:stream'
import { type CallAuthority, confirmAuthority } from '../../../plugins/call-authority.ts'
import { textPieces } from '../../../plugins/text-pieces.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'

/** Characters that are written, and so encoded and encrypted, at once. */
const PIECE = 131_072

export interface LongBody {
  readonly body: Readable
  readonly headers: readonly string[]
}

/** Has a long text written a piece in a turn of the loop (docs/threats.md#a5), while it is allowed. */
export const longBody = (text: string | Buffer, authority: CallAuthority): LongBody => ({
  body: Readable.from(inTurn(text, authority), { objectMode: false }),
  headers: ['content-length', String(Buffer.byteLength(text))],
})

async function* inTurn(text: string | Buffer, authority: CallAuthority): AsyncGenerator<string | Buffer> {
  for (const piece of textPieces(text, PIECE)) {
    await eventLoopTurn()
    if (!authority.unchanged) await confirmAuthority(authority)
    yield piece
  }
}
