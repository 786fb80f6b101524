import { verify as verifyArgon2 } from '@node-rs/argon2'
import { hash as hashBcrypt, verify as verifyBcrypt } from '@node-rs/bcrypt'

/** bcrypt's work factor: about 200 ms on this project's kind of machine. */
const COST = 12
/** bcrypt reads no further than this (docs/threats.md#t15). Bytes of UTF-8. */
export const SECRET_MAX_BYTES = 72
export const SECRET_MIN_BYTES = 12

/** Hashes a secret with bcrypt. Throws a RangeError past 72 bytes rather than cut it short in silence. */
export function hashSecret(secret: string): Promise<string> {
  if (Buffer.byteLength(secret) > SECRET_MAX_BYTES) throw new RangeError('a secret is at most 72 bytes long')
  return hashBcrypt(secret, COST)
}

/** Returns whether `secret` is the one behind `stored`: bcrypt or argon2id. False for any other shape. */
export async function verifySecret(secret: string, stored: string): Promise<boolean> {
  if (stored.startsWith('$argon2id$')) return verifyArgon2(stored, secret).catch(() => false)
  if (!/^\$2[aby]\$/.test(stored) || Buffer.byteLength(secret) > SECRET_MAX_BYTES) return false
  return verifyBcrypt(secret, stored).catch(() => false)
}
