import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import type { Test } from 'tap'
import { type Ran, sallyport } from './run.ts'

const ROOT = join(import.meta.dirname, '../..')
/** The verifier that is written from the documents. */
export const PYTHON = join(ROOT, 'docs/verify.py')
const hasPython = spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 9))']).status === 0

/** Why the verifier that is written from the documents cannot run here; false where it can. */
export const withoutPython = hasPython ? false : 'python3 (3.9 or newer) is not installed here'

export interface Said extends Ran {
  /** The last line. */
  readonly last: string
}

/** Has every verifier judge a case, and gives what ours has said. */
interface AllVerifiers {
  (...args: readonly string[]): Promise<Said>
  /** The same; gives what each has said. */
  readonly each: (...args: readonly string[]) => Promise<readonly Ran[]>
}

/**
 * Makes the function that has every verifier judge a case: `sallyport verify`, the single file that auditors take, in a directory with
 * nothing else, and the one in Python where that is. Fails where one says something else; gives what ours has said.
 */
export function allVerifiers(t: Test): AllVerifiers {
  const directory = mkdtempSync(join(tmpdir(), 'sallyport-verifier-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  const file = join(directory, 'verify.mjs')
  const built = spawnSync('make', ['verifier', `VERIFIER=${file}`], { cwd: ROOT, encoding: 'utf8' })
  if (built.status !== 0) throw new Error(built.stderr)
  async function each(...args: readonly string[]): Promise<readonly [Ran, ...Ran[]]> {
    const [ours, ...others] = await Promise.all([
      sallyport(['verify', ...args]),
      ran(process.execPath, [file, ...args], directory),
      ...(hasPython ? [ran('python3', [PYTHON, ...args], directory)] : []),
    ])
    for (const other of others) {
      t.equal(other.code, ours.code, `all say the same: ${other.err}${ours.err}`)
      if (ours.code === 0) t.same(lines(other), lines(ours))
    }
    return [ours, ...others]
  }
  const verify = async (...args: readonly string[]): Promise<Said> => {
    const [ours] = await each(...args)
    return { ...ours, last: ours.out.trimEnd().split('\n').at(-1) ?? '' }
  }
  return Object.assign(verify, { each })
}

/** In any order: what is no verdict may stand where it likes. */
const lines = ({ out }: Ran): readonly string[] => out.split('\n').toSorted()

async function ran(program: string, args: readonly string[], cwd: string): Promise<Ran> {
  const child = spawn(program, args, { cwd, env: { PATH: process.env.PATH ?? '' } })
  child.stdin.end()
  const closed = new Promise<number | null>((resolve) => child.once('close', resolve))
  const [out, err, code] = await Promise.all([text(child.stdout), text(child.stderr), closed])
  return { code, out, err }
}
