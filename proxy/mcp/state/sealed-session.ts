import { createHmac } from 'node:crypto'
import { deflateRawSync, inflateRawSync } from 'node:zlib'
import { isObject, type JsonObject } from '../../../db/support/json.ts'
import { openSealed, sealBytes } from '../../../plugins/secrets/seal.ts'
import type { CallerSession } from './sessions.ts'

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
    const text = deflateRawSync(JSON.stringify([principalId, resourceId, capabilities, clientInfo, until]))
    const id = idOf(sealBytes(this.#key, text))
    return id.length > MAX_ID ? null : id
  }

  /** Reads an id. Undefined if it is none of ours. */
  open(id: string): SealedSession | undefined {
    const sealed = Buffer.from(id.replace('.', ''), 'base64url')
    // One text of each: another one would be another session.
    if (id.length > MAX_ID || id !== idOf(sealed)) return undefined
    try {
      const opened = openSealed(this.#key, sealed)
      return factsOf(JSON.parse(inflateRawSync(opened, { maxOutputLength: MAX_TEXT }).toString()))
    } catch {
      // Somebody else's, or changed.
      return undefined
    }
  }
}

/** The nonce stands before the dot, and names the session. */
const idOf = (sealed: Buffer): string => sealed.toString('base64url').replace(/^.{16}/, '$&.')

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
