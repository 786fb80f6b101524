import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { archiveBoundary, segmentOfFile } from '../../db/ledger/tree/segments.ts'
import { currentTree } from '../../db/ledger/tree/store.ts'
import { type ArchiveDependencies, archiveRows, claimArchive, digestOfFile } from './archive.ts'
import { putInPlace, segmentFilesIn } from './folder.ts'

/** The name that a copy is laid beside its place by. */
const copyOf = (file: string): string => `${file}.copy`

/**
 * Mends what a restored copy has left behind (docs/operating.md#archive). A file that the database knows is put
 * back from the copy beside its place. One that the database does not know, because it is older, is made again
 * from its rows, and the one that was there is kept as `<file>.old`. Throws one sentence, and nothing is changed.
 */
export async function restoreArchived(
  dependencies: ArchiveDependencies,
  file: string,
  signal: AbortSignal,
): Promise<void> {
  const { database, folder } = dependencies
  await claimArchive(dependencies)
  const known = await segmentOfFile(database.kysely, file)
  if (known) return putCopyBack(folder, file, known.sha256)
  const last = await lastToGoOnWith(dependencies, null)
  const named = (await segmentFilesIn(folder)).find((one) => one.file === file)
  if (!named) throw new Error(`${file} is not in ${folder}, and no row says that it was archived`)
  if (last === null) throw new Error(`${file} holds rows that other files hold: move it elsewhere`)
  if (last !== named.last)
    throw new Error(`${file} is not the next one: restore ${await nextUnknown(dependencies)} first`)
  await archiveRows(dependencies, last, signal)
}

async function putCopyBack(folder: string, file: string, wanted: string): Promise<void> {
  const [place, copy] = [join(folder, file), join(folder, copyOf(file))]
  const digest = async (path: string) => (await digestOfFile(path).catch(() => null))?.sha256 ?? null
  const found = await digest(place)
  if (found === wanted) return
  const brought = await digest(copy)
  if (brought !== wanted) {
    const state = found === null ? 'cannot be read' : `has the SHA-256 ${found}, not ${wanted}`
    const other = brought === null ? 'there is none that can be read' : `that one has ${brought}`
    throw new Error(`${place} ${state}. Lay a copy of it in that folder, as ${copyOf(file)}: ${other}`)
  }
  await using written = await open(copy, 'r+')
  await written.sync()
  await putInPlace(folder, copyOf(file), file)
}

type FolderAndTree = Pick<ArchiveDependencies, 'database' | 'folder'>

const nextUnknown = async ({ database: { kysely }, folder }: FolderAndTree): Promise<string | null> => {
  const { size } = await archiveBoundary(kysely)
  return (await segmentFilesIn(folder)).find(({ last }) => last >= size)?.file ?? null
}

/**
 * Finds the leaf that the next segment must end with, because its file is in the folder: an earlier try was cut,
 * or the database is a copy from before it. `end`: the leaf that it would end before; null: none. Throws one sentence
 * if the rows of the database and the files do not fit.
 */
export async function lastToGoOnWith(
  { database: { kysely }, folder }: FolderAndTree,
  end: number | null,
): Promise<number | null> {
  const { size: from } = await archiveBoundary(kysely)
  const [next] = (await segmentFilesIn(folder)).filter(({ last }) => last >= from)
  const { size = 0 } = (await currentTree(kysely)) ?? {}
  if (!next || (end !== null && end <= next.first)) return end === null ? null : end - 1
  const { file, first, last } = next
  if (first !== from)
    throw new Error(
      `${file} in ${folder} does not begin with leaf ${from}, behind which nothing is archived: bring the file before it back, or move ${file} elsewhere`,
    )
  if (last >= size)
    throw new Error(
      `${file} in ${folder} holds rows up to ${last}, and this database has ${size}: it was restored from a back-up from before them. Restore a newer one; the file keeps its rows`,
    )
  return last
}
