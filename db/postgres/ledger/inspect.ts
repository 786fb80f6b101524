import { type Inspection, inspectRows, type Rows } from '../../audit/inspect.ts'
import type { StoredRow } from '../../audit/leaf.ts'
import { exportLines, ledgerRows } from '../../audit/read.ts'
import { openReading } from '../reading.ts'
import { auditSchemaProblem } from './schema.ts'

/**
 * Verifies the ledger of a PostgreSQL database, also while gateways write it: every chain, and the guards of the
 * audit tables. Does NOT recompute decisions: one stream's may rest on a change in another, and no row says which
 * came first. `shown` may show the progress of the rows. Throws where the database has no ledger.
 */
export async function inspectPostgres(
  url: string,
  shown: (rows: AsyncIterable<StoredRow>) => Rows,
): Promise<Inspection> {
  const { pool, kysely } = openReading(url)
  try {
    const problem = await auditSchemaProblem(pool)
    const inspection = await inspectRows(shown(ledgerRows(kysely)), { authority: false })
    return {
      ...inspection,
      findings: [...inspection.findings, ...(problem === null ? [] : [problem])],
      notes: ['not recomputed: decisions that rest on changes in another stream'],
    }
  } finally {
    await kysely.destroy()
  }
}

/** The ledger of a PostgreSQL database as the lines of an export, also while gateways write it. */
export async function* exportPostgres(url: string): AsyncGenerator<string> {
  const { kysely } = openReading(url)
  try {
    yield* exportLines(kysely)
  } finally {
    await kysely.destroy()
  }
}
