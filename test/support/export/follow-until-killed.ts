// Follows a ledger into a file, and dies by SIGKILL at the n-th step of its pages: before a page is sent, when it is on
// the disk, before its cursor moves, when it has moved. Ends by itself when it has taken all.
import { openDatabase } from '../../../db/engine.ts'
import { followLedger, type LedgerFollower } from '../../../db/ledger/cursors/follow.ts'
import { HeadWatch } from '../../../db/ledger/cursors/heads.ts'
import { type Ledger, openLedger } from '../../../db/ledger/record/ledger.ts'
import { fileSink } from '../../../proxy/export/file-sink.ts'
import { pageOf } from './lines.ts'

const [url = '', path = '', nth = '0'] = process.argv.slice(2)
let steps = 0
const step = (): void => {
  steps += 1
  if (steps === Number(nth)) process.kill(process.pid, 'SIGKILL')
}

const database = await openDatabase(url)
const ledger = await openLedger({ database, version: '0.7.0' })
const sink = fileSink(path)
const follower: LedgerFollower = {
  name: 'export:lake',
  from: 'start',
  names: false,
  take: async (page, signal) => {
    step()
    await sink.send(pageOf(page), signal)
    step()
  },
}
const commit: Ledger['commit'] = async (unit) => {
  const done = ledger.commit(unit)
  step()
  const sealed = await done
  step()
  return sealed
}
const given = { database, ledger: { commit }, heads: new HeadWatch(database), clock: Date.now }
// The first look begins the reader.
for (let looks = 0; looks < 2; looks += 1) await followLedger(given, follower, new AbortController().signal)
await ledger.close()
await database.close()
