import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { parse } from 'yaml'
import { NODE_COMPILE_CACHE } from '../run.ts'

const SUITE = join(import.meta.dirname, '../../../node_modules/@modelcontextprotocol/conformance')

/** A revision of the protocol whose requirements the suite knows. */
export type Revision = '2025-11-25' | '2026-07-28'

export interface SuiteOptions {
  /** The MCP endpoint to test. */
  readonly url: string
  readonly requirements: Revision
  /** Added to PATH, which is all that the suite has of our environment. */
  readonly env?: Readonly<Record<string, string>>
  /** A module to load first, as `node --import` takes it. */
  readonly preload?: string
}

/** What one scenario found. One that broke off has failed, without a check. */
export interface Verdict {
  readonly passed: number
  readonly failed: number
  /**
   * The statuses by check id, in the order found: a scenario may check one thing several times. Without INFO.
   */
  readonly checks: Readonly<Record<string, readonly string[]>>
  /** What did not pass, as `id: status, reason`. */
  readonly faults: readonly string[]
}

interface Check {
  readonly id: string
  readonly status: 'SUCCESS' | 'FAILURE' | 'WARNING' | 'SKIPPED' | 'INFO'
  readonly errorMessage?: string
}

/**
 * Runs the official conformance suite against a server, as a process of its own: every scenario of the
 * revision, those that are not scored too. Gives each one's verdict by its name. Throws with the suite's
 * output where it found none.
 */
export async function runSuite(options: SuiteOptions): Promise<ReadonlyMap<string, Verdict>> {
  const directory = await mkdtemp(join(tmpdir(), 'sallyport-suite-'))
  try {
    const output = await run(options, directory)
    const verdicts = await read(directory)
    if (verdicts.size === 0) throw new Error(`the suite found nothing: ${output}`)
    return verdicts
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

/**
 * The names of the scenarios by which a server is measured; the others are extensions, and what came later.
 */
export async function scoredScenarios(revision: Revision): Promise<readonly string[]> {
  return parse(await readFile(join(SUITE, 'requirements', `${revision}.yaml`), 'utf8')).server
}

async function run({ url, requirements, env, preload }: SuiteOptions, directory: string): Promise<string> {
  const before = preload === undefined ? [] : ['--import', preload]
  const suite = [join(SUITE, 'dist/index.js'), 'server', '--url', url]
  const child = spawn(
    process.execPath,
    [...before, ...suite, '--requirements', requirements, '-o', directory],
    {
      env: { PATH: process.env.PATH ?? '', NODE_COMPILE_CACHE, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  )
  const kill = (): void => void child.kill('SIGKILL')
  process.once('exit', kill)
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)])
  process.off('exit', kill)
  return out + err
}

// One directory for each scenario: `server-<scenario>-<time>`, with `checks.json` in it.
async function read(directory: string): Promise<ReadonlyMap<string, Verdict>> {
  const verdicts = new Map<string, Verdict>()
  for (const name of (await readdir(directory)).sort()) {
    const scenario = /^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$/.exec(name)?.[1]
    if (scenario === undefined) throw new Error(`the suite left something unknown behind: ${name}`)
    verdicts.set(scenario, await verdictIn(join(directory, name, 'checks.json')))
  }
  return verdicts
}

async function verdictIn(path: string): Promise<Verdict> {
  // A scenario that throws leaves its directory empty.
  if (!existsSync(path)) return { passed: 0, failed: 1, checks: {}, faults: ['it broke off'] }
  return verdictOf(JSON.parse(await readFile(path, 'utf8')))
}

function verdictOf(all: readonly Check[]): Verdict {
  const checks: Record<string, string[]> = {}
  const faults: string[] = []
  for (const { id, status, errorMessage } of all) {
    if (status === 'INFO') continue
    checks[id] = [...(checks[id] ?? []), status]
    if (status !== 'SUCCESS') faults.push(`${id}: ${status}, ${errorMessage ?? 'without a reason'}`)
  }
  const count = (wanted: Check['status']): number => all.filter(({ status }) => status === wanted).length
  return { passed: count('SUCCESS'), failed: count('FAILURE'), checks, faults }
}
