// Run as a process of its own: appends three batches, the first of so many units, then closes. Says on standard output
// what came of each unit: the row that was told durable, or that it was refused and whether the ledger had failed for
// good.
import { entry, open } from './scratch-ledger.ts'

const [file = '', first = ''] = process.argv.slice(2)
const ledger = await open(file)
const settings = 'insert into settings (key, value, updated_at) values (?, ?, ?)'
let failed = false
void ledger.failed.then(() => (failed = true))

async function append(id: string, withStatement: boolean): Promise<void> {
  const statements = withStatement ? [{ sql: settings, parameters: [id, 'v', 'now'], changes: 1 }] : []
  const told = await ledger.commit({ statements, entries: [entry({ request_id: id })] }).then(
    ([sealed]) => ({ id, seq: sealed?.seq, hash: sealed?.hash }),
    () => ({ id, failed }),
  )
  process.stdout.write(`${JSON.stringify(told)}\n`)
}

for (let batch = 0; batch < 3; batch += 1) {
  const units = Array.from({ length: batch === 0 ? Number(first) : 3 }, (_, unit) => unit)
  await Promise.all(units.map((unit) => append(`${batch}-${unit}`, unit % 3 === 1)))
}
await ledger.close()
