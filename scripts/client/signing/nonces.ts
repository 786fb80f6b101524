/** Headers of an answer, names in lower case. */
export type LowerCaseHeaders = Readonly<Record<string, string | string[] | undefined>>

/** A kind of nonce: the gateway hands out one at its token endpoint and another everywhere else. */
export type NonceKind = 'token' | 'resource'

/** The latest nonce of each kind (RFC 9449 §8.2). */
export interface NonceStore {
  readonly get: (door: NonceKind) => string | undefined
  /** Keeps the nonce of an answer, of whatever status; returns false if there was none. */
  readonly learn: (door: NonceKind, headers: LowerCaseHeaders) => boolean
}

/** Keeps nonces in memory. */
export function keepNonces(): NonceStore {
  const latest = new Map<NonceKind, string>()
  return {
    get: (door) => latest.get(door),
    learn: (door, headers) => {
      const nonce = headers['dpop-nonce']
      if (typeof nonce !== 'string' || nonce === '') return false
      latest.set(door, nonce)
      return true
    },
  }
}
