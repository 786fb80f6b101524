// Run as a process of its own: migrates a database, and is killed as soon as so many parts of its ledger are copied.
import { openDatabase } from '../../../db/engine.ts'

const [file = '', parts = ''] = process.argv.slice(2)
let copied = 0
const database = await openDatabase(`sqlite:${file}`, () => {
  copied += 1
  if (copied === Number(parts)) process.kill(process.pid, 'SIGKILL')
})
await database.close()
