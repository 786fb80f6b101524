import { existsSync, readdirSync, readFileSync } from 'node:fs'

/** USER_HZ: Linux counts processor time for user space in hundredths of a second. */
const TICK_US = 10_000

/**
 * Reads the processor time of a process and all its threads so far. µs, in steps of 10,000. Null where there
 * is no /proc.
 */
export function cpuUsOf(pid: number): number | null {
  const stat = read(`/proc/${pid}/stat`)
  if (stat === null) return null
  // After the name in brackets, which may hold anything: utime and stime are the 12th and 13th of what
  // follows.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) * TICK_US
}

/**
 * Reads the processor time so far of the living processes of a PostgreSQL server, by one of its backends. µs. Leaves
 * out autovacuum, which comes in lumps: a look through the table in one point, and none in the next. Null where it
 * runs elsewhere.
 */
export function cpuUsOfServer(backend: number): number | null {
  if (firstWord(`/proc/${backend}/comm`).trim() !== 'postgres') return null
  const parent = statOf(backend)[1] ?? 0
  const children = firstLine(`/proc/${parent}/task/${parent}/children`).split(' ').filter(Boolean)
  const counted = children.filter((pid) => !firstLine(`/proc/${pid}/cmdline`).includes('autovacuum'))
  return [parent, ...counted.map(Number)].reduce((sum, pid) => sum + (cpuUsOf(pid) ?? 0), 0)
}

/** The numbers of a process behind its name: its state is none, and its parent the second. */
function statOf(pid: number): readonly number[] {
  const stat = read(`/proc/${pid}/stat`) ?? ''
  return stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number)
}

/** Reads the resident memory of a process. MiB. Null where there is no /proc. */
export function rssMbOf(pid: number): number | null {
  const kib = /^VmRSS:\s+(\d+) kB$/m.exec(read(`/proc/${pid}/status`) ?? '')?.[1]
  return kib === undefined ? null : Number(kib) / 1024
}

/**
 * Begins to watch this process's threads. The result tells the processor time that the busiest of them has used
 * since, the main thread left out. µs. Null where there is no /proc.
 */
export function busiestThread(): () => number | null {
  const before = threadTimes()
  return () => {
    const used = [...threadTimes()].map(([thread, us]) => us - (before.get(thread) ?? 0))
    return used.length === 0 ? null : Math.max(...used)
  }
}

/** The processor time of each thread of this process but the main one. */
function threadTimes(): ReadonlyMap<string, number> {
  const threads = existsSync(TASKS) ? readdirSync(TASKS) : []
  const others = threads.filter((thread) => thread !== String(process.pid))
  return new Map(others.map((thread) => [thread, Number(firstWord(`${TASKS}/${thread}/schedstat`)) / 1_000]))
}

const TASKS = '/proc/self/task'
// A thread may end between two looks.
const firstLine = (path: string): string => (read(path) ?? '').trim()
const firstWord = (path: string): string => (read(path) ?? '0').split(' ')[0] ?? '0'

/** Reads how many files a process of ours may have open. Infinity where there is no /proc. */
export function openFilesLimit(): number {
  const limit = /^Max open files\s+\S+\s+(\d+)/m.exec(read('/proc/self/limits') ?? '')?.[1]
  return limit === undefined ? Number.POSITIVE_INFINITY : Number(limit)
}

function read(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}
