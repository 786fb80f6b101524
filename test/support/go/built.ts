import { spawn, spawnSync } from 'node:child_process'
import { hash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync } from 'node:fs'
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

/** Programs that were built before. A program's name there goes by its sources, its modules and the Go that built it. */
const KEPT = join(import.meta.dirname, '../../../node_modules/.cache/go')
const FLAGS = ['-mod=readonly', '-buildvcs=false', '-gcflags=all=-N -l', '-ldflags=-s -w']

/**
 * Builds a program of this folder, from the modules that its go.sum names, if that has not been done before. Quickly,
 * and slow at work: nothing is optimised, and no C is compiled. Throws where it does not compile; it is missing where
 * Go or a module cannot be had.
 */
export async function built(name: string): Promise<Built> {
  const missing = without('go')
  if (missing !== false) return { program: '', missing }
  const directory = join(import.meta.dirname, name)
  const program = join(KEPT, `${name}-${digestOf(directory)}`)
  if (existsSync(program)) return { program, missing: false }
  mkdirSync(KEPT, { recursive: true })
  // Another test may be building the same one.
  const own = `${program}.${process.pid}`
  const child = spawn('go', ['build', ...FLAGS, '-o', own, '.'], {
    cwd: directory,
    // Another Go than the one that is here is not fetched.
    env: { ...process.env, CGO_ENABLED: '0', GOTOOLCHAIN: 'local' },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const closed = new Promise<number | null>((resolve) => child.once('close', resolve))
  const [said, status] = await Promise.all([text(child.stderr), closed])
  if (status === 0) {
    renameSync(own, program)
    return { program, missing: false }
  }
  if (UNREACHABLE.test(said))
    return { program: '', missing: `${name} cannot be built here: ${lastLine(said)}` }
  throw new Error(said)
}

function digestOf(directory: string): string {
  const { stdout: version } = spawnSync('go', ['version'], { encoding: 'utf8' })
  const files = readdirSync(directory).toSorted()
  const sources = files.map((file) => [file, readFileSync(join(directory, file), 'utf8')])
  return hash('sha256', JSON.stringify([version, FLAGS, sources])).slice(0, 16)
}

const lastLine = (said: string): string => said.trimEnd().split('\n').at(-1) ?? ''
