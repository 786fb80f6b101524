// Run as a process of its own: writes a row, and says on standard output how nice each of its threads is.
import { readdirSync } from 'node:fs'
import { getPriority } from 'node:os'
import { entry, open } from './scratch-ledger.ts'

const ledger = await open(process.argv[2] ?? '')
await ledger.commit({ entries: [entry()] })
const nice = readdirSync('/proc/self/task').map((thread) => getPriority(Number(thread)))
process.stdout.write(JSON.stringify(nice.toSorted((a, b) => a - b)))
await ledger.close()
