import { proofSigner } from '../../../scripts/client/signing/proof.ts'
import type { Proofs } from '../job.ts'

/** The age from which a proof is not sent any more: the gateway takes 60 s, and it has yet to arrive. ms. */
export const PROOF_LIFE_MS = 50_000

/**
 * Returns a source of proofs, none twice: those signed beforehand while they last and are young, then one
 * signed on the spot.
 */
export function proofSupply({ signed, signedAt, signing }: Proofs): () => string {
  const { jwk, ...target } = signing
  const sign = proofSigner(jwk)
  let used = 0
  return () => {
    const at = Date.now()
    const ready = at - signedAt < PROOF_LIFE_MS ? signed[used] : undefined
    used += 1
    return ready ?? sign({ ...target, at })
  }
}
