import { join } from 'node:path'
import type { Fetch } from '../../../../scripts/client/create-fetch.ts'
import { run } from '../files.ts'

/** What one API of an SDK said. */
export interface Talked {
  readonly api: string
  /** The answer that came at once. */
  readonly text: string
  /** The pieces of the streamed answer. */
  readonly pieces: readonly string[]
}

/**
 * What an application does with one SDK: asks each of its APIs twice, for the whole answer and for a stream.
 * `url`: of the gateway or of the sidecar, without a path. `fetch`: undefined for the SDK's own. Rejects as
 * the SDK does.
 */
export type Talk = (url: string, fetch?: Fetch) => Promise<readonly Talked[]>

/**
 * Runs one of the modules here as a program of its own. `identity`: a directory, for `--import
 * sallyport/register`; without it the program has nothing of Sallyport. Rejects with what the program wrote
 * to standard error where it failed.
 */
export async function talkAlone(name: string, url: string, identity?: string): Promise<readonly Talked[]> {
  const register = join(import.meta.dirname, '../../../../scripts/register.ts')
  const [env, preload] =
    identity === undefined ? [[], []] : [[`SALLYPORT_IDENTITY=${identity}`], ['--import', register]]
  const program = join(import.meta.dirname, 'program.ts')
  // Nothing else of this machine's environment, where the SDKs look for keys, base URLs and tracers.
  const ran = await run('env', ['-i', ...env, process.execPath, ...preload, program, name, url])
  if (ran.code !== 0) throw new Error(ran.err)
  // The program prints nothing else.
  const talked: readonly Talked[] = JSON.parse(ran.out)
  return talked
}
