import { type CallAuthority, confirmAuthority } from '../../../plugins/call-authority.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'

/** Encrypted at once. Bytes. */
export const MAX_WRITTEN_AT_ONCE = 262_144
/** Encrypted in one turn of the loop. Bytes. */
const IN_A_TURN = 2_097_152

/**
 * TLS encrypts a whole write at once, so it is given pieces (docs/threats.md#a5): the next as soon as the
 * last is taken, since the words of an other side that has hung up would be lost later. None goes out once
 * its call is not allowed any more. It can be read from its beginning again.
 */
export const bodyPieces = (parts: readonly Buffer[], authority: CallAuthority): AsyncIterable<Buffer> => ({
  [Symbol.asyncIterator]: () => pieces(parts, authority),
})

async function* pieces(parts: readonly Buffer[], authority: CallAuthority): AsyncGenerator<Buffer> {
  let written = 0
  for (const part of parts) {
    for (let at = 0; at < part.length; at += MAX_WRITTEN_AT_ONCE) {
      if (written >= IN_A_TURN) {
        written = 0
        await eventLoopTurn()
      }
      written += MAX_WRITTEN_AT_ONCE
      if (!authority.unchanged) await confirmAuthority(authority)
      yield part.subarray(at, at + MAX_WRITTEN_AT_ONCE)
    }
  }
}
