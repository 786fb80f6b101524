import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'
import type { Ran } from '../../run.ts'

/** The most memory that a case may take. Bytes; of Python all of its address space. */
const MOST_MEMORY = 768 * 1024 * 1024
/** The longest that a case may take on a machine that does other things too. ms. */
const PATIENCE_MS = 60_000

/** The JSON of a value without what a reader of lines takes for the end of one. */
export const jsonLine = (value: unknown): string =>
  JSON.stringify(value).replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029')

/** Has a verifier judge a case, by the arguments of its command. */
export type Judge = (args: readonly string[]) => Promise<Ran>

/** `sallyport verify`, or the verb that another module exports. */
export const ourJudge = (t: Test, module?: string, cwd?: string): Judge =>
  judge(
    t,
    process.execPath,
    [
      `--max-old-space-size=${MOST_MEMORY / 1024 / 1024}`,
      join(import.meta.dirname, 'judge-lines.ts'),
      ...(module === undefined ? [] : [module]),
    ],
    cwd,
  )

/** The verifier in Python, which is at a path. */
export const pythonJudge = (t: Test, path: string, cwd?: string): Judge =>
  judge(t, 'python3', [join(import.meta.dirname, 'judge-lines.py'), path, String(MOST_MEMORY)], cwd)

/**
 * Makes a verifier that lives in one process, so that a case takes milliseconds. One that ends, or says nothing for a minute, is
 * exit code 1, and the next case gets another process.
 */
function judge(t: Test, program: string, args: readonly string[], cwd?: string): Judge {
  let living: Living | null = null
  t.teardown(() => living?.end())
  return async (asked) => {
    living ??= start(program, args, cwd)
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

function start(program: string, args: readonly string[], cwd?: string): Living {
  const child: ChildProcess = spawn(program, args, { stdio: 'pipe', cwd })
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
    stdin.write(`${jsonLine(asked)}\n`)
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
