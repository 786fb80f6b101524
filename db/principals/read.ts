import { type InferResult, sql } from 'kysely'
import type { Database } from '../database.ts'
import type { EnrollmentMethod, PrincipalType } from '../schema.ts'
import { type ListCursor, type ListPage, listPageOf } from '../support/cursor.ts'
import { allPages, noPause, type PagePause } from '../support/pages.ts'
import { type CandidateSet, candidateSetOf, storedCapabilities } from './pins.ts'
import { PRINCIPAL_TABLES } from './tables.ts'

export type PrincipalLabels = Readonly<Record<string, string>>

/** A principal of any type as it is shown (docs/protocol.md#principal-object). */
export interface PrincipalRecord {
  readonly principal_id: string
  /** The name that the ledger knows it by: the pseudonym of a user, the id of any other. */
  readonly principal_ref: string
  readonly principal_type: PrincipalType
  readonly name: string
  readonly display_name: string | null
  readonly capabilities: readonly string[]
  readonly candidate: CandidateSet | null
  readonly labels: PrincipalLabels
  /** The named set that it was given last; null: none. */
  readonly capability_set: string | null
  readonly is_active: boolean
  readonly enrollment_method: EnrollmentMethod
  readonly spiffe_id: string | null
  /** The current pin, lower-case hex SHA-256 of the DER. Null if there is no pin. */
  readonly cert_thumbprint: string | null
  readonly cert_not_after: string | null
  /** Until when the certificates before it are honoured, or were. Null: they are not. */
  readonly previous_cert_until: string | null
  /** Our CA that has issued it, by its digest; empty: another CA has. Null: no pin, or one that is older. */
  readonly cert_issuer: string | null
  readonly dpop_jkt: string | null
  /** The key before, and until when it is honoured. */
  readonly previous_dpop_jkt: string | null
  readonly previous_dpop_jkt_until: string | null
  readonly federated: boolean
  readonly federation_revision: number
  /** The ETag: counts changes of the object, uses of it (`last_seen_at`) aside. */
  readonly revision: number
  /** Counts changes of its authority: the number that decisions and rows of changes name. */
  readonly authority_revision: number
  readonly created_at: string
  readonly updated_at: string
  readonly last_seen_at: string | null
  /** Names in the ledger: who enrolled it, and who changed it last. Null: unknown. */
  readonly created_by: string | null
  readonly changed_by: string | null
}

export async function findPrincipal(
  db: Database,
  type: PrincipalType,
  id: string,
): Promise<PrincipalRecord | undefined> {
  const row = await principals(db, type).where(idOf(type), '=', id).executeTakeFirst()
  return row && recordOf(type, row)
}

export async function findPrincipalOf(
  db: Database,
  types: readonly PrincipalType[],
  id: string,
): Promise<PrincipalRecord | undefined> {
  for (const type of types) {
    const found = await findPrincipal(db, type, id)
    if (found) return found
  }
  return undefined
}

/** Finds an agent, user or workload by its name in the ledger. */
export async function principalOfRef(db: Database, ref: string): Promise<PrincipalRecord | undefined> {
  for (const type of ['agent', 'user', 'workload'] as const) {
    const { ref: column } = PRINCIPAL_TABLES[type]
    const row = await principals(db, type)
      .where(sql.ref<string>(`p.${column}`), '=', ref)
      .executeTakeFirst()
    if (row) return recordOf(type, row)
  }
  return undefined
}

interface PrincipalQuery {
  /** The greatest number of them, at least 1. Absent: all of them. */
  readonly limit?: number | undefined
  /** The end of the page before. Absent: the newest. */
  readonly cursor?: ListCursor | undefined
  /** Selects principals. Absent: all. */
  readonly wanted?: ((record: PrincipalRecord) => boolean) | undefined
  /** Selects principals by more than their fields, a page at a time. Absent: all. */
  readonly sift?: ((records: readonly PrincipalRecord[]) => Promise<readonly PrincipalRecord[]>) | undefined
}

