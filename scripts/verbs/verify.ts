import { locationOf } from '../../db/engine.ts'
import { inspectPostgres } from '../../db/postgres/ledger/inspect.ts'
import { inspectDatabase } from '../../db/sqlite/ledger/inspect.ts'
import { inspectFile, isSqlite, showProgress } from '../verifying/file.ts'
import { verifyingVerb } from '../verifying/verb.ts'

export const verb = verifyingVerb({
  name: 'sallyport verify',
  takes: 'FILE|URL',
  make: 'make verify-audit [FILE=data/sallyport.db]',
  about: `Verifies the audit ledger offline. FILE is the SQLite database (only read, also while the gateway runs),
an NDJSON export (- reads one from standard input), a pack of evidence (a zip), or a receipt. URL is sqlite:PATH or
postgres://…. For a database it also recomputes every decision, and compares the rows with the tree of its checkpoints; for
SQLite, it also compares the tables next to the ledger with what the ledger says.`,
  inspect: async (source, authority, trusted) => {
    const location = locationOf(source)
    if (location.engine === 'postgres') return inspectPostgres(location.url, showProgress, trusted)
    const { file } = location
    return file !== '-' && isSqlite(file)
      ? inspectDatabase(file, Date.now(), showProgress, trusted)
      : inspectFile(file, authority, trusted)
  },
})
