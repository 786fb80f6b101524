import { exportLines, ledgerRows } from '../../ledger/read/read.ts'
import { inspectTree } from '../../ledger/tree/inspect.ts'
import { NOTHING_TRUSTED, type Trusted, trustsNothing } from '../../ledger/tree/trusted.ts'
import { type Inspection, inspectRows, type Rows } from '../../ledger/verify/inspect.ts'
import { openReading } from '../reading.ts'
import { placedPages } from './placed-rows.ts'
import { auditSchemaProblem } from './schema.ts'
import { storedLog } from './stored-log.ts'

/**
 * Verifies the ledger of a PostgreSQL database, also while gateways write it: every chain, every decision in the order
 * of the rows' places, and the guards of the audit tables. Does NOT compare the tables beside the ledger. `shown` may
 * show the progress of the rows. Throws where the database has no ledger.
 */
export async function inspectPostgres(
  url: string,
  shown: (rows: Rows) => Rows,
  trusted: Trusted = NOTHING_TRUSTED,
): Promise<Inspection> {
  const { pool, kysely } = openReading(url)
  try {
    const problem = await auditSchemaProblem(pool)
    const rows = ledgerRows(kysely, { pages: placedPages })
    const stored = await storedLog(kysely)
    const tree = stored || !trustsNothing(trusted) ? inspectTree(stored, trusted) : undefined
    const inspection = await inspectRows(shown(rows), { authority: true, tree })
    return {
      ...inspection,
      findings: [...inspection.findings, ...(problem === null ? [] : [problem])],
      notes: ['not compared: the tables beside the ledger'],
    }
  } finally {
    await kysely.destroy()
  }
}

/** The ledger of a PostgreSQL database as the lines of an export, also while gateways write it. */
export async function* exportPostgres(url: string): AsyncGenerator<string> {
  const { kysely } = openReading(url)
  try {
    yield* exportLines(kysely, { pages: placedPages })
  } finally {
    await kysely.destroy()
  }
}
