import type { Selectable } from 'kysely'
import type { Database } from '../database.ts'
import type { CaKind, DatabaseSchema } from '../schema.ts'
import { type LedgerStatement, statementOf, timestamp } from '../support/statement.ts'

export type AttachedCa = Selectable<DatabaseSchema['attached_cas']>

export function listAttachedCas({ kysely }: Database, kind?: CaKind): Promise<AttachedCa[]> {
  const all = kysely.selectFrom('attached_cas').selectAll().orderBy('attached_at').orderBy('digest')
  return (kind ? all.where('kind', '=', kind) : all).execute()
}

interface NewCa {
  readonly digest: string
  readonly kind: CaKind
  readonly caPem: string
  readonly subject: string
  readonly notAfter: number
  readonly at: number
}

export function attachCa({ kysely }: Database, ca: NewCa): LedgerStatement {
  const row = {
    digest: ca.digest,
    kind: ca.kind,
    ca_pem: ca.caPem,
    subject: ca.subject,
    not_after: timestamp(ca.notAfter),
    attached_at: timestamp(ca.at),
  }
  return statementOf(kysely.insertInto('attached_cas').values(row).compile(), 1)
}

/** Detaches a CA. Pinned certificates stay; it vouches for no agent any more. */
export function detachCa({ kysely }: Database, digest: string): LedgerStatement {
  return statementOf(kysely.deleteFrom('attached_cas').where('digest', '=', digest).compile(), 1)
}
