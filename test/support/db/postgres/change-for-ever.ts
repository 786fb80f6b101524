// A process that changes authority on a database again and again, and says so: to be stopped in the middle of it.
// Usage: node change-for-ever.ts URL

import { openDatabase } from '../../../../db/engine.ts'
import { openLedger } from '../../../../db/ledger/record/ledger.ts'
import { entry, VERSION } from '../scratch-ledger.ts'

const [, , url = ''] = process.argv
const database = await openDatabase(url)
const ledger = await openLedger({ database, version: VERSION })
// Many statements, each a round trip: nearly all of its time it holds the lock.
const statements = Array.from({ length: 50 }, () => ({
  sql: 'update settings set value = value',
  parameters: [],
}))
for (;;) {
  const outcome = await ledger.commit({ statements, entries: [entry({ action: 'ca.detached' })] }).then(
    () => 'changed',
    (error: Error) => error.message,
  )
  process.stdout.write(`${outcome}\n`)
}
