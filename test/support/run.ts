import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'

const ROOT = join(import.meta.dirname, '..', '..')

export interface Ran {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

/**
 * The cache of compiled sources for processes that a test starts: the one that make sets, so that types are
 * stripped once for all of them. Its entries go by the content of the sources: no process sees what another
 * one does.
 */
export const NODE_COMPILE_CACHE = join(ROOT, 'node_modules/.cache/node')

/** Runs a verb of the command line as an operator would. */
export const sallyport = (
  args: readonly string[],
  env: Record<string, string> = {},
  input = '',
): Promise<Ran> => run('scripts/sallyport.ts', args, env, input)

/** Runs a script of this repository as an operator would, with nothing of our environment but PATH. */
export async function run(
  script: string,
  args: readonly string[],
  env: Record<string, string> = {},
  input = '',
): Promise<Ran> {
  const child = spawn(process.execPath, [join(ROOT, script), ...args], {
    cwd: ROOT,
    env: { PATH: process.env.PATH ?? '', NODE_COMPILE_CACHE, ...env },
  })
  // A verb that has seen enough closes its end.
  child.stdin.on('error', () => undefined)
  child.stdin.end(input)
  const closed = new Promise<number | null>((resolve) => child.once('close', resolve))
  const [out, err, code] = await Promise.all([text(child.stdout), text(child.stderr), closed])
  return { code, out, err }
}
