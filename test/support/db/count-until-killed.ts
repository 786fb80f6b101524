// Run as a process of its own: appends rows and counts them, again and again, and says on standard output how many it
// was told are durable.

import { openDatabase } from '../../../db/engine.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import { countRows } from '../../../proxy/tasks/count-rows.ts'
import { spentEntries } from './counts.ts'
import { AT, entry } from './scratch-ledger.ts'

const [url = '', rounds = '1'] = process.argv.slice(2)
const database = await openDatabase(url)
const ledger = await openLedger({ database, version: '0.6.4' })
const task = countRows({ database, ledger, clock: () => AT })
let made = 0
for (let round = 0; round < Number(rounds); round += 1) {
  const entries = Array.from({ length: 1 + ((round * 7) % 90) }, (_, n) => entry({ at: AT + n * 7_000 }))
  // Decided in one portion, and ended in another, on another day.
  const [decision, outcome] = spentEntries({
    ...{ id: `req_${process.pid}_${round}`, at: AT, endedAt: AT + 86_400_000 },
    cost: { microusd: round, priced: 'stated' },
  })
  // Beside each other: a portion ends wherever it may. And then what is left.
  const [sealed] = await Promise.all([ledger.commit({ entries: [...entries, decision] }), task.run()])
  await Promise.all([ledger.commit({ entries: [outcome] }), task.run()])
  await task.run()
  made += sealed.length
  process.stdout.write(`${made}\n`)
}
await task.stop()
await ledger.close()
await database.close()
