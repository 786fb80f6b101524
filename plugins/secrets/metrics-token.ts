import type { Arrival, Plugin } from '../plugin.ts'
import type { Actor } from './admin-secret.ts'
import { SecretVerifier } from './verifier.ts'

/**
 * Admits whoever brings the token that reads metrics (`Authorization: Bearer`, RFC 6750 §2.1), and every operator. A
 * monitoring system so holds nothing that changes anything. Without a token, or with a wrong one, the operator's
 * check answers. Does NOT count wrong tokens: they cost a digest, and the settings see to a long one.
 */
export function metricsReader(
  operator: Plugin<Arrival, { actor: Actor }>,
  token: string | null,
): Plugin<Arrival, object> {
  const verifier = new SecretVerifier()
  return {
    name: 'metrics_reader',
    admit: async (arrival) => {
      const [, given] = /^Bearer +(\S+)$/i.exec(arrival.headers.authorization ?? '') ?? []
      if (token !== null && given !== undefined && verifier.same(given, token)) return {}
      await operator.admit(arrival)
      return {}
    },
  }
}
