// Run as a process of its own: serves as a gateway would, call after call, and seals, until it is killed. Says on standard
// output which checkpoints it was told are stored, each as a line of JSON. `begin`: nobody has written in the database yet.

import { openDatabase } from '../../../../db/engine.ts'
import { openLedger } from '../../../../db/ledger/record/ledger.ts'
import { currentTree, newestCheckpoint, noteOfCheckpoint } from '../../../../db/ledger/tree/store.ts'
import { LogKeys, openTree } from '../../../../proxy/proofs/log-keys.ts'
import { LedgerSealer } from '../../../../proxy/proofs/sealer.ts'
import { decided, ended, loaded, started } from '../../db/history.ts'
import { HISTORY } from '../../db/ledger-with-tables.ts'

const [url = '', begin] = process.argv.slice(2)
const database = await openDatabase(url)
const ledger = await openLedger({ database, version: '0.6.4' })
await ledger.commit({ entries: begin === 'begin' ? HISTORY : [started, loaded()] })
const keys = new LogKeys({ database, ledger, passphrase: 'of this test', clock: Date.now })
await openTree(keys, database, { trustDomain: 'example.org', organisation: 'acme' })
const sealer = new LedgerSealer({ database, ledger, keys, clock: Date.now })
for (let round = 0; ; round += 1) {
  const calls = Array.from({ length: 1 + ((round * 7) % 40) }, (_, index) => ({
    ...decided(index, { authority: { revision: 2 } }),
    dpop_jkt: 'k'.repeat(43),
    request_id: `req_${process.pid}_${round}_${index}`,
  }))
  await Promise.all(calls.map((call) => ledger.commit({ entries: [call, ended(call)] })))
  await sealer.seal()
  const tree = await currentTree(database.kysely)
  const newest = tree && (await newestCheckpoint(database.kysely, tree.tree))
  const note = newest && (await noteOfCheckpoint(database.kysely, tree, newest))
  process.stdout.write(`${JSON.stringify({ key: await keys.verifierKey(), note })}\n`)
}
