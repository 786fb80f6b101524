import { setTimeout as sleep } from 'node:timers/promises'
import { randomOf } from '../../../siege/attacks/target.ts'
import { connectionFaults, databaseFaults, type Fault, replicaFaults } from '../faults.ts'
import { type Load, load, tally } from '../load.ts'
import { broken, openCalls } from '../oracle.ts'
import { openScope, type Scope } from '../scope.ts'
import { clusterStage, type Stage } from '../stage.ts'
import { storm } from '../storm.ts'
import { under } from '../under.ts'
import { abandoning, flipping } from './callers.ts'
import { type Sample, slopeOf, watching } from './memory.ts'

export interface SoakOptions {
  readonly minutes: number
  /** Calls per second, of all callers. */
  readonly perSecond: number
  /** The number of storms of copies of one proof, at most. */
  readonly rounds: number
  readonly seed: number
}

const CALLERS = 12
/** From the end of a fault to the first call that is served (docs/threats.md#f-41). ms. */
const RESUMES_MS = 5_000
/**
 * The longest that a call may hang, with some room. ms. Not held against what waits for a server that says nothing
 * (docs/threats.md#f-10), nor for a gateway that stands still.
 */
const HANGS_MS = 3_000
/** Within this time the calls of a replica that died are closed (docs/ledger.md#streams). ms. */
const CLOSED_MS = 60_000
/** A longer run is too short to tell a leak from a start. Minutes. */
const JUDGED_MINUTES = 10
const GROWS_MIB_PER_HOUR = 1
const DESCRIPTORS_MORE = 20

/** Runs the soak, prints what it sees, and resolves to whether everything held. */
export async function soak(options: SoakOptions): Promise<boolean> {
  const scope = openScope()
  try {
    return await run(scope, options)
  } finally {
    await scope.close()
  }
}

async function run(scope: Scope, { minutes, perSecond, rounds, seed }: SoakOptions): Promise<boolean> {
  const random = randomOf(seed)
  const until = performance.now() + minutes * 60_000
  const stage = await clusterStage(scope)
  say(`three gateways behind ${stage.door.url}, ${minutes} minutes, ${perSecond} calls/s, --seed ${seed}`)
  const [bot, flipped] = [await stage.enroll('bot'), await stage.enroll('flipped')]
  const pauseMs = (CALLERS * 1_000) / perSecond
  const loads = [...stage.replicas, stage.door].map(({ url }) =>
    load(stage, bot, { url, callers: CALLERS / 4, pauseMs }),
  )
  const flips = flipping(stage, flipped, random)
  const aborts = abandoning(scope, stage, bot, random)
  const { round } = await storm(scope, stage, bot)
  // The first is never killed: its memory is that of the whole run.
  const watch = watching(stage.replicas.slice(0, 1))
  const violations: string[] = []
  const happened = new Map<string, { times: number; slowestMs: number; resumedMs: number }>()
  const faults = [
    ...databaseFaults(stage),
    ...connectionFaults(stage),
    ...replicaFaults(stage.replicas.slice(1), random),
  ]
  let stormed = 0
  let bag: Fault[] = []
  while (performance.now() < until) {
    for (const found of await storms(stage, round, Math.min(3, rounds - stormed))) violations.push(found)
    stormed += Math.min(3, rounds - stormed)
    // Each once, in any order, before one comes again.
    if (bag.length === 0) bag = faults.toSorted(() => random() - 0.5)
    await happen(bag.pop() as Fault, loads, violations, happened)
    await sleep(Math.min(2_000, Math.max(0, until - performance.now())))
  }
  await Promise.all([...loads.map((way) => way.stop()), flips.stop(), aborts.stop()])
  const samples = watch.stop()
  const made = [...loads.flatMap((way) => way.made), ...flips.made]
  say('waiting for the calls of dead gateways to be closed, then reading the whole ledger')
  const open = await openCalls(stage, 2 * CLOSED_MS)
  if (open.length > 0)
    violations.push(
      `${open.length} calls have no outcome, the first is row ${open[0]?.seq} of ${open[0]?.stream}`,
    )
  violations.push(...flips.violations, ...(await broken(stage, made)), ...grown(samples, minutes))
  say(
    report({
      minutes,
      made: tally(made),
      stormed,
      flips: flips.count(),
      aborts: aborts.count(),
      happened,
      samples,
      violations,
    }),
  )
  return violations.length === 0
}

