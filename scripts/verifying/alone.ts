// The verifier in one file, for auditors (make verifier): like sallyport verify, but for databases.
import { isPageThread } from '../../db/ledger/verify/threads.ts'
import { inspectFile, isSqlite } from './file.ts'
import { verifyingVerb } from './verb.ts'

const verb = verifyingVerb({
  name: 'verify.mjs',
  takes: 'FILE',
  about: `Verifies offline what a Sallyport gateway has recorded. FILE is an NDJSON export (- reads one from standard input), a pack
of evidence (a zip), or a receipt. Needs Node 22 or newer, and nothing else.`,
  inspect: async (file, authority, trusted, shown, before) => {
    if (file !== '-' && isSqlite(file)) throw new Error('this is a database: sallyport verify reads it')
    return inspectFile(file, authority, trusted, shown, before)
  },
})
// A thread of this file reads pages.
if (!isPageThread) process.exitCode = await verb.run(process.argv.slice(2))
