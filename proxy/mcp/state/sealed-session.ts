import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto'
import { deflateRawSync, inflateRawSync } from 'node:zlib'
import { isObject, type JsonObject } from '../../../db/support/json.ts'
import type { CallerSession } from './sessions.ts'

const CIPHER = 'aes-256-gcm'
const NONCE_BYTES = 12
const TAG_BYTES = 16
/** A header of all processes behind a balancer must hold it. Characters. */
const MAX_ID = 4_096
/** Twice what two objects of handshake.ts may be. */
const MAX_TEXT = 131_072

export type SealedSession = Omit<CallerSession, 'id'> & {
  readonly until: number
}

/** Session ids that describe the session to every process with the same secret: `name.sealed`. */
export class SessionSeal {
  readonly #key: Buffer

  /** `secret`: at least 32 random bytes that all replicas share. */
  constructor(secret: Buffer) {
    this.#key = createHmac('sha256', secret).update('mcp session').digest()
  }

  /** Makes the id of a session; null if it would be too long. */
  seal({ principalId, resourceId, capabilities, clientInfo, until }: SealedSession): string | null {
    const nonce = randomBytes(NONCE_BYTES)
    const cipher = createCipheriv(CIPHER, this.#key, nonce)
    const text = deflateRawSync(JSON.stringify([principalId, resourceId, capabilities, clientInfo, until]))
    const sealed = Buffer.concat([cipher.update(text), cipher.final(), cipher.getAuthTag()])
    const id = `${nonce.toString('base64url')}.${sealed.toString('base64url')}`
    return id.length > MAX_ID ? null : id
  }

  /** Reads an id. Undefined if it is none of ours. */
  open(id: string): SealedSession | undefined {
    const [name = '', text = ''] = id.split('.')
    const [nonce, sealed] = [Buffer.from(name, 'base64url'), Buffer.from(text, 'base64url')]
    // One text of each: another one would be another session.
    if (id !== `${nonce.toString('base64url')}.${sealed.toString('base64url')}`) return undefined
    if (id.length > MAX_ID || nonce.length !== NONCE_BYTES || sealed.length <= TAG_BYTES) return undefined
    const decipher = createDecipheriv(CIPHER, this.#key, nonce, { authTagLength: TAG_BYTES })
    decipher.setAuthTag(sealed.subarray(-TAG_BYTES))
    try {
      const opened = Buffer.concat([decipher.update(sealed.subarray(0, -TAG_BYTES)), decipher.final()])
      return factsOf(JSON.parse(inflateRawSync(opened, { maxOutputLength: MAX_TEXT }).toString()))
    } catch {
      // Somebody else's, or changed.
      return undefined
    }
  }
}

/** Sealed by us alone; by another version, perhaps. */
function factsOf(read: unknown): SealedSession | undefined {
  if (!Array.isArray(read)) return undefined
  const [principalId, resourceId, capabilities, clientInfo, until] = read as unknown[]
  if (typeof principalId !== 'string' || typeof until !== 'number' || !isObject(capabilities))
    return undefined
  return {
    principalId,
    resourceId: typeof resourceId === 'string' ? resourceId : null,
    // Parsed from JSON: nothing else is in them.
    capabilities: capabilities as JsonObject,
    clientInfo: isObject(clientInfo) ? (clientInfo as JsonObject) : null,
    until,
  }
}
