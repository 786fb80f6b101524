import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'

const CIPHER = 'aes-256-gcm'
const NONCE_BYTES = 12
const TAG_BYTES = 16
const NOTHING = Buffer.alloc(0)

/** Seals a text with 32 bytes (AES-256-GCM): nonce, ciphertext, tag. `purpose`: proven by the tag, not sealed. */
export function sealBytes(key: Buffer, text: Buffer | string, purpose = NOTHING): Buffer {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv(CIPHER, key, nonce).setAAD(purpose)
  const sealed = typeof text === 'string' ? cipher.update(text, 'utf8') : cipher.update(text)
  return Buffer.concat([nonce, sealed, cipher.final(), cipher.getAuthTag()])
}

/** Opens what {@link sealBytes} has sealed with this key for this purpose. Throws for anything else. */
export function openSealed(key: Buffer, sealed: Buffer, purpose = NOTHING): Buffer {
  const nonce = sealed.subarray(0, NONCE_BYTES)
  const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
  decipher.setAAD(purpose).setAuthTag(sealed.subarray(-TAG_BYTES))
  return Buffer.concat([decipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES)), decipher.final()])
}
