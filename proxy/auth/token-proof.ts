import type { NonceIssuer } from '../../plugins/dpop/dpop.ts'
import { targetUrls } from '../../plugins/dpop/dpop.ts'
import { checkProof } from '../../plugins/dpop/proof.ts'
import type { DpopProof } from '../../plugins/facts.ts'
import type { Arrival, Plugin } from '../../plugins/plugin.ts'

/**
 * Checks the proof at the token endpoint (RFC 9449 §5): optional, without `ath`, by any key, which the token
 * will be bound to. Refuses with `proof_invalid` or `use_dpop_nonce`. Does NOT claim it: the handler does,
 * with the row of the token.
 */
export function tokenProof(
  nonces: NonceIssuer,
  baseUrls: () => readonly string[],
): Plugin<Arrival, { proof: DpopProof | null }> {
  const urls = targetUrls(baseUrls)
  return {
    name: 'token_proof',
    admit: ({ headers, method, path, at, answer }) => {
      answer['dpop-nonce'] = nonces.current('token', at)
      const { dpop: sent } = headers
      if (sent === undefined) return { proof: null }
      const isFresh = (nonce: string): boolean => nonces.isFresh('token', nonce, at)
      return { proof: checkProof(String(sent), { method, urls: urls(path), at, accessToken: null, isFresh }) }
    },
  }
}
