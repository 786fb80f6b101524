export type LowerCaseHeaders = Readonly<Record<string, string | string[] | undefined>>

/** A kind of nonce: the gateway hands out one at its token endpoint and another everywhere else. */
export type NonceKind = 'token' | 'resource'

/** The latest nonce of each kind (RFC 9449 §8.2), and the time by the gateway's clock (§11.1). */
export interface NonceStore {
  readonly get: (door: NonceKind) => string | undefined
  /** Keeps nonce and time of an answer, of whatever status; returns false if there was no nonce. */
  readonly learn: (door: NonceKind, headers: LowerCaseHeaders) => boolean
  /** Returns how far the gateway's clock is ahead of this machine's, by its answers. ms. */
  readonly ahead: () => number
}

/**
 * The difference of two clocks that is let be: an answer says its second, and takes a while to come. It is
 * far less than what the gateway accepts. ms.
 */
const CLOCK_TOLERANCE_MS = 3_000

/** Keeps nonces and the gateway's time in memory. `local`: this machine's clock. */
export function keepNonces(local: () => number): NonceStore {
  const latest = new Map<NonceKind, string>()
  let ahead = 0
  return {
    get: (door) => latest.get(door),
    ahead: () => ahead,
    learn: (door, headers) => {
      const said = typeof headers.date === 'string' ? Date.parse(headers.date) : Number.NaN
      // The middle of the second that it names.
      const difference = said + 500 - local()
      if (Math.abs(difference - ahead) > CLOCK_TOLERANCE_MS) ahead = difference
      const nonce = headers['dpop-nonce']
      if (typeof nonce !== 'string' || nonce === '') return false
      latest.set(door, nonce)
      return true
    },
  }
}
