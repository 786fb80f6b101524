import { type InferResult, sql } from 'kysely'
import { parseCapabilities } from '../capabilities.ts'
import type { Database } from '../database.ts'
import type { PrincipalType } from '../schema.ts'
import { boundedCache } from '../support/bounded-cache.ts'
import { type LedgerStatement, type RowAssertion, statementOf, timestamp } from '../support/statement.ts'
import { PRINCIPAL_TABLES } from './tables.ts'

export interface CandidateSet {
  readonly capabilities: readonly string[]
  /** Since when both sets are what they are. RFC 3339. */
  readonly since: string
}

export interface PinnedPrincipal {
  readonly principal_id: string
  /** The name that the ledger knows it by: the pseudonym of a user, the id of any other. */
  readonly principal_ref: string
  readonly principal_type: PrincipalType
  readonly capabilities: readonly string[]
  readonly candidate: CandidateSet | null
  readonly is_active: boolean
  readonly dpop_jkt: string | null
  readonly previous_dpop_jkt: string | null
  /** The end of the time that the previous key is honoured. */
  readonly previous_dpop_jkt_until: string | null
  readonly authority_revision: number
  readonly is_current: boolean
  /** The end of the time that a pin which is not current is honoured. Null: it is not. */
  readonly grace_until: string | null
  /** The digest of the CA that vouches for it, if it is known by its SPIFFE id and no pin. */
  readonly anchor?: string
}

/**
 * Finds who is pinned to a thumbprint (lower-case hex), on every request. `asked`: never cached. Does NOT
 * judge dates, `is_active` and grace (plugins/pin/pin.ts).
 */
export function pinnedPrincipal(
  db: Database,
  how?: 'asked',
): (thumbprint: string) => PinnedPrincipal | undefined | Promise<PinnedPrincipal | undefined> {
  const lookup = db.lookup(pinnedQuery(db), how)
  return (thumbprint) => {
    const row = lookup(thumbprint)
    return row instanceof Promise ? row.then(pinnedOf) : pinnedOf(row)
  }
}

/** The pins `c`, each with the one principal that holds it: `a`, `u`, `w` or `o`, by primary keys. */
export const pinsWithHolders = (kysely: Database['kysely']) =>
  kysely
    .selectFrom('certificate_pins as c')
    .leftJoin('internal_agents as a', (on) =>
      on.on('c.principal_type', '=', sql.lit('agent')).onRef('a.agent_id', '=', 'c.principal_id'),
    )
    .leftJoin('local_user_principals as u', (on) =>
      on.on('c.principal_type', '=', sql.lit('user')).onRef('u.principal_id', '=', 'c.principal_id'),
    )
    .leftJoin('local_workload_principals as w', (on) =>
      on.on('c.principal_type', '=', sql.lit('workload')).onRef('w.principal_id', '=', 'c.principal_id'),
    )
    .leftJoin('local_operator_principals as o', (on) =>
      on.on('c.principal_type', '=', sql.lit('operator')).onRef('o.principal_id', '=', 'c.principal_id'),
    )

/** Takes the thumbprint alone. Exported for the test of its query plan. */
export function pinnedQuery({ kysely }: Database) {
  return (
    pinsWithHolders(kysely)
      .select(['c.principal_id', 'c.principal_type', 'c.is_current', 'c.grace_until', 'u.principal_ref'])
      .select(({ fn }) => [
        fn
          .coalesce('a.capabilities', 'u.capabilities', 'w.capabilities', 'o.capabilities')
          .as('capabilities'),
        // Administration is judged by no candidate.
        fn.coalesce('a.candidate', 'u.candidate', 'w.candidate').as('candidate'),
        fn.coalesce('a.candidate_since', 'u.candidate_since', 'w.candidate_since').as('candidate_since'),
        fn.coalesce('a.is_active', 'u.is_active', 'w.is_active', 'o.is_active').as('is_active'),
        fn.coalesce('a.dpop_jkt', 'u.dpop_jkt', 'w.dpop_jkt', 'o.dpop_jkt').as('dpop_jkt'),
        fn
          .coalesce(
            'a.previous_dpop_jkt',
            'u.previous_dpop_jkt',
            'w.previous_dpop_jkt',
            'o.previous_dpop_jkt',
          )
          .as('previous_dpop_jkt'),
        fn
          .coalesce(
            'a.previous_dpop_jkt_until',
            'u.previous_dpop_jkt_until',
            'w.previous_dpop_jkt_until',
            'o.previous_dpop_jkt_until',
          )
          .as('previous_dpop_jkt_until'),
        fn
          .coalesce(
            'a.authority_revision',
            'u.authority_revision',
            'w.authority_revision',
            'o.authority_revision',
          )
          .as('authority_revision'),
      ])
      // Not the bare parameter: SQLite would plan the joins again each time it is bound (measured: 30 µs,
      // against 3).
      .where('c.thumbprint', '=', sql<string>`'' || ${''}`)
  )
}

type PinnedRow = InferResult<ReturnType<typeof pinnedQuery>>[number]

function pinnedOf(row: PinnedRow | undefined): PinnedPrincipal | undefined {
  // A pin without its principal names nobody.
  if (!row || row.capabilities === null || row.authority_revision === null) return undefined
  return {
    principal_id: row.principal_id,
    principal_ref: row.principal_ref ?? row.principal_id,
    principal_type: row.principal_type,
    capabilities: storedCapabilities(row.capabilities),
    candidate: candidateSetOf(row.candidate, row.candidate_since),
    is_active: row.is_active === 1,
    dpop_jkt: row.dpop_jkt,
    previous_dpop_jkt: row.previous_dpop_jkt,
    previous_dpop_jkt_until: row.previous_dpop_jkt_until,
    authority_revision: row.authority_revision,
    is_current: row.is_current === 1,
    grace_until: row.grace_until,
  }
}

