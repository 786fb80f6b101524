import { holds } from '../capability.ts'
import type { AccessToken, Principal, Proof } from '../facts.ts'
import type { Pinned } from '../pin/pin.ts'
import type { Arrival, Plugin } from '../plugin.ts'
import type { KnownOperator } from './operator.ts'

/** Who reads proofs of the ledger: any known principal, its own; an operator. */
export interface ProofReader {
  /** The name that the ledger knows the reader by; null of an operator that is in no table. */
  readonly ref: string | null
  /** True where it may read what is another's: an operator that holds `admin.audit`. */
  readonly auditor: boolean
  readonly principal?: Principal
  readonly proof: Proof | null
}

interface Caller extends Pinned {
  readonly proof: Proof | null
  readonly token: AccessToken | null
}

const AUDITS = ['admin.audit']

/** Admits whoever administers. */
export const operatorReads = ({
  name,
  admit,
}: Plugin<Arrival, KnownOperator>): Plugin<Arrival, ProofReader> => ({
  name,
  admit: async (arrival) => {
    const { holder, token, proof, principal } = await admit(arrival)
    const auditor = holds(holder, token, AUDITS)
    return { ref: principal?.ref ?? null, auditor, proof, ...(principal && { principal }) }
  },
})

/**
 * Admits any principal with a known certificate, with its proof as the mode demands, and any operator by whichever of
 * its doors (docs/protocol.md#audit-proofs). Refuses as those do.
 */
export function proofReader(
  operator: Plugin<Arrival, KnownOperator>,
  caller: (arrival: Arrival) => Promise<Caller>,
): Plugin<Arrival, ProofReader> {
  const administers = operatorReads(operator)
  return {
    name: 'operator',
    admit: async (arrival) => {
      const { 'x-admin-secret': secret, cookie } = arrival.headers
      if (secret !== undefined || (cookie !== undefined && arrival.peer === null))
        return administers.admit(arrival)
      const { principal, proof } = await caller(arrival)
      // Its capabilities are judged, and what its page may do, as everywhere in administration.
      if (principal.type === 'operator') return administers.admit(arrival)
      return { ref: principal.ref, auditor: false, proof, principal }
    },
  }
}
