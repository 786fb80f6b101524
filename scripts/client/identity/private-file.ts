import { randomBytes } from 'node:crypto'
import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  linkSync,
  openSync,
  readFileSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { isFileNotFound } from '../../../certs/authority/key-store.ts'

/**
 * Reads a file that only its owner may read; null if there is none. Throws one sentence with the command that
 * mends it if others may read or write it. Synchronous, because an identity is read before the first call can
 * be made.
 */
export function readPrivateSync(path: string): string | null {
  const file = openIfThere(path)
  if (file === null) return null
  try {
    if ((fstatSync(file).mode & 0o066) !== 0) {
      throw new Error(`${path} can be read or written by users other than its owner: run chmod 600 ${path}`)
    }
    return readFileSync(file, 'utf8')
  } finally {
    closeSync(file)
  }
}

function openIfThere(path: string): number | null {
  try {
    return openSync(path, constants.O_RDONLY)
  } catch (error) {
    if (isFileNotFound(error)) return null
    throw error
  }
}

/**
 * Writes a file that only its owner may read, whole or not at all, and never over another: of two processes
 * that do so at once the file of one stays. A crash leaves a `.tmp` at most.
 */
export function writePrivateOnceSync(path: string, text: string): void {
  const directory = dirname(path)
  const temporary = join(directory, `.${basename(path)}.${randomBytes(6).toString('hex')}.tmp`)
  const file = openSync(temporary, 'wx', 0o600)
  try {
    writeFileSync(file, text)
    fsyncSync(file)
    // A hard link to a whole file is made in one step or not at all.
    linkSync(temporary, path)
  } catch (error) {
    if (!isTaken(error)) throw error
  } finally {
    closeSync(file)
    unlinkSync(temporary)
  }
  const folder = openSync(directory, constants.O_RDONLY)
  fsyncSync(folder)
  closeSync(folder)
}

const isTaken = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && error.code === 'EEXIST'
