import { createHmac, timingSafeEqual } from 'node:crypto'

/** The time that one nonce is handed out for. The one before it is still accepted. Seconds. */
const STEP_S = 300

/**
 * The endpoint that a nonce is for: one handed out by the token endpoint is no good at a resource
 * (docs/threats.md#d-13).
 */
export type NonceFor = 'token' | 'resource'

/**
 * Stateless nonces (RFC 9449 §8, §9): an HMAC over the time step, with a secret that all replicas share, so
 * that each accepts what another has handed out, before and after a restart. 132 bits, base64url.
 */
export class Nonces {
  readonly #secret: Buffer
  readonly #current = new Map<NonceFor, { readonly step: number; readonly nonce: string }>()

  /** `secret`: at least 32 random bytes. */
  constructor(secret: Buffer) {
    this.#secret = secret
  }

  /** Returns the nonce to hand out at this instant. `at`: ms since the epoch. */
  current(use: NonceFor, at: number): string {
    const step = stepOf(at)
    const known = this.#current.get(use)
    if (known?.step === step) return known.nonce
    const nonce = this.#of(use, step)
    this.#current.set(use, { step, nonce })
    return nonce
  }

  /**
   * Returns whether a nonce was handed out in this step or the one before, or already in the next, by a
   * replica whose clock is ahead.
   */
  isFresh(use: NonceFor, nonce: string, at: number): boolean {
    const step = stepOf(at)
    return (
      same(nonce, this.current(use, at)) || [step - 1, step + 1].some((n) => same(nonce, this.#of(use, n)))
    )
  }

  #of(use: NonceFor, step: number): string {
    return createHmac('sha256', this.#secret).update(`${use} ${step}`).digest('base64url').slice(0, 22)
  }
}

const stepOf = (at: number): number => Math.floor(at / 1000 / STEP_S)

function same(given: string, expected: string): boolean {
  const a = Buffer.from(given)
  const b = Buffer.from(expected)
  return a.length === b.length && timingSafeEqual(a, b)
}
