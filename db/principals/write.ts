import { sql } from 'kysely'
import type { Database } from '../database.ts'
import type { EnrollmentMethod, PrincipalType } from '../schema.ts'
import { type LedgerStatement, statementOf, timestamp } from '../support/statement.ts'
import { caDigests, printDigests } from './ca-texts.ts'
import type { PrincipalLabels } from './read.ts'
import type { PreviousBundle } from './spiffe.ts'
import { PRINCIPAL_TABLES } from './tables.ts'

// Every `at` is ms since the epoch. Every id and token was parsed by the code that took it from a caller.

interface PrincipalInsert {
  readonly type: PrincipalType
  /** The full id, `<org>::…` (spec §2.1). */
  readonly id: string
  /** The name that the ledger knows it by: a new pseudonym of a user, the id of any other. */
  readonly ref: string
  readonly name: string
  readonly displayName: string | null
  readonly capabilities: readonly string[]
  readonly enrollmentMethod: EnrollmentMethod
  readonly spiffeId: string | null
  readonly dpopJkt: string | null
  readonly federated: boolean
  readonly at: number
  readonly by?: PrincipalChangeAuthor
}

/** The author's name in the ledger. Absent: unknown. */
type PrincipalChangeAuthor = string | undefined

/** Inserts an active principal without a certificate. The database refuses a taken id or name. */
export function insertPrincipal(db: Database, principal: PrincipalInsert): LedgerStatement {
  const { type, id, at } = principal
  const columns = {
    name: principal.name,
    display_name: principal.displayName,
    capabilities: JSON.stringify(principal.capabilities),
    enrollment_method: principal.enrollmentMethod,
    spiffe_id: principal.spiffeId,
    dpop_jkt: principal.dpopJkt,
    federated: principal.federated ? 1 : 0,
    created_at: timestamp(at),
    updated_at: timestamp(at),
    last_seen_at: null,
    created_by: principal.by ?? null,
    changed_by: principal.by ?? null,
  } as const
  const query =
    type === 'agent'
      ? db.kysely.insertInto(PRINCIPAL_TABLES.agent.table).values({ agent_id: id, ...columns })
      : type === 'user'
        ? db.kysely
            .insertInto(PRINCIPAL_TABLES.user.table)
            .values({ principal_id: id, principal_ref: principal.ref, ...columns })
        : db.kysely.insertInto(PRINCIPAL_TABLES[type].table).values({ principal_id: id, ...columns })
  return statementOf(query.compile(), 1)
}

interface PrincipalChange {
  readonly type: PrincipalType
  readonly id: string
  readonly at: number
  readonly by?: PrincipalChangeAuthor
  /** The revision that the object must still have: another changes no row. Absent: any. */
  readonly revision?: number | undefined
}

/** Replaces the set (spec §4.4); a stale `revision` changes no row. Its candidate counts from nothing. */
export function setCapabilities(
  db: Database,
  change: PrincipalChange & {
    readonly revision: number
    readonly capabilities: readonly string[]
    /** The named set that it is given; null: it has none from now on. Absent: the one it has. */
    readonly set?: string | null | undefined
  },
): LedgerStatement {
  const query = authorityUpdate(db, change).set({
    ...(change.set !== undefined && { capability_set: change.set }),
    capabilities: JSON.stringify(change.capabilities),
    candidate_since: sql`case when candidate is null then null else ${timestamp(change.at)} end`,
  })
  return statementOf(query.compile(), 1)
}

/** Sets the candidate set, or removes it with null, if the principal is as it was read. */
export function setCandidate(
  db: Database,
  change: PrincipalChange & { readonly revision: number; readonly capabilities: readonly string[] | null },
): LedgerStatement {
  const { capabilities } = change
  return statementOf(
    revisionedUpdate(db, change)
      .set({
        candidate: capabilities && JSON.stringify(capabilities),
        candidate_since: capabilities && timestamp(change.at),
      })
      .compile(),
    1,
  )
}

