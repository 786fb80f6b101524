import { holdsDemanded } from '../capability.ts'
import type { DpopProof, Principal } from '../facts.ts'
import type { PinnedCaller } from '../pin/pin.ts'
import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import type { KnownOperator, VerifiedCredentials } from './operator.ts'

/** A reader of proofs of the ledger: any known principal, its own; an operator. */
export interface ProofReader {
  /** The name that the ledger knows the reader by; null of an operator that is in no table. */
  readonly ref: string | null
  /** True if it may read another's: an operator that holds `admin.audit`. */
  readonly auditor: boolean
  readonly principal?: Principal
  readonly proof: DpopProof | null
  /** Asks for all that again at a later instant; ms since the epoch. Rejects with a `Refusal`. */
  readonly askAgain: (at: number) => Promise<Pick<ProofReader, 'ref' | 'auditor'>>
}

interface CallerChecks {
  readonly pin: Plugin<Arrival, PinnedCaller>
  readonly proof: Plugin<Arrival & PinnedCaller, VerifiedCredentials>
  readonly apiKey: Plugin<Arrival & PinnedCaller, object>
}

const AUDITS = ['admin.audit']

const auditorOf = ({ holder, token, principal }: KnownOperator): Pick<ProofReader, 'ref' | 'auditor'> => ({
  ref: principal?.ref ?? null,
  auditor: holdsDemanded(holder, token, AUDITS),
})

async function admitCaller(
  arrival: Arrival,
  { pin, proof, apiKey }: CallerChecks,
): Promise<PinnedCaller & VerifiedCredentials> {
  const pinned = await pin.admit(arrival)
  const proven = await proof.admit({ ...arrival, ...pinned })
  await apiKey.admit({ ...arrival, ...pinned })
  return { ...pinned, ...proven }
}

async function recheckCaller(
  facts: Arrival & PinnedCaller & VerifiedCredentials,
  { pin, proof, apiKey }: CallerChecks,
): Promise<void> {
  const now = { ...facts, ...(await pin.still?.(facts)) }
  await proof.still?.(now)
  await apiKey.still?.(now)
}

/** Refuses a reader who is somebody else by now, or audits no more. */
async function recheckReader({ askAgain, ref, auditor, at }: Arrival & ProofReader): Promise<object> {
  const now = await askAgain(at)
  if (now.ref !== ref || (auditor && !now.auditor)) throw new Refusal('capability_missing')
  return {}
}

export const operatorReader = (operator: Plugin<Arrival, KnownOperator>): Plugin<Arrival, ProofReader> => ({
  name: operator.name,
  admit: async (arrival) => {
    const known = await operator.admit(arrival)
    const { proof, principal } = known
    const askAgain: ProofReader['askAgain'] = async (at) =>
      auditorOf({ ...known, ...(await operator.still?.({ ...arrival, ...known, at })) })
    return { ...auditorOf(known), proof, askAgain, ...(principal && { principal }) }
  },
  ...(operator.still && { still: recheckReader }),
})

/** Admits any known principal, and any operator by its doors (docs/protocol.md#audit-proofs). */
export function proofReader(
  operator: Plugin<Arrival, KnownOperator>,
  caller: CallerChecks,
): Plugin<Arrival, ProofReader> {
  const administers = operatorReader(operator)
  return {
    name: 'operator',
    admit: async (arrival) => {
      const { 'x-admin-secret': secret, cookie } = arrival.headers
      if (secret !== undefined || (cookie !== undefined && arrival.peer === null))
        return administers.admit(arrival)
      const known = await admitCaller(arrival, caller)
      const { principal, proof } = known
      // Its capabilities are judged, and its page's, as everywhere in administration.
      if (principal.type === 'operator') return administers.admit(arrival)
      const { ref } = principal
      const askAgain: ProofReader['askAgain'] = async (at) => {
        await recheckCaller({ ...arrival, ...known, at }, caller)
        return { ref, auditor: false }
      }
      return { ref, auditor: false, proof, principal, askAgain }
    },
    still: recheckReader,
  }
}
