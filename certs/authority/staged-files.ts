import { randomBytes } from 'node:crypto'
import { access, mkdir, rename, rm, rmdir } from 'node:fs/promises'
import { join } from 'node:path'
import { nullIfMissing, syncFolder, writePrivateFile } from './key-store.ts'

// A set is written to a folder of its own, which is then renamed to `authority.ready`: that rename is the
// commit point. A crash before it leaves a folder that nothing reads; after it, `completeStagedFiles` moves
// whatever still waits there.
const READY = 'authority.ready'
// The same for a set that takes the place of another one.
const REPLACING = 'authority.replacing'

/**
 * Puts several private files into a directory as one: after a crash none of them is there, or all of them are
 * once {@link completeStagedFiles} has run. Throws if another process has just committed a set: then that one
 * stands.
 */
export async function commitFiles(directory: string, texts: ReadonlyMap<string, string>): Promise<void> {
  await stage(directory, texts, READY)
  const names = [...texts.keys()]
  // Another process was first and has settled its set: only then could ours be committed alongside it.
  if ((await missingIn(directory, names)).length < names.length) {
    await rm(join(directory, READY), { recursive: true })
    throw new Error(`another process has just written ${names.join(', ')} in ${directory}: start again`)
  }
  await syncFolder(directory)
  await completeStagedFiles(directory, names)
}

/**
 * Puts several private files in the place of those that are there, as one: after a crash all are the old
 * ones, or all are the new ones once {@link completeStagedFiles} has run. The old files are gone.
 */
export async function replaceFiles(directory: string, texts: ReadonlyMap<string, string>): Promise<void> {
  await stage(directory, texts, REPLACING)
  await syncFolder(directory)
  await completeStagedFiles(directory, [...texts.keys()])
}

async function stage(directory: string, texts: ReadonlyMap<string, string>, as: string): Promise<void> {
  const staging = join(directory, `authority.${randomBytes(6).toString('hex')}.tmp`)
  await mkdir(staging, { mode: 0o700 })
  try {
    for (const [name, text] of texts) await writePrivateFile(join(staging, name), text)
    await rename(staging, join(directory, as))
  } catch (error) {
    await rm(staging, { recursive: true, force: true })
    throw error
  }
}

/**
 * Moves a committed set into place, going on from where a crash stopped it. Throws if a file there would be
 * lost that it was not meant to replace.
 */
export async function completeStagedFiles(directory: string, names: readonly string[]): Promise<void> {
  await completeReplacement(directory, names)
  const ready = join(directory, READY)
  if (!(await exists(ready))) return
  for (const name of names) {
    const waiting = join(ready, name)
    const place = join(directory, name)
    if (!(await exists(waiting))) continue
    if (await exists(place)) {
      throw new Error(`${place} exists, and ${waiting} belongs to another CA: keep one of them`)
    }
    await rename(waiting, place)
  }
  await syncFolder(directory)
  await rmdir(ready)
}

async function completeReplacement(directory: string, names: readonly string[]): Promise<void> {
  const waiting = join(directory, REPLACING)
  if (!(await exists(waiting))) return
  for (const name of names)
    if (await exists(join(waiting, name))) await rename(join(waiting, name), join(directory, name))
  await syncFolder(directory)
  await rmdir(waiting)
}

/** Returns the names that the directory does not hold. */
export async function missingIn(directory: string, names: readonly string[]): Promise<readonly string[]> {
  const present = await Promise.all(names.map((name) => exists(join(directory, name))))
  return names.filter((_, index) => !present[index])
}

const exists = async (path: string): Promise<boolean> => (await nullIfMissing(access(path))) !== null
