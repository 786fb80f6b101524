import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'

/** No secret of ours is longer. Bytes. */
const MAX_SECRET_LENGTH = 65_536

/** The bits of a secret file's mode that must be clear, so that the owner alone may touch it. */
export const OWNER_ONLY = 0o077
/** Like {@link OWNER_ONLY}, but the file's group may read: how orchestrators hand secrets to a service. */
export const OWNER_AND_GROUP = 0o027

/**
 * Reads a secret from a regular file, without one trailing newline. Throws an Error with one sentence if the
 * file cannot be read, is larger than 64 KiB, or has a mode bit of `refusedModeBits` set
 * (docs/threats.md#f-39). Does NOT look at who owns the file or at the directories above it.
 */
export function readSecretFile(path: string, refusedModeBits: number): string {
  const descriptor = open(path)
  try {
    const { mode, size } = regularFile(descriptor, path)
    if ((mode & refusedModeBits) !== 0) {
      throw new Error(
        `${path} has mode ${octalMode(mode)} and is open to others: make it 0600 with chmod 600 ${path}`,
      )
    }
    if (size > MAX_SECRET_LENGTH) throw new Error(`${path} is larger than any secret: ${size} bytes`)
    return readFileSync(descriptor, 'utf8').replace(/\r?\n$/, '')
  } finally {
    closeSync(descriptor)
  }
}

function open(path: string): number {
  try {
    // Without O_NONBLOCK a named pipe that nobody writes to would hold the boot for ever.
    return openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  } catch (error) {
    throw new Error(`${path} cannot be read (${errorCode(error)})`, { cause: error })
  }
}

function regularFile(descriptor: number, path: string): { mode: number; size: number } {
  const stats = fstatSync(descriptor)
  if (!stats.isFile()) throw new Error(`${path} is not a regular file`)
  return stats
}

/** Returns whether everybody may write to a file of this mode (docs/threats.md#threat-34). */
export const isWorldWritable = (mode: number): boolean => (mode & 0o002) !== 0

/** A file mode as operators write it, e.g. `0644`. */
export const octalMode = (mode: number): string => `0${(mode & 0o777).toString(8).padStart(3, '0')}`

/** The system's name for an error, e.g. `ENOENT`. */
export function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
}
