import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'
import type { Ran } from '../../run.ts'
import { PYTHON, withoutPython } from '../../verifiers.ts'

/** The most memory that a case may take. Bytes; of Python all of its address space. */
const MOST_MEMORY = 768 * 1024 * 1024
/** The longest that a case may take on a machine that does other things too. ms. */
const PATIENCE_MS = 60_000

/** What both verifiers say of one case. `theirs`: null where Python is not installed. */
export interface Verdicts {
  readonly ours: Ran
  readonly theirs: Ran | null
}

type Judge = (args: readonly string[]) => Promise<Ran>

/**
 * Makes the function that has both verifiers judge a case: each lives in one process, so that a case takes milliseconds.
 * A verifier that ends, or says nothing for a minute, is exit code 1, and the next case gets another process. `ours` alone:
 * for what only we read.
 */
export function judges(t: Test): {
  readonly both: (args: readonly string[]) => Promise<Verdicts>
  readonly ours: Judge
} {
  const ours = judge(t, process.execPath, [
    `--max-old-space-size=${MOST_MEMORY / 1024 / 1024}`,
    join(import.meta.dirname, 'judge-lines.ts'),
  ])
  const python = [join(import.meta.dirname, 'judge-lines.py'), PYTHON, String(MOST_MEMORY)]
  const theirs = withoutPython ? null : judge(t, 'python3', python)
  const both = async (args: readonly string[]): Promise<Verdicts> => {
    const [one, other] = await Promise.all([ours(args), theirs?.(args) ?? null])
    return { ours: one, theirs: other }
  }
  return { both, ours }
}

function judge(t: Test, program: string, args: readonly string[]): Judge {
  let living: Living | null = null
  t.teardown(() => living?.end())
  return async (asked) => {
    living ??= start(program, args)
    const said = await living.ask(asked)
    if (said !== null) return said
    const { err } = await living.end()
    living = null
    return { code: 1, out: '', err: `it ended, or was silent: ${err}` }
  }
}

interface Living {
  /** Null where it has ended, or does not answer. */
  readonly ask: (args: readonly string[]) => Promise<Ran | null>
  readonly end: () => Promise<{ readonly err: string }>
}

function start(program: string, args: readonly string[]): Living {
  const child: ChildProcess = spawn(program, args, { stdio: 'pipe' })
  const { stdin, stdout, stderr } = child
  if (!stdin || !stdout || !stderr) throw new Error(`${program} has no pipes`)
  let err = ''
  stderr.on('data', (text) => {
    err = `${err}${text}`.slice(-4_000)
  })
  stdin.on('error', (error) => {
    err += String(error)
  })
  const closed = once(child, 'close')
  const lines = createInterface({ input: stdout })[Symbol.asyncIterator]()
  const ask = async (asked: readonly string[]): Promise<Ran | null> => {
    stdin.write(`${JSON.stringify(asked)}\n`)
    const timer = setTimeout(() => child.kill('SIGKILL'), PATIENCE_MS)
    const { done, value } = await lines.next()
    clearTimeout(timer)
    return done ? null : JSON.parse(value)
  }
  const end = async () => {
    stdin.end()
    if (child.exitCode === null && child.signalCode === null) await closed
    return { err }
  }
  return { ask, end }
}
