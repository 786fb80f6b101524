import { unstoredOperator } from '../operators/actor.ts'
import type { KnownOperator } from '../operators/operator.ts'
import type { Arrival, Plugin } from '../plugin.ts'
import { SecretVerifier } from './verifier.ts'

/**
 * Admits a caller with the token that reads metrics (`Authorization: Bearer`, RFC 6750 §2.1), as one who
 * holds `admin.read` at this door alone, and every operator, whom the gate asks. Does NOT count wrong tokens:
 * they cost a digest.
 */
export function metricsReader(
  operator: Plugin<Arrival, KnownOperator>,
  token: string | null,
): Plugin<Arrival, KnownOperator> {
  const verifier = new SecretVerifier()
  return {
    name: 'metrics_reader',
    admit: (arrival) => {
      const [, given] = /^Bearer +(\S+)$/i.exec(arrival.headers.authorization ?? '') ?? []
      if (token !== null && given !== undefined && verifier.same(given, token)) return MONITOR
      return operator.admit(arrival)
    },
    // The token is a setting of this process.
    still: (facts) => (facts.actor.via === 'metrics_token' ? {} : (operator.still?.(facts) ?? {})),
  }
}

const MONITOR: KnownOperator = {
  ...unstoredOperator('monitor', 'metrics_token', []),
  proof: null,
  token: null,
}
