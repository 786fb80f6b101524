import { type CallAuthority, confirmAuthority } from '../../plugins/call-authority.ts'
import { textPieces } from '../../plugins/text-pieces.ts'
import { eventLoopTurn } from '../../plugins/turns.ts'

interface LongBodyPace {
  /** The size of a piece, which is encoded and encrypted at once. Characters or bytes. */
  readonly atOnce: number
  /** The amount that is written in one turn of the loop. Likewise. */
  readonly perTurn: number
}

/**
 * Has a long body written in pieces (docs/threats.md#a5), the next as soon as the last is taken: TLS encrypts a
 * whole write at once. None goes out once its call is not allowed any more. Can be read from its beginning again.
 */
export const longBody = (
  parts: readonly (string | Buffer)[],
  authority: CallAuthority,
  pace: LongBodyPace,
): AsyncIterable<string | Buffer> => ({ [Symbol.asyncIterator]: () => pieces(parts, authority, pace) })

async function* pieces(
  parts: readonly (string | Buffer)[],
  authority: CallAuthority,
  { atOnce, perTurn }: LongBodyPace,
): AsyncGenerator<string | Buffer> {
  let written = 0
  for (const part of parts) {
    for (const piece of textPieces(part, atOnce)) {
      if (written >= perTurn) {
        written = 0
        await eventLoopTurn()
      }
      written += piece.length
      if (!authority.unchanged) await confirmAuthority(authority)
      yield piece
    }
  }
}
