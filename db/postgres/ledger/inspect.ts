import { exportedLines, ledgerRows } from '../../ledger/read/read.ts'
import { inspectTree } from '../../ledger/tree/inspect.ts'
import { isEmptyLogTrust, type LogTrust, NO_LOG_TRUST } from '../../ledger/tree/trusted.ts'
import { inspectRows, type LedgerInspection, type RowSource } from '../../ledger/verify/inspect.ts'
import { openReadConnections } from '../reading.ts'
import { placedPages } from './placed-rows.ts'
import { postgresSchemaProblem } from './schema.ts'
import { postgresStoredLog } from './stored-log.ts'

/**
 * Verifies the ledger of a PostgreSQL database, also while gateways write it: every chain, every decision in
 * the order of the rows' places, and the guards of the audit tables. Does NOT compare the tables next to the
 * ledger. `shown` may show the progress of the rows. Throws if the database has no ledger.
 */
export async function inspectPostgres(
  url: string,
  shown: (rows: RowSource) => RowSource,
  trusted: LogTrust = NO_LOG_TRUST,
): Promise<LedgerInspection> {
  const { pool, kysely } = openReadConnections(url)
  try {
    const problem = await postgresSchemaProblem(pool)
    const rows = ledgerRows(kysely, { pages: placedPages })
    const stored = await postgresStoredLog(kysely)
    const tree = stored || !isEmptyLogTrust(trusted) ? inspectTree(stored, trusted) : undefined
    const inspection = await inspectRows(shown(rows), { authority: true, tree })
    return {
      ...inspection,
      findings: [...inspection.findings, ...(problem === null ? [] : [problem])],
      notes: ['not compared: the tables next to the ledger'],
    }
  } finally {
    await kysely.destroy()
  }
}

/** The ledger of a PostgreSQL database as the lines of an export, also while gateways write it. */
export async function* exportPostgres(url: string): AsyncGenerator<string> {
  const { kysely } = openReadConnections(url)
  try {
    yield* exportedLines(kysely, { pages: placedPages })
  } finally {
    await kysely.destroy()
  }
}
