import { spawn, spawnSync } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { NODE_COMPILE_CACHE } from './run.ts'

/** What happens to one call of the system: it fails with that error, or the process is killed there. */
export type Fault = 'KILL' | 'EIO' | 'ENOSPC'

/** A program that ran with one fault. */
export interface Faulted {
  /** False: it made fewer calls than that, and ran as if nothing had been. */
  readonly injected: boolean
  readonly code: number | null
  readonly out: string
}

/** Why strace cannot be used here; false where it can. */
export function withoutStrace(): string | false {
  const { error, status } = spawnSync('strace', ['-f', '-qq', '-o', '/dev/null', 'true'])
  return error === undefined && status === 0 ? false : 'strace is not here, or may not trace'
}

/**
 * Runs a TypeScript program, whose `nth` call of `call` in each of its threads meets a fault. Writes what strace saw
 * to `log`.
 */
export async function runWithFault(
  program: readonly string[],
  { call, fault, nth, log }: { call: string; fault: Fault; nth: number; log: string },
): Promise<Faulted> {
  const what = fault === 'KILL' ? 'signal=KILL' : `error=${fault}`
  // Without --seccomp-bpf, quicker as it is: a signal is then sent at the first call only.
  const traced = ['-f', '-qq', '-o', log, '-e', `trace=${call}`, '-e', `inject=${call}:${what}:when=${nth}`]
  const child = spawn('strace', [...traced, process.execPath, ...program], {
    env: { PATH: process.env.PATH ?? '', NODE_COMPILE_CACHE },
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve))
  const [out, code] = await Promise.all([text(child.stdout), ended])
  const seen = await readFile(log, 'utf8')
  return { injected: / \(INJECTED\)$|killed by SIGKILL/m.test(seen) || code === null, code, out }
}