/** Replaces all labels, if the principal is as it was read. */
export function setLabels(
  db: Database,
  change: PrincipalChange & { readonly revision: number; readonly labels: PrincipalLabels },
): LedgerStatement {
  return statementOf(
    revisionedUpdate(db, change)
      .set({ labels: JSON.stringify(change.labels) })
      .compile(),
    1,
  )
}

export function clearCandidateSet(db: Database, change: PrincipalChange): LedgerStatement {
  return statementOf(principalUpdate(db, change).set(NO_CANDIDATE).compile(), 1)
}

const NO_CANDIDATE = { candidate: null, candidate_since: null } as const

/** Nothing that its operators attached to a principal outlives it. */
const NO_ATTACHMENTS = { ...NO_CANDIDATE, labels: '{}', capability_set: null } as const

/** Deactivates or reactivates. Deactivating twice is no fault. The row is never deleted. */
export function setActive(
  db: Database,
  change: PrincipalChange & { readonly active: boolean },
): LedgerStatement {
  return statementOf(
    authorityUpdate(db, change)
      .set({ is_active: change.active ? 1 : 0 })
      .compile(),
    1,
  )
}

/**
 * Registers a DPoP key by its RFC 7638 thumbprint. The one before is honoured until `graceUntil`; null or 0:
 * not.
 */
export function setDpopJkt(
  db: Database,
  change: PrincipalChange & {
    readonly jkt: string
    readonly previous: string | null
    readonly graceUntil: number | null
  },
): LedgerStatement {
  const { jkt, previous, graceUntil } = change
  const kept = graceUntil && previous !== jkt ? previous : null
  const query = authorityUpdate(db, change).set({
    dpop_jkt: jkt,
    previous_dpop_jkt: kept,
    previous_dpop_jkt_until: kept === null ? null : timestamp(graceUntil ?? 0),
  })
  return statementOf(query.compile(), 1)
}

interface ReEnrollment extends PrincipalChange {
  readonly displayName: string | null
  readonly capabilities: readonly string[]
  readonly enrollmentMethod: EnrollmentMethod
  readonly spiffeId: string | null
  readonly dpopJkt: string | null
  readonly federated: boolean
}

/**
 * Enrolls a deactivated principal's id again, with nothing left of its former state. Changes no row
 * otherwise.
 */
export function reEnroll(db: Database, principal: ReEnrollment): LedgerStatement {
  const query = authorityUpdate(db, principal)
    .set({
      display_name: principal.displayName,
      capabilities: JSON.stringify(principal.capabilities),
      ...NO_ATTACHMENTS,
      enrollment_method: principal.enrollmentMethod,
      spiffe_id: principal.spiffeId,
      dpop_jkt: principal.dpopJkt,
      previous_dpop_jkt: null,
      previous_dpop_jkt_until: null,
      federated: principal.federated ? 1 : 0,
      is_active: 1,
    })
    .where('is_active', '=', 0)
  return statementOf(query.compile(), 1)
}

/**
 * Takes all from a principal but its name; its row stays, deactivated. Changes no row if it is not as it was
 * read.
 */
export function blankPrincipal(
  db: Database,
  change: PrincipalChange & { readonly revision: number },
): LedgerStatement {
  const query = authorityUpdate(db, change).set({
    display_name: null,
    capabilities: '[]',
    ...NO_ATTACHMENTS,
    spiffe_id: null,
    dpop_jkt: null,
    previous_dpop_jkt: null,
    previous_dpop_jkt_until: null,
    is_active: 0,
  })
  return statementOf(query.compile(), 1)
}

export function deleteUser({ kysely }: Database, id: string, revision: number): LedgerStatement {
  const query = kysely
    .deleteFrom('local_user_principals')
    .where('principal_id', '=', id)
    .where('revision', '=', revision)
  return statementOf(query.compile(), 1)
}

