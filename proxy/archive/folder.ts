import { constants } from 'node:fs'
import { access, lstat, open, readdir, readFile, rename, rm, statfs, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { messageOf } from '../../db/support/error-message.ts'
import { defaultReserve } from '../tasks/watch-disk.ts'

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
  const owner = await readFile(path, 'utf8').then(
    (text) => text.trim(),
    (cause: unknown) => {
      throw new Error(`${path}, which says whose archive this is, cannot be read: ${messageOf(cause)}`, {
        cause,
      })
    },
  )
  if (owner !== key)
    throw new Error(
      `the folder ${folder} holds the archive of another log, ${owner}: give each log a folder of its own`,
    )
}

/** The bytes that are written between two looks at the disk. */
const LOOK_BYTES = 8 * 1_048_576

/** Returns what is asked before bytes are written to a folder. Throws if they take the reserve of its disk, which is for rows. */
export function leavingRoom(folder: string): (bytes: number) => Promise<void> {
  let room = 0
  return async (bytes) => {
    room -= bytes
    if (room >= 0) return
    const { bavail, blocks, bsize } = await statfs(folder)
    room = Math.min(LOOK_BYTES, bavail * bsize - defaultReserve(blocks * bsize)) - bytes
    if (room < 0) throw new Error('ENOSPC: what is left of the disk is for rows of calls')
  }
}

/** A file of the archive: the leaves `first` to `last`. */
export interface SegmentName {
  readonly file: string
  readonly first: number
  readonly last: number
}

const SEGMENT = /^(0|[1-9][0-9]{0,14})-([1-9][0-9]{0,14})\.zip$/

/** Lists the segments in a folder by their names, in the order of the tree. */
export async function segmentFilesIn(folder: string): Promise<readonly SegmentName[]> {
  const names = (await readdir(folder)).flatMap((file) => {
    const [, first, last] = SEGMENT.exec(file) ?? []
    return first === undefined ? [] : [{ file, first: Number(first), last: Number(last) }]
  })
  return names.toSorted((one, other) => one.first - other.first || one.last - other.last)
}

/** Puts a file in its place for good. Another file that is there is kept, as `<name>.old`. */
export async function putInPlace(folder: string, from: string, to: string): Promise<void> {
  const place = join(folder, to)
  if (
    await lstat(place).then(
      (found) => found.isFile(),
      () => false,
    )
  )
    await rename(place, `${place}.old`)
  await rename(join(folder, from), join(folder, to))
  await using entries = await open(folder, 'r')
  await entries.sync()
}

export const removeFile = (folder: string, name: string): Promise<void> =>
  rm(join(folder, name), { force: true })

/** Removes what writers have left that ended. */
export async function removeParts(folder: string): Promise<void> {
  for (const name of await readdir(folder))
    if (/^\.[0-9]+-[0-9]+\.zip\.part$/.test(name)) await removeFile(folder, name)
}

/** Says in one sentence why a file could not be written. */
export function unwritable(path: string, error: unknown): Error {
  const isFull = error instanceof Error && /ENOSPC|EDQUOT/.test(messageOf(error))
  const message = isFull
    ? `there is no room for ${path}: make room, and nothing is removed before`
    : `${path} cannot be written: ${messageOf(error)}`
  return new Error(message, { cause: error })
}
