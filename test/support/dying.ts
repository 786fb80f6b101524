import fs from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'

/** Has each call of these fail from the nth on, as if the process were killed there. Returns how many there were. */
export async function dyingAt(
  nth: number,
  work: () => Promise<unknown>,
): Promise<{ readonly calls: number }> {
  const names = ['rename', 'rm', 'rmdir', 'unlink', 'mkdir', 'open'] as const
  const real = names.map((name) => fs[name])
  let calls = 0
  for (const [at, name] of names.entries()) {
    const call = real[at] as (...args: unknown[]) => Promise<unknown>
    Object.assign(fs, {
      [name]: (...args: unknown[]) => {
        // Opened to be read, or synced.
        if (name === 'open' && args[1] !== 'wx') return call(...args)
        calls += 1
        return calls >= nth ? Promise.reject(new Error('killed')) : call(...args)
      },
    })
  }
  syncBuiltinESMExports()
  try {
    await work().catch((error: unknown) => {
      if (!String(error).includes('killed')) throw error
    })
  } finally {
    for (const [at, name] of names.entries()) Object.assign(fs, { [name]: real[at] })
    syncBuiltinESMExports()
  }
  return { calls }
}
