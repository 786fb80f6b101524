import { join } from 'node:path'
import type { DatabaseLocation } from '../../db/engine.ts'
import type { SegmentIndex } from '../../db/ledger/read/segment-index.ts'
import { indexOfSegment } from '../../db/ledger/read/segment-pool.ts'
import { archiveBoundary, listSegments } from '../../db/ledger/tree/segments.ts'
import { currentTree, type StoredCheckpoint, treeKeysOf } from '../../db/ledger/tree/store.ts'
import { TILE_WIDTH } from '../../db/ledger/tree/tiles.ts'
import { ThreadPool } from '../../db/support/thread.ts'
import type { PackedAuthority } from '../admin/audit/pack.ts'
import { recordState, type StateDependencies } from '../proofs/state-recorder.ts'
import { archivedRow, commitSegment } from './commit.ts'
import { claimFolder, putInPlace, removeFile, removeParts, unwritable } from './folder.ts'
import { watchedLoop } from './pace.ts'
import { type RemovalDependencies, removeSegment } from './remove.ts'
import type { SegmentTasks, SegmentWork, WrittenFile } from './worker.ts'

export interface ArchiveDependencies extends RemovalDependencies, StateDependencies {
  readonly database: RemovalDependencies['database'] & StateDependencies['database']
  readonly location: DatabaseLocation
  /** An absolute path. */
  readonly folder: string
  readonly authority: PackedAuthority
  /** True: rows stay until somebody has confirmed a copy of their file elsewhere. */
  readonly confirm?: boolean
  /** The anchors that must have a checkpoint over what is archived, by name. */
  readonly anchors: () => readonly string[]
}

/** A segment is written, read back and verified by one thread: each loads a part of the gateway. ms. */
const IDLE_MS = 5_000

const threads = new ThreadPool<SegmentTasks>(import.meta, './worker', {
  name: 'the writer of segments',
  endsOnAbort: true,
  idleMs: IDLE_MS,
})

/**
 * Archives the sealed rows up to a leaf in one file, and removes all that is archived. Goes on where it was cut,
 * wherever that was. Throws one sentence, and nothing is removed, if the file cannot be written, read back and
 * verified.
 */
export async function archiveRows(
  dependencies: ArchiveDependencies,
  last: number,
  signal: AbortSignal,
): Promise<void> {
  await removeArchived(dependencies)
  await writeSegment(dependencies, last, signal)
  await removeArchived(dependencies)
}

/** Removes the rows of all segments that are committed, up to the first that waits to be confirmed. */
export async function removeArchived(
  dependencies: RemovalDependencies & Pick<ArchiveDependencies, 'confirm'>,
): Promise<void> {
  for (const segment of await listSegments(dependencies.database.kysely)) {
    if (segment.removed_at !== null) continue
    if (dependencies.confirm && segment.confirmed_at === null) return
    if (!(await removeSegment(dependencies, segment))) return
  }
}

/** Claims the folder by the first key of the first log of the database: one of a new name goes on in it. */
export async function claimArchive({
  database: { kysely },
  folder,
}: Pick<ArchiveDependencies, 'database' | 'folder'>): Promise<void> {
  const first = await kysely
    .selectFrom('audit_trees')
    .select('tree')
    .orderBy('tree')
    .limit(1)
    .executeTakeFirst()
  const keys = first ? await treeKeysOf(kysely, first.tree) : []
  await claimFolder(folder, keys.at(-1)?.vkey ?? '')
}

/** Reads the digest of a file. */
export const digestOfFile = (path: string): Promise<WrittenFile> => threads.ask('digest', path)

