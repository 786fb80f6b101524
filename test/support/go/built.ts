import { spawn } from 'node:child_process'
import { rmSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { without } from '../certs/openssl.ts'

/** A program of this folder that is built, or why it is not. */
export type Built =
  | { readonly program: string; readonly missing: false }
  | { readonly program: ''; readonly missing: string }

/** What says that there is no way to a module, or that this Go is too old for it. */
const UNREACHABLE =
  /dial tcp|lookup|proxyconnect|connection refused|no such host|i\/o timeout|module lookup disabled|reading https?:|requires go >=/

/**
 * Builds a program of this folder, from the modules that its go.sum names. Quickly, and slow at work: nothing is
 * optimised, and no C is compiled. Throws where it does not compile; it is missing where Go or a module cannot be had.
 */
export async function built(name: string): Promise<Built> {
  const missing = without('go')
  if (missing !== false) return { program: '', missing }
  const directory = await mkdtemp(join(tmpdir(), 'sallyport-go-'))
  process.once('exit', () => rmSync(directory, { recursive: true, force: true }))
  const program = join(directory, name)
  const flags = ['-mod=readonly', '-buildvcs=false', '-gcflags=all=-N -l', '-ldflags=-s -w']
  const child = spawn('go', ['build', ...flags, '-o', program, '.'], {
    cwd: join(import.meta.dirname, name),
    // Another Go than the one that is here is not fetched.
    env: { ...process.env, CGO_ENABLED: '0', GOTOOLCHAIN: 'local' },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const closed = new Promise<number | null>((resolve) => child.once('close', resolve))
  const [said, status] = await Promise.all([text(child.stderr), closed])
  if (status === 0) return { program, missing: false }
  if (UNREACHABLE.test(said))
    return { program: '', missing: `${name} cannot be built here: ${lastLine(said)}` }
  throw new Error(said)
}

const lastLine = (said: string): string => said.trimEnd().split('\n').at(-1) ?? ''
