// Temporary files in memory: a run makes some hundred databases and forgets them, and a disk makes each of them wait.
import { accessSync, chmodSync, constants, mkdtempSync, readFileSync, rmSync, statfsSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const IN_MEMORY = '/dev/shm'
/** The room that a run may take of it, in addition to the memory of its processes. Bytes. */
const MIN_FREE = 6 * 2 ** 30
/** The kind of a file system in memory, by statfs. */
const TMPFS = 0x01_02_19_94

/** Has this process, and those that it starts, write temporary files to memory, where there is enough of it. */
export function keepInMemory(): void {
  if (process.env.TMPDIR !== undefined || !hasRoom()) return
  const folder = mkdtempSync(join(IN_MEMORY, 'sallyport-'))
  // A PostgreSQL that root starts runs as somebody else.
  chmodSync(folder, 0o1777)
  process.env.TMPDIR = folder
  // Also what a process left that was killed.
  process.once('exit', () => {
    try {
      rmSync(folder, { recursive: true, force: true })
    } catch {
      // A PostgreSQL that still ends removes its own files.
    }
  })
}

/** Tells whether temporary files are in memory. */
export const isInMemory = (): boolean => statfsSync(tmpdir()).type === TMPFS

function hasRoom(): boolean {
  try {
    accessSync(IN_MEMORY, constants.W_OK)
    const { type, bavail, bsize } = statfsSync(IN_MEMORY)
    // Tests run programs from there.
    const runs = !/ \/dev\/shm tmpfs \S*\bnoexec\b/.test(readFileSync('/proc/mounts', 'utf8'))
    return type === TMPFS && bavail * bsize >= MIN_FREE && process.availableMemory() >= MIN_FREE && runs
  } catch {
    return false
  }
}
