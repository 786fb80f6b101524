import { sql } from 'kysely'
import type { Database } from '../database.ts'
import { detailsOf } from '../ledger/read/find.ts'
import type { PrincipalType } from '../schema.ts'
import { allPages, type PagePause, portionsOf } from '../support/pages.ts'
import { type LedgerStatement, type RowAssertion, statementOf, timestamp } from '../support/statement.ts'
import { FOREIGN_ISSUER, pinsWithHolders } from './pins.ts'

/**
 * Asserts that this CA of ours is the one that issues, if it was ever said which one does: a process that has
 * not heard yet of the next one certifies nobody.
 */
export function isIssuing({ kysely }: Database, digest: string): RowAssertion {
  const other = kysely
    .selectFrom('settings')
    .select('key')
    .where('key', '=', sql.lit('issuing_ca' as const))
    .where('value', '<>', '')
  const question = kysely
    .selectNoFrom(sql.lit(1).as('holds'))
    .where((row) => row.not(row.exists(other)))
    .compile()
  return { sql: question.sql, parameters: [digest] }
}

/** The holder of a certificate that is honoured, or would be if its holder were active. */
export interface CertificateHolder {
  readonly principal_type: PrincipalType
  readonly principal_id: string
  readonly name: string
  readonly is_active: boolean
  /** False: every certificate of that CA that it holds is in the grace of a newer one. */
  readonly is_current: boolean
  readonly last_seen_at: string | null
  /** The certificates of that CA. */
  readonly thumbprints: readonly string[]
}

/**
 * Lists everybody who holds a certificate of a CA, by type and id. `unsettled`: those count too whose issuer
 * nobody has said. `at`: ms since the epoch. Pauses between pages.
 */
export async function certificateHolders(
  db: Database,
  { issuer, unsettled, at }: { readonly issuer: string; readonly unsettled: boolean; readonly at: number },
  pause: PagePause,
): Promise<readonly CertificateHolder[]> {
  const now = timestamp(at)
  const page = (after: HolderRow | undefined, limit: number) => {
    const query = pinsWithHolders(db.kysely)
      .select(['c.thumbprint', 'c.principal_type', 'c.principal_id', 'c.is_current'])
      .select(({ fn }) => [
        fn.coalesce('a.name', 'u.name', 'w.name', 'o.name').as('name'),
        fn.coalesce('a.is_active', 'u.is_active', 'w.is_active', 'o.is_active').as('is_active'),
        fn
          .coalesce('a.last_seen_at', 'u.last_seen_at', 'w.last_seen_at', 'o.last_seen_at')
          .as('last_seen_at'),
      ])
      .where((row) =>
        row.or([row('c.issuer', '=', issuer), ...(unsettled ? [row('c.issuer', 'is', null)] : [])]),
      )
      .where((row) => row.or([row('c.is_current', '=', 1), row('c.grace_until', '>', now)]))
      .orderBy('c.principal_type')
      .orderBy('c.principal_id')
      .orderBy('c.thumbprint')
      .limit(limit)
    return after
      ? query.where(
          sql<boolean>`(c.principal_type, c.principal_id, c.thumbprint) > (${after.principal_type}, ${after.principal_id}, ${after.thumbprint})`,
        )
      : query
  }
  const rows = await allPages<HolderRow>((after, limit) => page(after, limit).execute(), pause)
  const found = new Map<string, CertificateHolder>()
  for (const {
    principal_type,
    principal_id,
    name,
    is_active,
    is_current,
    last_seen_at,
    thumbprint,
  } of rows) {
    const key = `${principal_type} ${principal_id}`
    const known = found.get(key)
    found.set(key, {
      ...{ principal_type, principal_id, name: name ?? principal_id, last_seen_at },
      is_active: is_active === 1,
      is_current: is_current === 1 || known?.is_current === true,
      thumbprints: [...(known?.thumbprints ?? []), thumbprint],
    })
  }
  return [...found.values()]
}

interface HolderRow {
  readonly thumbprint: string
  readonly principal_type: PrincipalType
  readonly principal_id: string
  readonly is_current: 0 | 1
  readonly name: string | null
  readonly is_active: 0 | 1 | null
  readonly last_seen_at: string | null
}

/** Ends every certificate of a CA, at once and for good. The holders' states are the caller's to count. */
export function endCertificatesOf(
  { kysely }: Database,
  { issuer, unsettled }: { readonly issuer: string; readonly unsettled: boolean },
): LedgerStatement {
  const query = kysely
    .updateTable('certificate_pins')
    .set({ is_current: 0, grace_until: null })
    .where((row) => row.or([row('issuer', '=', issuer), ...(unsettled ? [row('issuer', 'is', null)] : [])]))
  return statementOf(query.compile())
}

/** The rows of certificates that agents have brought. */
const BROUGHT = ['agent.enrolled_byoca', 'agent.enrolled_spiffe', 'agent.certificate_renewed']

/**
 * Returns the statements that say of each certificate from before issuers were kept which CA it is of: of this
 * one, unless a row says that its agent has brought it.
 */
export async function settleIssuers(
  { kysely }: Database,
  issuer: string,
): Promise<readonly LedgerStatement[]> {
  const unsettled = kysely.selectFrom('certificate_pins').select('thumbprint').where('issuer', 'is', null)
  if ((await unsettled.limit(1).executeTakeFirst()) === undefined) return []
  const foreign: string[] = []
  for (const action of BROUGHT) {
    for await (const { detail } of detailsOf(kysely, { action })) {
      const { cert_thumbprint: thumbprint } = detail
      if (typeof thumbprint === 'string') foreign.push(thumbprint)
    }
  }
  const settle = kysely.updateTable('certificate_pins').where('issuer', 'is', null)
  return [
    ...portionsOf(foreign, AT_ONCE).map((some) =>
      statementOf(settle.set({ issuer: FOREIGN_ISSUER }).where('thumbprint', 'in', some).compile()),
    ),
    statementOf(settle.set({ issuer }).compile()),
  ]
}

/** The thumbprints of one statement. */
const AT_ONCE = 500