/**
 * Asserts the revision of a principal's authority, by its ledger name: a user that took the name of another
 * is another one. Compiles once, for the hot path.
 */
export function authorityUnchanged(
  db: Database,
): (type: PrincipalType, ref: string, revision: number) => RowAssertion {
  const questions = {
    agent: questionOf(db, 'agent'),
    user: questionOf(db, 'user'),
    workload: questionOf(db, 'workload'),
    operator: questionOf(db, 'operator'),
  }
  return (type, ref, revision) => ({ sql: questions[type], parameters: [ref, revision] })
}

function questionOf({ kysely }: Database, type: PrincipalType): string {
  const { table, ref } = PRINCIPAL_TABLES[type]
  return kysely
    .selectFrom(kysely.dynamic.table(table).as('p'))
    .select(sql.lit(1).as('holds'))
    .where(sql.ref<string>(`p.${ref}`), '=', '')
    .where('p.authority_revision', '=', 0)
    .compile().sql
}

/** The sets that were read last. Principals share few; the bound is for the day they do not. */
const sets = boundedCache<readonly string[]>(1024)

/**
 * Reads the set from its column. The same text gives the same frozen array. Throws if it is no capability
 * set: nobody holds anything by it.
 */
export function storedCapabilities(text: string): readonly string[] {
  const known = sets.get(text)
  if (known) return known
  const parsed = parseCapabilities(JSON.parse(text))
  if (!parsed.ok) throw new Error(`a stored capability set breaks the rules: ${parsed.errors[0]?.field}`)
  const capabilities = Object.freeze([...parsed.capabilities])
  sets.set(text, capabilities)
  return capabilities
}

/** Null if there is none. Throws as {@link storedCapabilities} does. */
export const candidateSetOf = (text: string | null, since: string | null): CandidateSet | null =>
  text === null || since === null ? null : { capabilities: storedCapabilities(text), since }

interface NewPin {
  /** Lower-case hex SHA-256 of the certificate's DER. */
  readonly thumbprint: string
  readonly type: PrincipalType
  readonly id: string
  /** The digest of our CA that has issued it. Absent: another CA has. */
  readonly issuer?: string | undefined
  /** ms since the epoch, like the other two. */
  readonly notBefore: number
  readonly notAfter: number
  readonly at: number
}

/**
 * Pins the current certificate. The database refuses one that is pinned, and a second current one: {@link
 * retirePins} goes before it in the same unit.
 */
export function insertPin(db: Database, pin: NewPin): LedgerStatement {
  const query = db.kysely.insertInto('certificate_pins').values({
    thumbprint: pin.thumbprint,
    principal_type: pin.type,
    principal_id: pin.id,
    not_before: timestamp(pin.notBefore),
    not_after: timestamp(pin.notAfter),
    grace_until: null,
    created_at: timestamp(pin.at),
    issuer: pin.issuer ?? FOREIGN_ISSUER,
  })
  return statementOf(query.compile(), 1)
}

/** The issuer of a certificate that another CA has made. */
export const FOREIGN_ISSUER = ''

export function deletePins({ kysely }: Database, type: PrincipalType, id: string): LedgerStatement {
  const own = kysely.deleteFrom('certificate_pins').where('principal_type', '=', type)
  return statementOf(own.where('principal_id', '=', id).compile())
}

/** Ends one certificate of a principal, at once and for good. May change no row. */
export function endPin(
  { kysely }: Database,
  { type, id, thumbprint }: Pick<NewPin, 'type' | 'id' | 'thumbprint'>,
): LedgerStatement {
  const query = kysely
    .updateTable('certificate_pins')
    .set({ is_current: 0, grace_until: null })
    .where('thumbprint', '=', thumbprint)
    .where('principal_type', '=', type)
    .where('principal_id', '=', id)
  return statementOf(query.compile())
}

/** The certificates of a principal that are honoured, the current one first. `at`: ms since the epoch. */
export const honouredPins = (
  { kysely }: Database,
  { principal_type: type, principal_id: id }: { principal_type: PrincipalType; principal_id: string },
  at: number,
) =>
  kysely
    .selectFrom('certificate_pins')
    .select(['thumbprint', 'grace_until', 'is_current', 'not_after'])
    .where('principal_type', '=', type)
    .where('principal_id', '=', id)
    .where((row) => row.or([row('is_current', '=', 1), row('grace_until', '>', timestamp(at))]))
    .orderBy('is_current', 'desc')
    .orderBy('created_at', 'desc')
    .execute()

interface Retirement {
  readonly type: PrincipalType
  readonly id: string
  /** The end of the time that the pin is still honoured. ms since the epoch. Null or 0: it is not. */
  readonly graceUntil: number | null
}

/**
 * Ends the current pin, which is honoured until `graceUntil`. Without grace, pins in an earlier grace end
 * too: somebody else may hold their key. May change no row.
 */
export function retirePins({ kysely }: Database, { type, id, graceUntil }: Retirement): LedgerStatement {
  const pins = kysely
    .updateTable('certificate_pins')
    .where('principal_type', '=', type)
    .where('principal_id', '=', id)
  const query = graceUntil
    ? pins.set({ is_current: 0, grace_until: timestamp(graceUntil) }).where('is_current', '=', 1)
    : pins.set({ is_current: 0, grace_until: null })
  return statementOf(query.compile())
}
