import { generateKeyPairSync, type JsonWebKey } from 'node:crypto'
import { join } from 'node:path'
import { isObject } from '../../../db/support/json.ts'
import { readPrivateSync, writePrivateOnceSync } from '../identity/private-file.ts'

const FILE = 'dpop.jwk'

/** Makes a new key for DPoP proofs: an EC P-256 private JWK (RFC 7517). */
export function newDpopKey(): JsonWebKey {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'jwk' })
}

/** Returns the public half of a key, its members in the order in which RFC 7638 hashes them. */
export function publicDpopJwk({ crv, kty, x, y }: JsonWebKey): JsonWebKey {
  return { crv, kty, x, y } as JsonWebKey
}

/**
 * Reads the DPoP key of an identity directory: `dpop.jwk`, made on first use with mode 0600 and never
 * overwritten. Two processes that make it at once both get the one that stayed. Throws one sentence if the
 * file is not such a key, or others can read it.
 */
export function dpopKeyIn(directory: string): JsonWebKey {
  const kept = storedDpopKey(directory)
  if (kept !== null) return kept
  const path = join(directory, FILE)
  writePrivateOnceSync(path, dpopKeyText(newDpopKey()))
  return parseDpopKey(readPrivateSync(path) ?? '', path)
}

/** Like {@link dpopKeyIn}, but null if there is none. */
export function storedDpopKey(directory: string): JsonWebKey | null {
  const path = join(directory, FILE)
  const text = readPrivateSync(path)
  return text === null ? null : parseDpopKey(text, path)
}

/** Returns a key as the text of `dpop.jwk`. */
export const dpopKeyText = (key: JsonWebKey): string => `${JSON.stringify(key)}\n`

function parseDpopKey(text: string, path: string): JsonWebKey {
  const key = jsonOf(text)
  if (!isDpopKey(key)) throw new Error(`${path} does not hold a private EC P-256 key (JWK)`)
  return key
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

/** Tells a private EC P-256 JWK by its members. Does NOT check that its point lies on the curve. */
export function isDpopKey(value: unknown): value is JsonWebKey {
  if (!isObject(value)) return false
  const { kty, crv, x, y, d } = value
  return kty === 'EC' && crv === 'P-256' && [x, y, d].every((member) => typeof member === 'string')
}