async function writeSegment(
  dependencies: ArchiveDependencies,
  last: number,
  signal: AbortSignal,
): Promise<void> {
  const { database, folder, location, authority, clock } = dependencies
  const { kysely } = database
  const archived = await archiveBoundary(kysely)
  const { size: first, place: after } = archived
  if (last < first || (last + 1) % TILE_WIDTH !== 0)
    throw new Error(
      `a segment ends with the last of ${TILE_WIDTH} leaves behind leaf ${first - 1}, not with ${last}`,
    )
  const tree = await currentTree(kysely)
  if (!tree) throw new Error('nothing is sealed yet')
  const keys = await treeKeysOf(kysely, tree.tree)
  await claimArchive(dependencies)
  const newest = await checkpointOver(dependencies, tree.tree, last + 1)
  const stateAt = (leaf: number) => recordState(dependencies, { tree: tree.tree, leaf }, signal)
  const state = await stateAt(last + 1)
  const start = first === 0 ? null : await stateAt(first)
  const said = start && (await database.treeRows.placeOf(start))
  if (said !== null && said > state.place)
    throw new Error(`the row of the state before leaf ${first} is behind leaf ${last}: archive more at once`)
  const bounds = { first, count: last + 1 - first, after, archived, named: false, since: null, until: null }
  const scope = { tree, newest, state: start, segments: [], folder: '', ...bounds }
  const file = `${first}-${last}.zip`
  using loop = watchedLoop()
  const { use } = loop
  const known = await archivedRow(kysely, { first, last, file })
  const found = known && (await threads.ask('digest', join(folder, file)).catch(() => null))
  const written: WrittenFile & { readonly index?: SegmentIndex } =
    found?.sha256 === known?.sha256 && found
      ? found
      : await writeFile({ location, scope, authority, at: clock(), path: '', use }, folder, file, signal)
  const vkeys = keys.map(({ vkey }) => vkey)
  const whole = { path: join(folder, file), first, last, origin: tree.origin, vkeys, use }
  const { since, until } = await threads.ask('verify', whole, { signal })
  const { sha256, bytes } = written
  const index = written.index ?? (await indexOfSegment({ folder, file, sha256 }, signal))
  await commitSegment(dependencies, {
    ...index,
    ...{ first, last, last_place: state.place, state: state.sha256 },
    ...{ sha256, bytes, file, since, until },
  })
}

/** Writes a segment beside its place, puts it there, and reads it back. */
async function writeFile(
  work: SegmentWork,
  folder: string,
  file: string,
  signal: AbortSignal,
): ReturnType<SegmentTasks['write']> {
  const part = `.${file}.part`
  try {
    await removeParts(folder)
    const written = await threads.ask('write', { ...work, path: join(folder, part) }, { signal })
    await putInPlace(folder, part, file)
    const found = await threads.ask('digest', join(folder, file))
    if (found.sha256 === written.sha256) return written
  } catch (error) {
    await removeFile(folder, part).catch(() => {})
    signal.throwIfAborted()
    throw unwritable(join(folder, file), error)
  }
  throw new Error(
    `${join(folder, file)} was read back as something else than was written: look after its disk`,
  )
}

/** The first checkpoint over so many leaves that every anchor has, or has one before it. */
async function checkpointOver(
  { database: { kysely }, anchors }: ArchiveDependencies,
  tree: number,
  size: number,
): Promise<StoredCheckpoint> {
  let least = size
  for (const anchor of anchors()) {
    const reached = await kysely
      .selectFrom('audit_anchors')
      .select('size')
      .where('tree', '=', tree)
      .where('anchor', '=', anchor)
      .executeTakeFirst()
    if ((reached?.size ?? 0) < size)
      throw new Error(
        `the anchor ${anchor} has no checkpoint of ${size} rows yet: nothing is archived before`,
      )
    const said = await kysely
      .selectFrom('audit_cosignatures')
      .select('size')
      .where('tree', '=', tree)
      .where('anchor', '=', anchor)
      .where('size', '>=', size)
      .orderBy('size')
      .limit(1)
      .executeTakeFirst()
    least = Math.max(least, said?.size ?? 0)
  }
  const found = await kysely
    .selectFrom('audit_checkpoints')
    .selectAll()
    .where('tree', '=', tree)
    .where('size', '>=', least)
    .orderBy('size')
    .limit(1)
    .executeTakeFirst()
  if (!found) throw new Error(`no checkpoint is over ${size} rows yet: nothing is archived before`)
  return found
}
