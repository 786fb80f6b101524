import { createReadStream, readdirSync } from 'node:fs'
import { NO_LOG_TRUST } from '../../db/ledger/tree/trusted.ts'
import { exitCodeOf, type RowSource } from '../../db/ledger/verify/inspect.ts'
import type { LedgerVerdict } from '../../db/ledger/verify/verify.ts'
import { inspectDatabase } from '../../db/sqlite/ledger/inspect.ts'
import { openReadOnly } from '../../db/sqlite/ledger/rows.ts'
import { inspectArchive } from '../../scripts/verifying/archive.ts'
import { SILENT } from '../../scripts/verifying/progress.ts'
import { streamLines } from '../support/db/row-by-row.ts'

const ITSELF = (rows: RowSource): RowSource => rows

/** What the ledger says after a run. */
export interface LedgerFound {
  readonly verdict: LedgerVerdict
  /** Calls that were allowed twice, or have not exactly one outcome. */
  readonly unbalanced: number
  /** Honest callers' answers with status 200. */
  readonly served: number
  /** Those of them that the ledger does not have as allowed. */
  readonly unrecorded: number
  /** The rows that were archived meanwhile, and whatever does not fit of them. */
  readonly archived: number
  readonly faults: readonly string[]
}

/** Counts the rows so far. */
export function rowsOf(databaseFile: string): number {
  const db = openReadOnly(databaseFile)
  try {
    return db.prepare<[], number>('select max(seq) from audit_log').pluck().get() ?? 0
  } finally {
    db.close()
  }
}

/**
 * Verifies the database and the segments as `sallyport verify --archive` does, and holds it to what the honest callers
 * saw. `log`: a file with a line `status request-id` for each of their answers. `folder`: of the archive; null if nothing
 * is archived. The gateway must have ended.
 */
export async function inspectLedger(
  databaseFile: string,
  log: string,
  folder: string | null,
): Promise<LedgerFound> {
  const isArchived = folder !== null && readdirSync(folder).some((name) => name.endsWith('.zip'))
  const archive = isArchived ? await inspectArchive(folder, SILENT, () => NO_LOG_TRUST) : null
  const { verdict, findings } = await inspectDatabase(
    databaseFile,
    Date.now(),
    archive ? (rows) => archive.said.watched(rows) : ITSELF,
  )
  const segments = archive?.segments ?? []
  const faults = [
    ...findings,
    ...(archive ? [...archive.findings, ...archive.said.findings(archive)] : []),
    ...segments.flatMap(({ file, inspection }) => (exitCodeOf(inspection) === 0 ? [] : [file])),
  ]
  const archived = segments.reduce((sum, { inspection }) => sum + inspection.verdict.rows, 0)
  const db = openReadOnly(databaseFile)
  try {
    const unbalanced = db.prepare<[], number>(UNBALANCED).pluck().get() ?? 0
    const allowed = db.prepare<[string], number>(ALLOWED).pluck()
    let [served, unrecorded] = [0, 0]
    for await (const line of streamLines(createReadStream(log))) {
      const [status, id] = line?.split(' ') ?? []
      if (status !== '200' || id === undefined) continue
      served += 1
      if (allowed.get(id) !== 1) unrecorded += 1
    }
    return { verdict, unbalanced, served, unrecorded, archived, faults }
  } finally {
    db.close()
  }
}

const UNBALANCED = `select count(*) from (
  select sum(status = 'allowed') as decisions, sum(status <> 'allowed') as outcomes
  from audit_log where request_id is not null group by request_id
) where decisions > 0 and (decisions <> 1 or outcomes <> 1)`

const ALLOWED = `select count(*) from audit_log where request_id = ? and status = 'allowed'`
