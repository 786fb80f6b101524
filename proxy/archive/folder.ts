import { constants } from 'node:fs'
import { access, lstat, open, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { messageOf } from '../../db/support/error-message.ts'

/** The file that says whose segments a folder holds: the first verifier key of the log. */
const WHOSE = 'LOG'

/**
 * Makes sure that a folder is there, is no link, can be written, and is this log's alone. Throws one sentence.
 * `key`: the first verifier key of the log.
 */
export async function claimFolder(folder: string, key: string): Promise<void> {
  const found = await lstat(folder).catch(() => null)
  if (!found)
    throw new Error(
      `the folder ${folder} of the archive is not there: make it, and let this user write to it`,
    )
  if (!found.isDirectory())
    throw new Error(`${folder} is no folder, or a link to one: name the folder of the archive itself`)
  await access(folder, constants.W_OK).catch((cause: unknown) => {
    throw new Error(`the folder ${folder} of the archive cannot be written: ${messageOf(cause)}`, { cause })
  })
  const path = join(folder, WHOSE)
  await writeFile(path, `${key}\n`, { flag: 'wx', mode: 0o600 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw unwritable(path, error)
  })
  const owner = (await readFile(path, 'utf8')).trim()
  if (owner !== key)
    throw new Error(
      `the folder ${folder} holds the archive of another log, ${owner}: give each log a folder of its own`,
    )
}

/** Puts a file in its place for good. */
export async function putInPlace(folder: string, from: string, to: string): Promise<void> {
  await rename(join(folder, from), join(folder, to))
  await using entries = await open(folder, 'r')
  await entries.sync()
}

export const removeFile = (folder: string, name: string): Promise<void> =>
  rm(join(folder, name), { force: true })

/** Says in one sentence why a file could not be written. */
export function unwritable(path: string, error: unknown): Error {
  const isFull = error instanceof Error && /ENOSPC|EDQUOT/.test(messageOf(error))
  const message = isFull
    ? `there is no room for ${path}: make room, and nothing is removed before`
    : `${path} cannot be written: ${messageOf(error)}`
  return new Error(message, { cause: error })
}
