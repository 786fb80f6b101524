import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Ran } from './run.ts'
import { ourJudge, pythonJudge } from './sweep/judging/judge.ts'

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

/** The beginning of the work of the single file. */
const RUNS = 'if (!isPageThread) process.exitCode = await verb.run(process.argv.slice(2));'

/**
 * Makes the function that has every verifier judge a case: `sallyport verify`, the single file that auditors take, in a directory with
 * nothing else, and the one in Python where that is. Fails where one says something else; gives what ours has said. Each lives in one
 * process; others run the single file as it is (test/proxy/proofs/evidence.test.ts).
 */
export function allVerifiers(t: Test): AllVerifiers {
  const directory = mkdtempSync(join(tmpdir(), 'sallyport-verifier-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  const file = join(directory, 'verify.mjs')
  const built = spawnSync('make', ['verifier', `VERIFIER=${file}`], { cwd: ROOT, encoding: 'utf8' })
  if (built.status !== 0) throw new Error(built.stderr)
  const single = readFileSync(file, 'utf8')
  if (!single.includes(RUNS)) throw new Error(`verify.mjs does not say ${RUNS}`)
  writeFileSync(file, single.replace(RUNS, 'export { verb };'))
  const ours = ourJudge(t)
  const theirs = [ourJudge(t, file, directory), ...(hasPython ? [pythonJudge(t, PYTHON, directory)] : [])]
  async function each(...args: readonly string[]): Promise<readonly [Ran, ...Ran[]]> {
    const [our, ...others] = await Promise.all([ours(args), ...theirs.map((judge) => judge(args))])
    for (const other of others) {
      t.equal(other.code, our.code, `all say the same: ${other.err}${our.err}`)
      if (our.code === 0) t.same(lines(other), lines(our))
    }
    return [our, ...others]
  }
  const verify = async (...args: readonly string[]): Promise<Said> => {
    const [our] = await each(...args)
    return { ...our, last: our.out.trimEnd().split('\n').at(-1) ?? '' }
  }
  return Object.assign(verify, { each })
}

/** In any order: what is no verdict may stand where it likes. */
const lines = ({ out }: Ran): readonly string[] => out.split('\n').toSorted()
