import { spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Test } from 'tap'

// Said with the database's own words, by a process that is none of ours.
const HOLD = `
const SQLite = require('better-sqlite3')
const db = new SQLite(process.argv[1], { timeout: 5000 })
db.exec(process.argv[2])
process.stdout.write('held')
process.stdin.once('data', () => { db.exec('rollback'); db.close(); process.exit(0) })
`

/** Lets another process hold the database, and resolves with how to make it let go. */
export async function lockDatabase(
  t: Test,
  file: string,
  how: 'begin immediate' | 'begin exclusive' = 'begin immediate',
): Promise<() => Promise<void>> {
  const root = new URL('../..', import.meta.url)
  const child = spawn(process.execPath, ['-e', HOLD, file, how], {
    cwd: root,
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  t.teardown(() => void child.kill('SIGKILL'))
  await once(child.stdout, 'data')
  return async () => {
    child.stdin.write('go\n')
    await once(child, 'exit')
  }
}
