// Run as a process of its own: appends at full speed and says on standard output which rows it was told are
// durable.
import { writeSync } from 'node:fs'
import { entry, open } from './scratch-ledger.ts'

const [file = '', run = ''] = process.argv.slice(2)
const ledger = await open(file)
const settings = 'insert into settings (key, value, updated_at) values (?, ?, ?)'

void ledger.failed.then(({ message }) => writeSync(2, `failed: ${message}\n`))

async function append(caller: number): Promise<void> {
  for (let call = 0; ; call += 1) {
    const id = `${run}-${caller}-${call}`
    const statements = caller % 4 === 0 ? [{ sql: settings, parameters: [id, 'v', 'now'], changes: 1 }] : []
    const [sealed] = await ledger.commit({ statements, entries: [entry({ request_id: id })] })
    // Not writeSync: the pipe may be full for a moment.
    process.stdout.write(`${JSON.stringify([id, sealed?.seq, sealed?.hash])}\n`)
  }
}

await Promise.all(Array.from({ length: 16 }, (_, caller) => append(caller)))
