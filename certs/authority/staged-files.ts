import { randomBytes } from 'node:crypto'
import { access, mkdir, rename, rm, rmdir } from 'node:fs/promises'
import { join } from 'node:path'
import { isMissing, syncFolder, writePrivate } from './key-store.ts'

// A set is written to a folder of its own, which is then renamed to `authority.ready`: that rename is the
// commit point. A crash before it leaves a folder that nothing reads; after it, `settle` moves whatever still
// waits there.
const READY = 'authority.ready'

/**
 * Puts several private files into a directory as one: after a crash none of them is there, or all of them are
 * once {@link settle} has run. Throws where another process has just committed a set: then that one stands.
 */
export async function commitFiles(directory: string, texts: ReadonlyMap<string, string>): Promise<void> {
  const staging = join(directory, `authority.${randomBytes(6).toString('hex')}.tmp`)
  await mkdir(staging, { mode: 0o700 })
  try {
    for (const [name, text] of texts) await writePrivate(join(staging, name), text)
    await rename(staging, join(directory, READY))
  } catch (error) {
    await rm(staging, { recursive: true, force: true })
    throw error
  }
  const names = [...texts.keys()]
  // Another process was first and has settled its set: only then could ours be committed beside it.
  if ((await missingIn(directory, names)).length < names.length) {
    await rm(join(directory, READY), { recursive: true })
    throw new Error(`another process has just written ${names.join(', ')} in ${directory}: start again`)
  }
  await syncFolder(directory)
  await settle(directory, names)
}

/**
 * Moves a committed set into place, going on where a crash stopped it. Throws where a file there would be
 * lost.
 */
export async function settle(directory: string, names: readonly string[]): Promise<void> {
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

/** Returns the names that the directory does not hold. */
export async function missingIn(directory: string, names: readonly string[]): Promise<readonly string[]> {
  const present = await Promise.all(names.map((name) => exists(join(directory, name))))
  return names.filter((_, index) => !present[index])
}

async function exists(path: string): Promise<boolean> {
  try {
    await access(path)
    return true
  } catch (error) {
    if (isMissing(error)) return false
    throw error
  }
}
