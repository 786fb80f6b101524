import { constants, type FileHandle, open } from 'node:fs/promises'
import { parseSignedCheckpoints, type SignedCheckpoint } from '../../../db/ledger/tree/trusted.ts'
import { type CheckpointAnchor, type PendingCheckpoint, RollbackError } from './anchor.ts'

/** The bytes read from the end of a file. Thousands of notes. */
const TAIL = 1_048_576

/**
 * The file of an anchor, on another volume: checkpoints are appended to it and are on the disk when it is
 * done.
 */
export const fileAnchor = (path: string): CheckpointAnchor => ({
  name: `file:${path}`,
  keep: (checkpoint) => append(path, checkpoint),
})

async function append(path: string, { origin, size, root, note }: PendingCheckpoint): Promise<null> {
  const file = await open(path, constants.O_RDWR | constants.O_CREAT | constants.O_APPEND, 0o600)
  try {
    const tail = await tailOf(file)
    const newest = newestIn(tail, origin)
    if (newest && newest.size > size)
      throw new RollbackError(`${path} has a checkpoint of ${newest.size} rows, and this log has ${size}`)
    if (newest?.size === size) {
      if (newest.root.equals(root)) return null
      throw new RollbackError(`${path} has another checkpoint of ${size} rows`)
    }
    // A note that a crash has left half-written is followed by an empty line too, and is no note.
    await file.appendFile(tail === '' ? note : tail.endsWith('\n') ? `\n${note}` : `\n\n${note}`)
    await file.sync()
    return null
  } finally {
    await file.close()
  }
}

/**
 * The newest checkpoint of a log in a file of them; null if there is none, or no file. Rejects if it cannot
 * be read.
 */
export async function newestInFile(path: string, origin: string): Promise<SignedCheckpoint | null> {
  const file = await open(path, 'r').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null
    throw error
  })
  if (!file) return null
  try {
    return newestIn(await tailOf(file), origin)
  } finally {
    await file.close()
  }
}

const newestIn = (text: string, origin: string): SignedCheckpoint | null =>
  parseSignedCheckpoints(text).findLast((checkpoint) => checkpoint.origin === origin) ?? null

async function tailOf(file: FileHandle): Promise<string> {
  const { size } = await file.stat()
  const from = Math.max(0, size - TAIL)
  const bytes = Buffer.alloc(size - from)
  const { bytesRead } = await file.read(bytes, 0, bytes.length, from)
  return bytes.subarray(0, bytesRead).toString()
}
