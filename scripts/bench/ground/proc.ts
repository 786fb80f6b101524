import { readFileSync } from 'node:fs'

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

/** Reads the resident memory of a process. MiB. Null where there is no /proc. */
export function rssMbOf(pid: number): number | null {
  const kib = /^VmRSS:\s+(\d+) kB$/m.exec(read(`/proc/${pid}/status`) ?? '')?.[1]
  return kib === undefined ? null : Number(kib) / 1024
}

function read(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}