type Happened = Map<string, { times: number; slowestMs: number; resumedMs: number }>

async function happen(
  fault: Fault,
  loads: readonly Load[],
  violations: string[],
  happened: Happened,
): Promise<void> {
  const name = `${fault.id} ${fault.what}`
  const { slowestMs, resumedMs, meanwhile } = await under(fault, loads)
  const before = happened.get(name) ?? { times: 0, slowestMs: 0, resumedMs: 0 }
  happened.set(name, {
    times: before.times + 1,
    slowestMs: Math.max(before.slowestMs, slowestMs),
    resumedMs: Math.max(before.resumedMs, resumedMs),
  })
  say(
    `${name}: ${tally(meanwhile)}, slowest ${Math.round(slowestMs)} ms, served again after ${Math.round(resumedMs)} ms`,
  )
  if (resumedMs > RESUMES_MS) violations.push(`${name}: served again only after ${Math.round(resumedMs)} ms`)
  if (slowestMs > HANGS_MS && !fault.isSilent && fault.id !== 'F-25')
    violations.push(`${name}: a call hung for ${Math.round(slowestMs)} ms`)
  const odd = fault.losesConnections ? [] : meanwhile.filter(({ status }) => status !== 200 && status !== 503)
  if (odd.length > 0) violations.push(`${name}: answers other than 200 and 503: ${tally(odd)}`)
}

/** Of the copies of each proof exactly one passes. */
async function storms(
  stage: Stage,
  round: Awaited<ReturnType<typeof storm>>['round'],
  count: number,
): Promise<readonly string[]> {
  const wrong: string[] = []
  for (let n = 0; n < count; n += 1) {
    const { model, passed, replayed, unserved, told } = await round()
    const reached = stage.provider.reached.filter((one) => one.model === model).length
    if (passed !== 1 || reached !== 1)
      wrong.push(
        `D-17: ${passed} of 100 copies passed, ${replayed} were refused, ${unserved} neither (${told.join(', ')}), ${reached} reached the provider`,
      )
  }
  return wrong
}

function grown(samples: readonly Sample[], minutes: number): readonly string[] {
  const [first, last] = [samples[Math.floor(samples.length / 4)], samples.at(-1)]
  if (!first || !last || minutes < JUDGED_MINUTES) return []
  const heap = slopeOf(samples)
  return [
    ...(heap > GROWS_MIB_PER_HOUR ? [`memory: the heap grows by ${heap.toFixed(1)} MiB an hour`] : []),
    ...(last.descriptors > first.descriptors + DESCRIPTORS_MORE
      ? [`descriptors: ${first.descriptors}, and ${last.descriptors} at the end`]
      : []),
  ]
}

interface Figures {
  readonly minutes: number
  readonly made: string
  readonly stormed: number
  readonly flips: number
  readonly aborts: number
  readonly happened: Happened
  readonly samples: readonly Sample[]
  readonly violations: readonly string[]
}

function report({ minutes, made, stormed, flips, aborts, happened, samples, violations }: Figures): string {
  const mib = (bytes: number): string => (bytes / 1_048_576).toFixed(0)
  const [first, last] = [samples[0], samples.at(-1)]
  const slope =
    minutes < JUDGED_MINUTES ? '' : ` (${slopeOf(samples).toFixed(1)} MiB an hour behind the first quarter)`
  return [
    '',
    `calls            ${made}`,
    `storms           ${stormed} of 100 copies of one proof; ${flips} revocations; ${aborts} callers hung up`,
    ...[...happened].map(
      ([name, of]) =>
        `${String(of.times).padStart(4)} x  ${name}: slowest ${Math.round(of.slowestMs)} ms, served again within ${Math.round(of.resumedMs)} ms`,
    ),
    first && last
      ? `memory           heap ${mib(first.heap)} to ${mib(last.heap)} MiB${slope}, resident ${mib(first.resident)} to ${mib(last.resident)} MiB, descriptors ${first.descriptors} to ${last.descriptors}`
      : 'memory           not seen',
    violations.length === 0 ? 'held: nothing lost, replayed or let in' : `BROKEN ${violations.length} times:`,
    ...violations.slice(0, 40).map((one) => `  ${one}`),
  ].join('\n')
}

const say = (text: string): void => void process.stdout.write(`${text}\n`)
