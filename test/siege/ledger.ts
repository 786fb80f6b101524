import { createReadStream } from 'node:fs'
import { type LedgerVerdict, verifyRows } from '../../db/ledger/verify/verify.ts'
import { openReadOnly, storedRows } from '../../db/sqlite/ledger/rows.ts'
import { streamLines } from '../../scripts/lines.ts'

/** What the ledger says after a run. */
export interface LedgerFound {
  readonly verdict: LedgerVerdict
  /** Calls that were allowed twice, or have not exactly one outcome. */
  readonly unbalanced: number
  /** Honest callers' answers with status 200. */
  readonly served: number
  /** Those of them that the ledger does not have as allowed. */
  readonly unrecorded: number
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
 * Verifies the whole chain as `sallyport verify` does, and holds it to what the honest callers saw. `log`: a file with
 * a line `status request-id` for each of their answers. The gateway must have ended.
 */
export async function inspectLedger(databaseFile: string, log: string): Promise<LedgerFound> {
  const db = openReadOnly(databaseFile)
  try {
    const verdict = await verifyRows(storedRows(db))
    const unbalanced = db.prepare<[], number>(UNBALANCED).pluck().get() ?? 0
    const allowed = db.prepare<[string], number>(ALLOWED).pluck()
    let [served, unrecorded] = [0, 0]
    for await (const line of streamLines(createReadStream(log))) {
      const [status, id] = line?.split(' ') ?? []
      if (status !== '200' || id === undefined) continue
      served += 1
      if (allowed.get(id) !== 1) unrecorded += 1
    }
    return { verdict, unbalanced, served, unrecorded }
  } finally {
    db.close()
  }
}

const UNBALANCED = `select count(*) from (
  select sum(status = 'allowed') as decisions, sum(status <> 'allowed') as outcomes
  from audit_log where request_id is not null group by request_id
) where decisions > 0 and (decisions <> 1 or outcomes <> 1)`

const ALLOWED = `select count(*) from audit_log where request_id = ? and status = 'allowed'`
