// The thread that writes segments: a pack takes as long as its rows are many.
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { open } from 'node:fs/promises'
import { dirname, extname } from 'node:path'
import { text } from 'node:stream/consumers'
import { Worker } from 'node:worker_threads'
import { type DatabaseLocation, readLedger } from '../../db/engine.ts'
import { type SegmentIndex, SegmentIndexer } from '../../db/ledger/read/segment-index.ts'
import type { StoredRow } from '../../db/ledger/record/leaf.ts'
import { type PackedAuthority, packOf } from '../admin/audit/pack.ts'
import type { EvidenceScope } from '../admin/audit/scope.ts'
import { leavingRoom } from './folder.ts'
import { type LoopUse, paced } from './pace.ts'

export interface SegmentWork {
  readonly location: DatabaseLocation
  readonly scope: EvidenceScope
  readonly authority: PackedAuthority
  /** ms since the epoch. */
  readonly at: number
  readonly path: string
  readonly use: LoopUse
}

export interface SegmentCheck extends Pick<SegmentWork, 'path' | 'use'> {
  readonly first: number
  readonly last: number
  readonly origin: string
  /** The keys of the log. */
  readonly vkeys: readonly string[]
}

/** The first and the last time of its rows. */
interface VerifiedSegment {
  readonly since: string
  readonly until: string
}

export interface WrittenFile {
  /** Hex. */
  readonly sha256: string
  readonly bytes: number
}

interface IndexedFile extends WrittenFile {
  readonly index: SegmentIndex
}

export interface SegmentTasks {
  /** Writes a new file, whole and on the disk when this resolves. */
  readonly write: (work: SegmentWork, signal: AbortSignal) => Promise<IndexedFile>
  /** Reads a file again. */
  readonly digest: (path: string) => Promise<WrittenFile>
  /** Has the verifier that is in a file look at all of it. Decisions that do not follow stay what they are. */
  readonly verify: (check: SegmentCheck) => Promise<VerifiedSegment>
}

export const openTasks = (): SegmentTasks => ({ write, digest, verify })

/** The bytes of tables that are held: those of a million rows. Longer ones are read twice. */
const ROOM = 80 * 1_048_576
/** The bytes that are written before they are put on the disk. */
const MAX_UNSAVED = 2 * 1_048_576

async function write(
  { location, scope, authority, at, path, use }: SegmentWork,
  signal: AbortSignal,
): Promise<IndexedFile> {
  const database = await readLedger(location)
  const indexer = new SegmentIndexer()
  try {
    await using file = await open(path, 'wx', 0o600)
    const leaveRoom = leavingRoom(dirname(path))
    const onRow = (row: StoredRow): void => indexer.see(row)
    const pack = packOf({ database, authority }, scope, at, signal, { room: ROOM, onRow })
    const rest = paced(use)
    let unsaved = 0
    const [sha256, bytes] = await digestOf(pack, async (piece) => {
      await leaveRoom(piece.length)
      await file.writeFile(piece)
      unsaved += piece.length
      // The next commit of calls waits for what is not on the disk yet, if the journal of both is one.
      if (unsaved > MAX_UNSAVED) {
        await file.datasync()
        unsaved = 0
      }
      rest()
    })
    await file.sync()
    return { sha256, bytes, index: indexer.index() }
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

async function verify({ path, first, last, origin, vkeys, use }: SegmentCheck): Promise<VerifiedSegment> {
  // It starts with the priority of this thread.
  paced(use)
  const worker = new Worker(new URL(`./verifier${extname(import.meta.filename)}`, import.meta.url), {
    argv: [path, ...vkeys.flatMap((vkey) => ['--key', vkey])],
    workerData: use,
    stdout: true,
    stderr: true,
  })
  const [[code], said, complaint] = await Promise.all([
    once(worker, 'exit') as Promise<[number]>,
    text(worker.stdout),
    text(worker.stderr),
  ])
  const [, range, since = '', until = ''] =
    /^(leaves .* of .*), recorded from (\S+) to (\S+)$/m.exec(said) ?? []
  if ((code === 0 || code === DISAGREES) && range === `leaves ${first} to ${last} of ${origin}`)
    return { since, until }
  const [why = `it holds other rows than ${first} to ${last}`] = /^(?:BAD|CUT SHORT): .*$/m.exec(said) ?? [
    complaint.trim() || undefined,
  ]
  throw new Error(`${path} does not verify, and nothing is removed: ${why}`)
}

/** The exit code of the verifier for rows that are whole, with a decision that does not follow from them. */
const DISAGREES = 5
