import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { getPriority } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { scratchDatabase } from '../../../support/db/scratch-ledger.ts'

const HELPER = join(import.meta.dirname, '../../../support/db/nice-of-threads.ts')
const has = (command: string): boolean => spawnSync(command, ['-V']).error === undefined

/** One of the cores that this process may use. */
const core = (): string =>
  /Cpus_allowed_list:\s*(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? '0'

/** The niceness of each thread of a process that has written a row, in ascending order. */
function threadsOf(file: string, before: readonly string[]): readonly number[] {
  const [command, ...rest] = [...before, process.execPath, HELPER, file]
  const { stdout, stderr, status } = spawnSync(command, rest, { encoding: 'utf8' })
  if (status !== 0) throw new Error(stderr)
  return JSON.parse(stdout) as readonly number[]
}

t.test(
  'on one core the thread that writes the ledger, and no other one, lets the rest go first',
  { skip: process.platform === 'linux' && has('taskset') && has('nice') ? false : 'Linux only' },
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const one = threadsOf(file, ['taskset', '-c', core()])
    // The tests themselves may run below others (`nice -n 5`).
    const own = getPriority()
    t.equal(one.at(-1), Math.min(own + 10, 19), JSON.stringify(one))
    t.ok(one.length > 1 && one.slice(0, -1).every((nice) => nice === own), JSON.stringify(one))
    const niced = threadsOf(file, ['taskset', '-c', core(), 'nice', '-n', '15'])
    t.equal(niced.at(-1), 19, 'nicer than the process, whatever that is')
  },
)
