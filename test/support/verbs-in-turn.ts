// Verbs of the command line in one process, in turn: most of what a short verb costs is starting Node and loading it.
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Test } from 'tap'
import { sallyport as alone, NODE_COMPILE_CACHE, type Ran } from './run.ts'

/** To the process (verb-process.ts): a command line, and its whole environment. */
export interface VerbToRun {
  readonly args: readonly string[]
  readonly env: Readonly<Record<string, string>>
}

/** The time for the process to end by itself when no verb is left. ms. */
const PATIENCE_MS = 15_000

const PROCESS = join(import.meta.dirname, 'verb-process.ts')
const ROOT = join(import.meta.dirname, '../..')

/**
 * Makes a function that runs a command line as `sallyport` of run.ts does, in a process that the test's other command lines
 * have too. One with standard input has its own, and one whose output has no end. A verb that ends the process has its exit
 * code, and the next one gets another process. Fails the test if the process does not end by itself: a verb has left
 * something open.
 */
export function verbsInTurn(t: Test): typeof alone {
  let living: ChildProcess | null = null
  let last: Promise<unknown> = Promise.resolve()
  t.teardown(async () => {
    if (!living) return
    const ended = once(living, 'exit')
    living.disconnect()
    const timer = setTimeout(() => living?.kill('SIGKILL'), PATIENCE_MS)
    const [code] = await ended
    clearTimeout(timer)
    if (code !== 0) t.fail('a verb has left something open in its process')
  })
  const run = async (work: VerbToRun): Promise<Ran> => {
    living ??= started()
    const child = living
    const { promise, resolve } = Promise.withResolvers<Ran>()
    const ended = (code: number | null): void => {
      living = null
      resolve({ code, out: '', err: 'the process ended' })
    }
    child.once('exit', ended)
    child.once('message', (ran: Ran) => resolve(ran))
    child.send(work)
    const ran = await promise
    child.off('exit', ended)
    return ran
  }
  function sallyport(args: readonly string[], env: Record<string, string> = {}, input = ''): Promise<Ran> {
    if (input !== '' || isExport(args)) return alone(args, env, input)
    const ran = last.then(() =>
      run({ args, env: { PATH: process.env.PATH ?? '', NODE_COMPILE_CACHE, ...env } }),
    )
    last = ran
    return ran
  }
  return sallyport
}

const isExport = ([verb, ...args]: readonly string[]): boolean =>
  verb === 'export-audit' && !args.includes('--out')

function started(): ChildProcess {
  const env = { PATH: process.env.PATH ?? '', NODE_COMPILE_CACHE }
  return fork(PROCESS, { cwd: ROOT, env, execArgv: [], stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
}
