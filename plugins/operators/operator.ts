import type { PrincipalType } from '../../db/schema.ts'
import type { Assertion } from '../../db/statement.ts'
import type { AccessToken, Commitments, Demand, Principal, Proof } from '../facts.ts'
import type { Granted } from '../permit.ts'
import type { PinLookup, Pinned } from '../pin/pin.ts'
import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import { type Operating, storedOperator } from './actor.ts'

/** An operator as the first question of administration finds it. */
export interface KnownOperator extends Operating {
  /** Null where none came: by the secret, by a session, or where mutual TLS alone may pass. */
  readonly proof: Proof | null
  readonly token: AccessToken | null
  /** The operator that is stored. Absent: the secret's, the socket's. */
  readonly principal?: Principal
  readonly commitments?: Commitments
  /** Absent: it did not come by one. */
  readonly session?: BrowserSession
}

/** The session of a browser, as far as its operator may know it. */
export interface BrowserSession {
  /** Lower-case hex SHA-256 of the cookie's value. */
  readonly digest: string
  /** How the identity provider has authenticated the person (RFC 8176). */
  readonly amr: readonly string[]
  /** What goes with each change, in `X-Csrf-Token`. */
  readonly csrf: string
  /** The end, however much it is used. ms since the epoch. */
  readonly expiresAt: number
}

/** The operator of a browser's session, and the door by which it was signed in. */
export interface SessionOperator extends Operating {
  readonly principal?: Principal
  readonly commitments?: Commitments
  readonly session?: BrowserSession
}

export interface OperatorSources {
  /** `X-Admin-Secret`, where one is sent. Refuses a wrong one. */
  readonly secret: Plugin<Arrival, Operating>
  /** Whose a certificate is, as the database says it now. */
  readonly lookup: PinLookup
  readonly pin: Plugin<Arrival, Pinned>
  /** The proof and the token of whoever is pinned. */
  readonly proof: Plugin<Arrival & Pinned, { proof: Proof | null; token: AccessToken | null }>
  /** Refuses the pages of other sites. */
  readonly page: Plugin<Arrival, object>
  /** Finds the operator of a session; null where the request names none that holds. Refuses a forged request. */
  readonly session: (arrival: Arrival) => Promise<SessionOperator | null>
  readonly unchanged: (type: PrincipalType, ref: string, revision: number) => Assertion
}

/**
 * Finds out who administers (docs/operators.md#doors). An operator's certificate decides, with its proof as the mode
 * demands, even beside a good secret; a wrong secret is refused in any case; a good one beside any other certificate
 * is the break-glass operator `admin`; then a browser's session. Refuses with `admin_secret_invalid` where nobody is
 * known, and a known operator as `pin` and `dpop` do.
 */
export function operator(sources: OperatorSources): Plugin<Arrival, KnownOperator> {
  return {
    name: 'operator',
    admit: async (arrival) => {
      const { 'x-admin-secret': secret } = arrival.headers
      const breakGlass = secret === undefined ? null : await sources.secret.admit(arrival)
      if (await hasOperatorCertificate(arrival, sources)) return byCertificate(arrival, sources)
      if (breakGlass) return { ...breakGlass, proof: null, token: null }
      const session = await sources.session(arrival)
      if (session) return { ...session, proof: null, token: null }
      throw new Refusal('admin_secret_invalid')
    },
  }
}

async function hasOperatorCertificate({ peer }: Arrival, { lookup }: OperatorSources): Promise<boolean> {
  return peer !== null && (await lookup(peer.thumbprint))?.principal_type === 'operator'
}

async function byCertificate(arrival: Arrival, sources: OperatorSources): Promise<KnownOperator> {
  // A browser shows its certificate for any page.
  await sources.page.admit(arrival)
  const pinned = await sources.pin.admit(arrival)
  const { principal, commitments } = pinned
  const { proof, token } = await sources.proof.admit({ ...arrival, ...pinned })
  const standing = [sources.unchanged('operator', principal.ref, principal.revision)]
  const operating = storedOperator(principal, 'certificate', standing, token?.scope ?? null)
  return { ...operating, proof, token, principal, commitments }
}

interface Asked {
  readonly demand: Demand
}

/** What the gate asks of an operator. What is administered, the operation finds itself. */
interface Gated extends Arrival, Asked, Pick<KnownOperator, 'holder' | 'token'> {
  readonly target: null
}

/** The facts of a request of an operator who was let in. */
export type Administered = Arrival &
  KnownOperator &
  Asked & { readonly target: null; readonly granted: Granted<null> }

/**
 * Asks once more, behind a body that may take its time, who administers and whether they may: what was rotated,
 * deactivated or taken away while it came is worth nothing. Gives nothing.
 */
export const stillMay = (
  { name, admit }: Plugin<Arrival, KnownOperator>,
  gate: { readonly admit: (facts: Gated) => unknown },
): Plugin<Arrival & Asked, object> => ({
  name,
  admit: async (facts) => {
    const { holder, token } = await admit(facts)
    await gate.admit({ ...facts, holder, token, target: null })
    return {}
  },
})
