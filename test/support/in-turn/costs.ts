// The CPU time that each file of a run takes, to a file: `TEST_COSTS=FILE make test`. Loaded into each process that runs
// test files, before them.
import { appendFileSync, readFileSync } from 'node:fs'

/** The variable that names the file which is written to: a line for each test file, its seconds and its path. */
export const COSTS = 'TEST_COSTS'

/** The clock of /proc: 100 Hz on each Linux. */
const TICKS_PER_S = 100

/** The CPU time so far of this process with its threads, and of its children that have ended, with theirs. s. */
function cpuSeconds(): number {
  const { user, system } = process.cpuUsage()
  // After the name, which may hold anything: the state is the third field, the children's times are 16 and 17.
  const fields = readFileSync('/proc/self/stat', 'utf8').split(') ').at(-1)?.split(' ') ?? []
  return (user + system) / 1e6 + (Number(fields[13]) + Number(fields[14])) / TICKS_PER_S
}

let counted = 0

/** Writes what a file cost that has just ended: all the time since the one before it. */
export function writeCost(file: string): void {
  const to = process.env[COSTS]
  if (to === undefined) return
  const now = cpuSeconds()
  appendFileSync(to, `${(now - counted).toFixed(2)} ${file}\n`)
  counted = now
}
