// The thread that writes segments: a pack takes as long as its rows are many.
import { createHash } from 'node:crypto'
import { open } from 'node:fs/promises'
import { dirname } from 'node:path'
import { type DatabaseLocation, readLedger } from '../../db/engine.ts'
import { type PackedAuthority, packOf } from '../admin/audit/pack.ts'
import type { EvidenceScope } from '../admin/audit/scope.ts'
import { leavingRoom } from './folder.ts'

export interface SegmentWork {
  readonly location: DatabaseLocation
  readonly scope: EvidenceScope
  readonly authority: PackedAuthority
  /** ms since the epoch. */
  readonly at: number
  readonly path: string
}

export interface WrittenFile {
  /** Hex. */
  readonly sha256: string
  readonly bytes: number
}

export interface SegmentTasks {
  /** Writes a new file, whole and on the disk when this resolves. */
  readonly write: (work: SegmentWork, signal: AbortSignal) => Promise<WrittenFile>
  /** Reads a file again. */
  readonly digest: (path: string) => Promise<WrittenFile>
}

export const openTasks = (): SegmentTasks => ({ write, digest })

async function write(
  { location, scope, authority, at, path }: SegmentWork,
  signal: AbortSignal,
): Promise<WrittenFile> {
  const database = await readLedger(location)
  try {
    await using file = await open(path, 'wx', 0o600)
    const leaveRoom = leavingRoom(dirname(path))
    const pack = packOf({ database, authority }, scope, at, signal)
    const [sha256, bytes] = await digestOf(pack, async (piece) => {
      await leaveRoom(piece.length)
      await file.writeFile(piece)
    })
    await file.sync()
    return { sha256, bytes }
  } finally {
    await database.close()
  }
}

async function digest(path: string): Promise<WrittenFile> {
  await using file = await open(path, 'r')
  const [sha256, bytes] = await digestOf(file.createReadStream({ autoClose: false }))
  return { sha256, bytes }
}

async function digestOf(
  pieces: AsyncIterable<Uint8Array>,
  each: (piece: Uint8Array) => Promise<void> = async () => {},
): Promise<readonly [sha256: string, bytes: number]> {
  const sum = createHash('sha256')
  let bytes = 0
  for await (const piece of pieces) {
    sum.update(piece)
    bytes += piece.length
    await each(piece)
  }
  return [sum.digest('hex'), bytes]
}