export async function listPrincipals(
  db: Database,
  type: PrincipalType,
  { limit, cursor, wanted, sift }: PrincipalQuery = {},
  pause: PagePause = noPause,
): Promise<ListPage<PrincipalRecord>> {
  const read = async (before: PrincipalRecord | undefined, count: number): Promise<PrincipalRecord[]> => {
    const at = before ? { createdAt: before.created_at, id: before.principal_id } : cursor
    let query = principals(db, type).orderBy('p.created_at', 'desc').orderBy(idOf(type), 'desc')
    if (at) query = query.where(sql<boolean>`(p.created_at, ${idOf(type)}) < (${at.createdAt}, ${at.id})`)
    return (await query.limit(count).execute()).map((row) => recordOf(type, row))
  }
  // One more than asked for, to know whether there is a next page.
  const most = limit === undefined ? undefined : limit + 1
  const found = await allPages(read, pause, most, wanted, sift)
  return listPageOf(found, limit, ({ principal_id: id }) => id)
}

/** Counts the principals of a type in service that have registered no proof key, up to `most`. */
export async function countKeyless({ kysely }: Database, type: PrincipalType, most: number): Promise<number> {
  const some = kysely
    .selectFrom(kysely.dynamic.table(PRINCIPAL_TABLES[type].table).as('p'))
    .select(sql.lit(1).as('one'))
    .where('p.is_active', '=', 1)
    .where('p.dpop_jkt', 'is', null)
    .limit(most)
  const { total } = await kysely
    .selectFrom(some.as('s'))
    .select((select) => select.fn.countAll().as('total'))
    .executeTakeFirstOrThrow()
  return Number(total)
}

export async function countPrincipals(db: Database, type: PrincipalType): Promise<number> {
  const { total } = await db.kysely
    .selectFrom(db.kysely.dynamic.table(PRINCIPAL_TABLES[type].table).as('p'))
    .select((select) => select.fn.countAll().as('total'))
    .executeTakeFirstOrThrow()
  return Number(total)
}

const idOf = (type: PrincipalType) => sql.ref<string>(`p.${PRINCIPAL_TABLES[type].id}`)

function principals(db: Database, type: PrincipalType) {
  return db.kysely
    .selectFrom(db.kysely.dynamic.table(PRINCIPAL_TABLES[type].table).as('p'))
    .leftJoin('certificate_pins as c', (join) =>
      join
        .on('c.principal_type', '=', type)
        .onRef('c.principal_id', '=', idOf(type))
        // A literal: the planner uses the partial index only if it sees the constant.
        .on('c.is_current', '=', sql.lit(1 as const)),
    )
    .select([
      idOf(type).as('principal_id'),
      sql.ref<string>(`p.${PRINCIPAL_TABLES[type].ref}`).as('principal_ref'),
    ])
    .select([
      'p.name',
      'p.display_name',
      'p.capabilities',
      'p.candidate',
      'p.candidate_since',
      'p.labels',
      'p.capability_set',
      'p.is_active',
      'p.enrollment_method',
      'p.spiffe_id',
    ])
    .select(['c.thumbprint as cert_thumbprint', 'c.not_after as cert_not_after', 'c.issuer as cert_issuer'])
    .select('p.federated')
    .select((row) =>
      row
        .selectFrom('certificate_pins as before')
        .select(({ fn }) => fn.max('before.grace_until').as('until'))
        .where('before.principal_type', '=', type)
        .where('before.principal_id', '=', idOf(type))
        .where('before.is_current', '=', 0)
        .as('previous_cert_until'),
    )
    .select(['p.dpop_jkt', 'p.previous_dpop_jkt', 'p.previous_dpop_jkt_until'])
    .select(['p.federation_revision', 'p.revision', 'p.authority_revision'])
    .select(['p.created_at', 'p.updated_at', 'p.last_seen_at'])
    .select(['p.created_by', 'p.changed_by'])
}

type JoinedPrincipalRow = InferResult<ReturnType<typeof principals>>[number]

function recordOf(
  type: PrincipalType,
  { candidate_since: since, ...row }: JoinedPrincipalRow,
): PrincipalRecord {
  return {
    ...row,
    candidate: candidateSetOf(row.candidate, since),
    principal_type: type,
    capabilities: storedCapabilities(row.capabilities),
    labels: storedLabels(row.labels),
    is_active: row.is_active === 1,
    federated: row.federated === 1,
  }
}

const NO_LABELS: PrincipalLabels = {}

// Proven by setLabels, which alone writes the column.
export const storedLabels = (text: string): PrincipalLabels =>
  text === '{}' ? NO_LABELS : (JSON.parse(text) as PrincipalLabels)
