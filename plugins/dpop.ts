import type { Principal, Proof } from './facts.ts'
import type { Arrival, Plugin } from './plugin.ts'
import { Refusal } from './refusal.ts'

/** `egress_dpop_mode` (spec §5.2): whether a DPoP proof is ignored, verified when present, or demanded. */
export type DpopMode = 'off' | 'optional' | 'required'

/**
 * The place of DPoP (RFC 9449) in the pipeline. This version cannot verify a proof yet, so it believes none:
 * `required` refuses everything, `optional` refuses a request that presents a proof (it asked to be judged by it) and
 * lets mutual TLS alone pass, `off` does not look.
 */
export function dpop(mode: DpopMode): Plugin<Arrival & { principal: Principal }, { proof: Proof | null }> {
  return {
    name: 'dpop',
    needs: ['principal'],
    gives: ['proof'],
    admit: ({ headers }) => {
      if (mode === 'required') throw new Refusal('proof_required', { message: CANNOT_VERIFY })
      if (mode === 'optional' && headers.dpop !== undefined) {
        throw new Refusal('proof_required', { message: CANNOT_VERIFY })
      }
      return { proof: null }
    },
  }
}

const CANNOT_VERIFY =
  'This version of the gateway cannot verify DPoP proofs yet. Call without one while egress_dpop_mode is optional.'
