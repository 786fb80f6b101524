import { writeFile } from 'node:fs/promises'
import { availableParallelism, cpus, loadavg } from 'node:os'
import { join } from 'node:path'
import { measureLedger, measureToldEvents } from './alone/measure.ts'
import { isChosen } from './chosen.ts'
import { measureCopies } from './copies.ts'
import { measureFault } from './fault.ts'
import { measureDashboard } from './filled/dashboard.ts'
import { measureProofs } from './filled/proofs.ts'
import { type Children, coresOf } from './ground/children.ts'
import { startForCache } from './ground/gateway.ts'
import { layGround } from './ground/ground.ts'
import { findPeers } from './ground/peers/peers.ts'
import { openFilesLimit } from './ground/proc.ts'
import { inScratch } from './ground/scratch.ts'
import { measureLimits } from './limits.ts'
import { openGenerator } from './load/generator.ts'
import { measurePostgres, measureServerRoom } from './postgres.ts'
import { measurePostgresCalls } from './postgres-calls.ts'
import { measureRehearsals } from './rehearsals.ts'
import { report } from './report/report.ts'
import { type Conditions, medianEs256, medianRows, type Results, worsePoints } from './results.ts'
import { type Round, runRound } from './run.ts'
import { measureFullStart } from './start-up.ts'
import { measureStreams } from './streams/measure.ts'
import type { Bench, Plan } from './workbench.ts'

export interface BenchOptions extends Plan {
  /** The checkout of another gateway, to be measured in turn with this one. */
  readonly against: string | undefined
  /** The parent of the run's directory. Default: the system's place for temporary files. */
  readonly parent: string | undefined
  readonly jsonFile: string | undefined
}

/** The files that a process opens beside its connections. */
const SPARE_FILES = 500

/** Runs the benchmark and prints its report. Whatever happens, its processes end and its directory goes. */
export async function bench(options: BenchOptions): Promise<void> {
  const files = openFilesLimit()
  if (options.idle + SPARE_FILES > files) {
    throw new Error(
      `--idle ${options.idle} needs ${options.idle + SPARE_FILES} open files, the limit is ${files}: raise it with ulimit -n`,
    )
  }
  const conditions = conditionsOf(options)
  await inScratch({ name: 'bench', parent: options.parent }, async ({ directory, children }) => {
    const results = await measure(options, conditions, directory, children)
    process.stdout.write(report(results))
    if (options.jsonFile) await writeFile(options.jsonFile, `${JSON.stringify(results, null, 2)}\n`)
    const worse = worsePoints(results)
    if (worse.length > 0) throw new Error(`more than a tenth worse: ${worse.join('; ')}`)
  })
}

async function measure(
  options: BenchOptions,
  conditions: Conditions,
  directory: string,
  children: Children,
): Promise<Results> {
  const { seconds, rounds } = options
  const cores = coresOf(conditions.cores)
  const upstream = await children.start({
    name: 'upstream',
    command: process.execPath,
    args: [join(import.meta.dirname, 'ground/upstream.ts')],
    core: cores.others,
    ready: 'line',
    ipc: true,
  })
  const ground = await layGround(directory, upstream.port)
  const generator = await openGenerator(children, cores.others)
  const bench: Bench = { plan: options, ground, children, cores, upstream, generator, say }
  await (await children.start({ ...(await startForCache(ground)), core: cores.measured })).stop()
  const { pairs, costs, other } = await measureCopies(bench, options.against)
  const measured: Round[] = []
  for (let round = 1; round <= rounds; round += 1) {
    if (rounds > 1) say(`round ${round} of ${rounds}`)
    measured.push(await runRound(bench))
  }
  const ledger = isChosen(options, 'ledger') ? await measureLedger(children, directory, seconds) : null
  const postgres = await measurePostgresCalls(bench)
  return {
    conditions,
    rows: medianRows(measured),
    startUp: measured.at(-1)?.startUp ?? null,
    fullStart: await measureFullStart(bench),
    ledger: ledger?.points ?? [],
    // Before the other rows that come into the same database: these are of no history.
    rehearsals: await measureRehearsals(bench),
    dashboards: await measureDashboard(bench),
    proofs: await measureProofs(bench),
    streams: await measureStreams(bench, options.against),
    postgres: await measurePostgres(bench),
    postgresRoom: await measureServerRoom(bench),
    postgresCalls: postgres.calls,
    postgresIdle: postgres.idle,
    limits: await measureLimits(bench),
    callCost: ledger?.call ?? null,
    toldEvents: isChosen(options, 'gateway-translating/events') ? await measureToldEvents(bench) : [],
    es256: medianEs256(measured),
    fault: await measureFault(bench),
    pairs,
    costs,
    other,
  }
}

/** Progress goes to standard error, so that the report can be redirected. */
const say = (line: string): void => void process.stderr.write(`${line}\n`)

function conditionsOf({ warmupS, seconds, rounds, peers }: BenchOptions): Conditions {
  const cores = availableParallelism()
  return {
    at: new Date().toISOString().slice(0, 16).replace('T', ' '),
    node: process.versions.node,
    processor: cpus()[0]?.model ?? 'unknown',
    cores,
    pinned: coresOf(cores).measured !== null,
    warmupS,
    seconds,
    rounds,
    loadBefore: loadavg()[0] ?? 0,
    peers: findPeers(peers),
  }
}
