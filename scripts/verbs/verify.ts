import { locationOf } from '../../db/engine.ts'
import { inspectFile, isSqlite } from '../verifying/file.ts'
import { verifyingVerb } from '../verifying/verb.ts'

export const verb = verifyingVerb({
  name: 'sallyport verify',
  takes: 'FILE|URL',
  make: 'make verify-audit [FILE=data/sallyport.db]',
  about: `Verifies the audit ledger offline. FILE is the SQLite database (only read, also while the gateway runs),
an NDJSON export (- reads one from standard input), a pack of evidence (a zip), or a receipt. URL is sqlite:PATH or
postgres://…. For a database it also recomputes every decision, and compares the rows with the tree of its checkpoints, and
the tables next to the ledger with what the ledger says.`,
  inspect: async (source, authority, trusted, shown, before) => {
    const location = locationOf(source)
    // Loaded for a database alone: they take longer than most exports, packs and receipts.
    if (location.engine === 'postgres') {
      const { inspectPostgres } = await import('../../db/postgres/ledger/inspect.ts')
      return inspectPostgres(location.url, shown, trusted)
    }
    const { file } = location
    if (file === '-' || !isSqlite(file)) return inspectFile(file, authority, trusted, shown, before)
    const { inspectDatabase } = await import('../../db/sqlite/ledger/inspect.ts')
    return inspectDatabase(file, Date.now(), shown, trusted)
  },
})
