import type { PrincipalType } from '../../db/schema.ts'
import type { RowAssertion } from '../../db/support/statement.ts'
import type { AccessToken, CallCommitments, CapabilityDemand, DpopProof, Principal } from '../facts.ts'
import type { CallPermit } from '../permit.ts'
import type { PinLookup, PinnedCaller } from '../pin/pin.ts'
import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import { type ActorAndHolder, storedOperator, unstoredOperator } from './actor.ts'

/** An operator as the first question of administration finds it. */
export interface KnownOperator extends ActorAndHolder {
  /** Null if none came: by the secret, by a session, or if mutual TLS alone may pass. */
  readonly proof: DpopProof | null
  readonly token: AccessToken | null
  /** The operator that is stored. Absent: the secret's, the socket's. */
  readonly principal?: Principal
  readonly commitments?: CallCommitments
  /** Absent: it did not come by one. */
  readonly session?: BrowserSession
}

export interface BrowserSession {
  /** Lower-case hex SHA-256 of the cookie's value. */
  readonly digest: string
  /** The identity provider's methods of authentication (RFC 8176). */
  readonly amr: readonly string[]
  /** Sent with each change, in `X-Csrf-Token`. */
  readonly csrf: string
  /** The end, however much it is used. ms since the epoch. */
  readonly expiresAt: number
}

/** The proof and the token that were verified in addition to a certificate; null: none. */
export interface VerifiedCredentials {
  readonly proof: DpopProof | null
  readonly token: AccessToken | null
}

/** Finds the operator of a request's session, first and `again` while its answer is under way. */
export interface SessionQuestion<Found extends KnownOperator = KnownOperator> {
  readonly first: (arrival: Arrival) => Promise<Found | null>
  readonly again: (facts: Arrival & KnownOperator) => Promise<Found | null>
}

export interface OperatorDependencies {
  /** `X-Admin-Secret`, if one is sent. Refuses a wrong one. */
  readonly secret: Plugin<Arrival, ActorAndHolder>
  /** Finds the holder of a certificate, as the database says it now. */
  readonly lookup: PinLookup
  readonly pin: Plugin<Arrival, PinnedCaller>
  readonly proof: Plugin<Arrival & PinnedCaller, VerifiedCredentials>
  /** Refuses the pages of other sites. */
  readonly page: Plugin<Arrival, object>
  /** Finds the operator of a session; null if the request names none that holds. Refuses a forged request. */
  readonly session: SessionQuestion
  readonly unchanged: (type: PrincipalType, ref: string, revision: number) => RowAssertion
}

/**
 * Finds out who administers (docs/operators.md#doors). An operator's certificate decides, with its proof as
 * the mode demands, even with a good secret; a wrong secret is refused in any case; a good one with any other
 * certificate is the break-glass operator `admin`; then a browser's session. Refuses with
 * `admin_secret_invalid` if nobody is known, and a known operator as `pin` and `dpop` do.
 */
export function identifyOperator(sources: OperatorDependencies): Plugin<Arrival, KnownOperator> {
  const { secret, proof, session } = sources
  return {
    name: 'operator',
    admit: (arrival) =>
      findKnownOperator(arrival, sources, {
        secret: async () => ({ ...(await secret.admit(arrival)), proof: null, token: null }),
        proof: (pinned) => proof.admit({ ...arrival, ...pinned }),
        session: () => session.first(arrival),
      }),
    still: async (facts) =>
      assertSameDoor(
        facts,
        await findKnownOperator(facts, sources, {
          // With a certificate or a session the secret is not what let the call in.
          secret: async () =>
            facts.actor.via === 'secret' ? { ...facts, ...(await secret.still?.(facts)) } : null,
          proof: async (pinned) => ({ ...facts, ...(await proof.still?.({ ...facts, ...pinned })) }),
          session: () => session.again(facts),
        }),
      ),
  }
}

interface DoorQuestions {
  readonly secret: () => Promise<KnownOperator | null>
  readonly proof: (pinned: PinnedCaller) => VerifiedCredentials | Promise<VerifiedCredentials>
  readonly session: () => Promise<KnownOperator | null>
}

async function findKnownOperator(
  arrival: Arrival,
  sources: OperatorDependencies,
  asked: DoorQuestions,
): Promise<KnownOperator> {
  const breakGlass = arrival.headers['x-admin-secret'] === undefined ? null : await asked.secret()
  if (await hasOperatorCertificate(arrival, sources)) return byCertificate(arrival, sources, asked)
  const known = breakGlass ?? (await asked.session())
  if (known) return known
  throw new Refusal('admin_secret_invalid')
}

async function hasOperatorCertificate({ peer }: Arrival, { lookup }: OperatorDependencies): Promise<boolean> {
  return peer !== null && (await lookup(peer.thumbprint))?.principal_type === 'operator'
}

async function byCertificate(
  arrival: Arrival,
  sources: OperatorDependencies,
  asked: DoorQuestions,
): Promise<KnownOperator> {
  // A browser shows its certificate for any page.
  await sources.page.admit(arrival)
  const pinned = await sources.pin.admit(arrival)
  const { principal, commitments } = pinned
  const { proof, token } = await asked.proof(pinned)
  const standing = [sources.unchanged('operator', principal.ref, principal.revision)]
  const operating = storedOperator(principal, 'certificate', standing, token?.scope ?? null)
  return { ...operating, proof, token, principal, commitments }
}

/** Refuses a caller who comes by another door, or as somebody else, than when the call began. */
export function assertSameDoor({ actor: before }: ActorAndHolder, now: KnownOperator): KnownOperator {
  const { actor } = now
  if (actor.id === before.id && actor.via === before.via) return now
  throw new Refusal('admin_secret_invalid')
}

interface DemandFacts {
  readonly demand: CapabilityDemand
}

/** The facts by which the gate asks an operator. The operation finds its own object. */
interface OperatorGateFacts extends Arrival, DemandFacts, Pick<KnownOperator, 'holder' | 'token'> {
  readonly target: null
}

export type AdministrationFacts = Arrival &
  KnownOperator &
  DemandFacts & { readonly target: null; readonly granted: CallPermit<null> }

/**
 * Asks once more, after a body that may take its time, who administers and whether they may. Gives nothing.
 */
export const recheckOperator = (
  { name, admit }: Plugin<Arrival, KnownOperator>,
  gate: { readonly admit: (facts: OperatorGateFacts) => unknown },
): Plugin<Arrival & DemandFacts, object> => ({
  name,
  admit: async (facts) => {
    const { holder, token } = await admit(facts)
    await gate.admit({ ...facts, holder, token, target: null })
    return {}
  },
})

/** Admits every caller on the local control socket, as `socket:<uid>`: its mode decides who comes. */
export const localOperator: Plugin<Arrival, KnownOperator> = {
  name: 'local_operator',
  admit: ({ localUid }) => ({
    ...unstoredOperator(`socket:${localUid ?? 'unknown'}`, 'socket', []),
    ...{ proof: null, token: null },
  }),
}

/** Finds out whose browser asks for a page: only its session says so. Refuses with `signed_out`. */
export const requireSession = ({ first, again }: SessionQuestion): Plugin<Arrival, KnownOperator> => {
  const held = (found: KnownOperator | null): KnownOperator => {
    if (!found) throw new Refusal('signed_out')
    return found
  }
  return {
    name: 'operator',
    admit: async (arrival) => held(await first(arrival)),
    still: async (facts) => assertSameDoor(facts, held(await again(facts))),
  }
}
