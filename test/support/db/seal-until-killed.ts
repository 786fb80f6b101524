// Run as a process of its own: appends a few rows and seals them, again and again, and says on standard output which
// checkpoints it was told are stored.

import { openDatabase } from '../../../db/engine.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import { currentTree, newestCheckpoint } from '../../../db/ledger/tree/store.ts'
import { LogKeys, openTree } from '../../../proxy/proofs/log-keys.ts'
import { LedgerSealer } from '../../../proxy/proofs/sealer.ts'
import { entry } from './scratch-ledger.ts'

const [file = '', rounds = '1'] = process.argv.slice(2)
const database = await openDatabase(`sqlite:${file}`)
const ledger = await openLedger({ database, version: '0.6.4' })
const keys = new LogKeys({ database, ledger, passphrase: 'of this test', clock: Date.now })
await openTree(keys, database, { trustDomain: 'example.org', organisation: 'acme' })
const sealer = new LedgerSealer({ database, ledger, keys, clock: Date.now })
for (let round = 0; round < Number(rounds); round += 1) {
  await ledger.commit({ entries: Array.from({ length: 1 + ((round * 7) % 90) }, () => entry()) })
  await sealer.seal()
  const tree = await currentTree(database.kysely)
  const newest = tree && (await newestCheckpoint(database.kysely, tree.tree))
  process.stdout.write(`${newest?.size} ${newest?.root}\n`)
}
await ledger.close()
await database.close()
