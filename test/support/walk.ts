import { Session } from 'node:inspector/promises'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = join(import.meta.dirname, '../..')
const OURS = /^(proxy|plugins|db|certs)\//
/** Background tasks run in between: a file that one of so many calls does without is not on the way. */
const CALLS = 5

/** The files of the service that one call goes through, and how many of their functions. */
export interface Walk {
  readonly files: readonly string[]
  readonly functions: number
}

/**
 * Makes the same call several times and returns the source files, by path, of which some function ran in
 * every one of them. Counts this process's main thread: neither the ledger's thread nor what only runs at
 * start.
 */
export async function walkOf(call: () => Promise<unknown>): Promise<Walk> {
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
  await call()
  let common: Map<string, number> | null = null
  for (let made = 0; made < CALLS; made++) {
    await session.post('Profiler.takePreciseCoverage')
    await call()
    const { result } = await session.post('Profiler.takePreciseCoverage')
    common = both(common, ran(result))
  }
  await session.post('Profiler.stopPreciseCoverage')
  session.disconnect()
  const walked = [...(common ?? [])]
  return {
    files: walked.map(([file]) => file).sort(),
    functions: walked.reduce((sum, [, functions]) => sum + functions, 0),
  }
}

interface Script {
  readonly url: string
  readonly functions: readonly {
    readonly functionName: string
    readonly ranges: readonly { count: number }[]
  }[]
}

function ran(scripts: readonly Script[]): Map<string, number> {
  const files = new Map<string, number>()
  for (const { url, functions } of scripts) {
    if (!url.startsWith('file:')) continue
    const file = relative(ROOT, fileURLToPath(url))
    const called = functions.filter(({ ranges }) => (ranges[0]?.count ?? 0) > 0).length
    if (OURS.test(file) && called > 0) files.set(file, called)
  }
  return files
}

function both(before: Map<string, number> | null, now: Map<string, number>): Map<string, number> {
  if (before === null) return now
  return new Map(
    [...before].flatMap(([file, functions]) => {
      const again = now.get(file)
      return again === undefined ? [] : [[file, Math.min(functions, again)] as const]
    }),
  )
}
