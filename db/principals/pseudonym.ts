import { randomBytes } from 'node:crypto'

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz234567'

/**
 * `usr_` and 128 random bits in lower-case base32 (RFC 4648 §6): says nothing of the person, and outlives its
 * erasure.
 */
export function newPseudonym(): string {
  let bits = 0
  let held = 0
  let text = 'usr_'
  for (const byte of randomBytes(16)) {
    held = (held << 8) | byte
    bits += 8
    for (; bits >= 5; bits -= 5) text += ALPHABET[(held >> (bits - 5)) & 31]
    held &= (1 << bits) - 1
  }
  return text + ALPHABET[(held << (5 - bits)) & 31]
}