/** Sets the agent's own CAs: PEM, or null for the attached ones. Nothing is left of earlier ones. */
export function setSpiffeBundle(
  { kysely }: Database,
  agentId: string,
  bundlePem: string | null,
): LedgerStatement {
  const query = kysely
    .updateTable('internal_agents')
    .set({ ...bundleColumns(bundlePem), previous_spiffe_bundles: null, followed_bundle: null })
    .where('agent_id', '=', agentId)
  return statementOf(query.compile(), 1)
}

/** Replaces those CAs, if the agent is as it was read. No change of its authority. */
export function replaceSpiffeBundle(
  { kysely }: Database,
  change: Omit<PrincipalChange, 'type'> & {
    readonly revision: number
    readonly bundlePem: string | null
    readonly previous: readonly PreviousBundle[]
    /** The followed bundle that it is a copy of; null: none. */
    readonly follows: string | null
  },
): LedgerStatement {
  const { id, at, by = null, revision, bundlePem, previous, follows } = change
  const query = kysely
    .updateTable('internal_agents')
    .set((row) => ({
      ...bundleColumns(bundlePem),
      followed_bundle: follows,
      previous_spiffe_bundles: previous.length === 0 ? null : JSON.stringify(previous),
      revision: row('revision', '+', 1),
      updated_at: timestamp(at),
      changed_by: by,
    }))
    .where('agent_id', '=', id)
    .where('revision', '=', revision)
  return statementOf(query.compile(), 1)
}

const bundleColumns = (pem: string | null) => ({
  spiffe_bundle: pem,
  spiffe_bundle_digests: pem === null ? null : printDigests(caDigests(pem)),
})

/** Counts a change of the object that is kept elsewhere, i.e. a new pin, so that its ETag changes with it. */
export function touchRevision(db: Database, change: PrincipalChange): LedgerStatement {
  return statementOf(authorityUpdate(db, change).compile(), 1)
}

/**
 * Notes that the principal was seen. No change of the object. May change no row: the unit must not fail for
 * it.
 */
export function touchLastSeen(db: Database, change: PrincipalChange): LedgerStatement {
  const at = timestamp(change.at)
  const query = principalUpdate(db, change)
    .set({ last_seen_at: at })
    // Another process may have seen it later.
    .where((row) => row.or([row('last_seen_at', 'is', null), row('last_seen_at', '<', at)]))
    .$if(db.engine === 'postgres', (update) => update.where(isNotLocked(change)))
  return { ...statementOf(query.compile()), beside: 'upkeep' }
}

/** True of a principal that no transaction of another process writes: that one sees it just now. */
function isNotLocked({ type, id }: PrincipalChange) {
  const { table, id: column } = PRINCIPAL_TABLES[type]
  const key = sql.ref(column)
  return sql<boolean>`${key} in (select ${key} from ${sql.table(table)} where ${key} = ${id} for update skip locked)`
}

function principalUpdate({ kysely }: Database, { type, id }: PrincipalChange) {
  const { table, id: column } = PRINCIPAL_TABLES[type]
  return kysely.updateTable(table).where(kysely.dynamic.ref(column), '=', id)
}

function revisionedUpdate(db: Database, change: PrincipalChange) {
  const { revision } = change
  const found =
    revision === undefined
      ? principalUpdate(db, change)
      : principalUpdate(db, change).where('revision', '=', revision)
  return found.set((row) => ({
    revision: row('revision', '+', 1),
    updated_at: timestamp(change.at),
    changed_by: change.by ?? null,
  }))
}

// `federation_revision` counts every change of the object (spec §3): receivers must not go on trusting an
// agent that was deactivated, or a replaced certificate.
function authorityUpdate(db: Database, change: PrincipalChange) {
  // Each of these changes is one of authority, and each unit makes one of them.
  const query = revisionedUpdate(db, change).set((row) => ({
    authority_revision: row('authority_revision', '+', 1),
  }))
  if (change.type !== 'agent') return query
  return query.set((row) => ({ federation_revision: row('federation_revision', '+', 1) }))
}
