import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'
import { isMissing } from '../../certs/authority/key-store.ts'

/**
 * Reads a file that only its owner may read; null where there is none. Throws one sentence with the command
 * that mends it where others may read or write it. Synchronous, because an identity is read before the first
 * call can be made.
 */
export function readPrivateSync(path: string): string | null {
  const file = openIfThere(path)
  if (file === null) return null
  try {
    if ((fstatSync(file).mode & 0o066) !== 0) {
      throw new Error(`${path} can be read or written by others than its owner: run chmod 600 ${path}`)
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
    if (isMissing(error)) return null
    throw error
  }
}
