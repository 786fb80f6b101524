import type { DpopDependencies, DpopMode } from '../../../plugins/dpop/dpop.ts'
import { NonceIssuer } from '../../../plugins/dpop/dpop.ts'
import { Refusal } from '../../../plugins/refusal.ts'

export const BASE_URL = 'https://gateway.test'

/** What the dpop plugin is made of where a test brings no token of ours. */
export function constrained(mode: DpopMode, over: Partial<DpopDependencies> = {}): DpopDependencies {
  return {
    mode,
    noDowngrade: false,
    nonces: new NonceIssuer(Buffer.alloc(32, 7)),
    baseUrls: () => [BASE_URL],
    tokens: { isOurs: () => false, verify: () => Promise.reject(new Refusal('token_invalid')) },
    inForce: () => ({ dpopMode: over.mode ?? mode, noDowngrade: over.noDowngrade ?? false }),
    ...over,
  }
}
