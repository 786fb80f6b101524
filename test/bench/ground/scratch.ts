import { rmSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Children, openChildren } from './children.ts'

/** A run's own directory, and the processes that it starts. */
export interface Scratch {
  readonly directory: string
  readonly children: Children
}

/**
 * Does a run's work with a directory and processes of its own. Whatever happens, its processes end and its
 * directory goes. Rejects as `work` does, and where the run is stopped by a signal.
 *
 * @param parent The parent of the directory. Default: the system's place for temporary files.
 */
export async function inScratch<Result>(
  { name, parent = tmpdir() }: { readonly name: string; readonly parent: string | undefined },
  work: (scratch: Scratch) => Promise<Result>,
): Promise<Result> {
  // Alone: it is known, and can be removed, before anything can fail.
  const directory = await mkdtemp(join(parent, `sallyport-${name}-`))
  const children = openChildren(directory)
  const interrupted = Promise.withResolvers<never>()
  const stop = (signal: NodeJS.Signals): void => interrupted.reject(new Error(`stopped by ${signal}`))
  // Also where nothing is caught any more, such as a reader of our output that went away.
  process.once('exit', () => {
    children.killAll()
    rmSync(directory, { recursive: true, force: true })
  })
  process.once('SIGINT', stop)
  process.once('SIGTERM', stop)
  try {
    return await Promise.race([work({ directory, children }), interrupted.promise])
  } finally {
    children.killAll()
    await rm(directory, { recursive: true, force: true, maxRetries: 3 })
  }
}
