import { spawn } from 'node:child_process'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '../..')

/** Has Node import first what kills the process at the nth write from when the file `at`, with n in it, is there. */
export const killingAt = (at: string) => ({
  args: ['--import', join(import.meta.dirname, 'killing.ts')],
  env: { KILL_AT: at },
})

/** Runs a verb of the command line, which may be killed. Resolves with its exit code, null if it was. */
export async function killedVerb(args: readonly string[], env: Record<string, string>, at: string) {
  const killing = killingAt(at)
  const child = spawn(process.execPath, [...killing.args, join(ROOT, 'scripts/sallyport.ts'), ...args], {
    cwd: ROOT,
    env: { PATH: process.env.PATH ?? '', ...env, ...killing.env },
    stdio: 'ignore',
  })
  return new Promise<number | null>((resolve) => child.once('close', resolve))
}
