import type { Database } from '../database.ts'
import type { JsonObject } from '../support/json.ts'
import { honouredPins } from './pins.ts'
import type { PrincipalRecord } from './read.ts'

/** A certificate or a key, and the instant until which it is honoured; null: no end is set. RFC 3339. */
type HonouredCredential = readonly [name: string, until: string | null]

/** The whole authority of a principal, as rows of its changes say it (docs/ledger.md#authority). */
export type AuthorityState = {
  readonly capabilities: readonly string[]
  readonly is_active: boolean
  /** Lower-case hex SHA-256 of each certificate that is honoured, the current one first. */
  readonly thumbprints: readonly HonouredCredential[]
  /** RFC 7638 thumbprints of the registered keys, the current one first. */
  readonly dpop_jkts: readonly HonouredCredential[]
}

/** Reads the authority of a principal whose record was just read. `at`: ms since the epoch. */
export async function authorityState(
  database: Database,
  record: PrincipalRecord,
  at: number,
): Promise<AuthorityState> {
  const pins = await honouredPins(database, record, at)
  return {
    capabilities: record.capabilities,
    is_active: record.is_active,
    thumbprints: pins.map(({ thumbprint, grace_until, is_current }) => [
      thumbprint,
      is_current ? null : grace_until,
    ]),
    dpop_jkts: keysOf(record, at),
  }
}

function keysOf(
  { dpop_jkt: current, previous_dpop_jkt: previous, previous_dpop_jkt_until: until }: PrincipalRecord,
  at: number,
): readonly HonouredCredential[] {
  return [
    ...(current === null ? [] : [[current, null] as const]),
    ...(previous !== null && isAfter(until, at) ? [[previous, until] as const] : []),
  ]
}

const isAfter = (until: string | null, at: number): boolean => until !== null && Date.parse(until) > at

/**
 * Says a principal's ledger name, the number of the state that a change makes, and that state
 * (docs/ledger.md#authority). A SPIFFE agent is known by its SPIFFE id too.
 */
export const authorityDetail = (
  { principal_ref: subject, enrollment_method: method, spiffe_id: spiffeId }: AuthoritySubject,
  revision: number,
  state: AuthorityState,
): JsonObject => ({
  subject,
  revision,
  ...state,
  ...(method === 'spiffe' && { spiffe_id: spiffeId }),
})

type AuthoritySubject = Pick<PrincipalRecord, 'principal_ref' | 'enrollment_method' | 'spiffe_id'>
