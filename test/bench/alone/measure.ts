import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Children } from '../ground/children.ts'
import type { Bench } from '../workbench.ts'
import type { Es256 } from './es256.ts'
import type { LedgerAlone } from './ledger.ts'
import type { PostgresPart } from './ledger-postgres.ts'
import type { LimitsAlone } from './limits.ts'
import type { PostgresRoom } from './room-postgres.ts'
import type { ToldEvents } from './told-events.ts'
import type { TreeAlone } from './tree.ts'

/** Runs ledger.ts on a database of its own, on both cores: the writer has a thread of its own. */
export async function measureLedger(
  children: Children,
  directory: string,
  seconds: number,
): Promise<LedgerAlone> {
  const run = { name: 'ledger', args: [directory, String(seconds)], core: null, limitS: seconds * 8 + 60 }
  return (await runAlone(children, directory, run)) as LedgerAlone
}

/** Runs es256.ts on the core of what is measured. */
export async function measureEs256(
  children: Children,
  directory: string,
  core: number | null,
  seconds: number,
): Promise<Es256> {
  const run = { name: 'es256', args: [String(seconds)], core, limitS: seconds * 4 + 30 }
  return (await runAlone(children, directory, run)) as Es256
}

/** Runs told-events.ts on the core of what is measured. */
export async function measureToldEvents({
  children,
  ground,
  cores,
  plan,
}: Bench): Promise<readonly ToldEvents[]> {
  const { seconds } = plan
  const run = { name: 'told-events', args: [String(seconds)], core: cores.measured, limitS: seconds * 2 + 30 }
  return (await runAlone(children, ground.directory, run)) as readonly ToldEvents[]
}

/** Runs tree.ts in a directory of its own. */
export async function measureTree(
  children: Children,
  { directory, leaves }: { readonly directory: string; readonly leaves: number },
): Promise<TreeAlone> {
  const run = { name: 'tree', args: [directory, String(leaves)], core: null, limitS: 120 + leaves / 10_000 }
  return (await runAlone(children, directory, run)) as TreeAlone
}

/** Runs fill.ts on a database that nobody else writes. As fast as it goes: it is no measurement. */
export async function fillLedger(
  children: Children,
  { directory, file, rows }: { readonly directory: string; readonly file: string; readonly rows: number },
): Promise<void> {
  // The slowest disk that a run is of use on.
  const limitS = 60 + rows / 2_000
  await runAlone(children, directory, { name: 'fill', args: [file, String(rows)], core: null, limitS })
}

/** Runs fill-history.ts on a database that a gateway has begun, and that nobody else writes. No measurement either. */
export async function fillHistory(
  children: Children,
  {
    directory,
    url,
    decisions,
  }: { readonly directory: string; readonly url: string; readonly decisions: number },
): Promise<void> {
  const limitS = 120 + decisions / 1_000
  await runAlone(children, directory, {
    name: 'fill-history',
    args: [url, String(decisions)],
    core: null,
    limitS,
  })
}

/** Runs ledger-postgres.ts, as one of several processes at once. `args`: its own. */
export async function measurePostgresPart(
  { children, ground, plan }: Pick<Bench, 'children' | 'ground' | 'plan'>,
  args: readonly string[],
  process: number,
): Promise<PostgresPart> {
  const run = { name: 'ledger-postgres', args, core: null, limitS: plan.seconds + 60, process }
  return (await runAlone(children, ground.directory, run)) as PostgresPart
}

/** Runs room-postgres.ts on a database that may hold rows. */
export async function measurePostgresRoom(
  { children, ground }: Pick<Bench, 'children' | 'ground'>,
  url: string,
): Promise<PostgresRoom> {
  const run = { name: 'room-postgres', args: [url], core: null, limitS: 120 }
  return (await runAlone(children, ground.directory, run)) as PostgresRoom
}

/** Runs limits.ts on a database that may hold rows, on both cores: a writer on SQLite has a thread of its own. */
export async function measureLimitsAlone(
  { children, ground }: Pick<Bench, 'children' | 'ground'>,
  url: string,
): Promise<LimitsAlone> {
  const run = { name: 'limits', args: [url], core: null, limitS: 300 }
  return (await runAlone(children, ground.directory, run)) as LimitsAlone
}

interface Alone {
  /** The name of the program in this directory. */
  readonly name: string
  readonly args: readonly string[]
  readonly core: number | null
  readonly limitS: number
  /** Which of several that run at once. Each has its log. */
  readonly process?: number
}

/**
 * Runs a program that measures something without a server and prints one line of JSON. Resolves with that.
 */
async function runAlone(
  children: Children,
  directory: string,
  { name: program, args, core, limitS, process: which = 0 }: Alone,
): Promise<unknown> {
  const name = which === 0 ? program : `${program}-${which}`
  const { process: child } = await children.start({
    name,
    command: process.execPath,
    args: [join(import.meta.dirname, `${program}.ts`), ...args],
    core,
  })
  if (child.exitCode === null) await once(child, 'exit', { signal: AbortSignal.timeout(limitS * 1_000) })
  const log = await readFile(join(directory, `${name}.log`), 'utf8')
  if (child.exitCode !== 0) throw new Error(`${name} could not be measured:\n${log.slice(-2_000)}`)
  return JSON.parse(log)
}
