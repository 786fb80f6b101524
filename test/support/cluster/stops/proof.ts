import { loadavg } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { openDatabase } from '../../../../db/engine.ts'
import { inspectRows } from '../../../../db/ledger/verify/inspect.ts'
import { randomOf } from '../../../siege/attacks/target.ts'
import { allRows } from '../../db/history.ts'
import { tally } from '../load.ts'
import { openCalls, orderedRows } from '../oracle.ts'
import { openScope, type Scope } from '../scope.ts'
import { clusterStage, type Stage } from '../stage.ts'
import { type JudgedStops, judgeStops, quantile } from './judge.ts'
import { stopStorm } from './storm.ts'

export interface StopProofOptions {
  readonly minutes: number
  readonly callers: number
  /** Short calls per second, of all callers. */
  readonly perSecond: number
  readonly seed: number
}

/** The bound of the 99th percentile of cutting. ms. */
const CUT_P99_MS = 1_000
const OUTCOMES_MS = 60_000

/** Runs the proof of stops, prints what it sees, and resolves to whether everything held. */
export async function proveStops(options: StopProofOptions): Promise<boolean> {
  const scope = openScope()
  try {
    return await run(scope, options)
  } finally {
    await scope.close()
  }
}

async function run(scope: Scope, { minutes, callers, perSecond, seed }: StopProofOptions): Promise<boolean> {
  const stage = await clusterStage(scope)
  say(`three gateways, ${callers} callers, ${perSecond} calls/s, ${minutes} minutes, --seed ${seed}`)
  const storm = await stopStorm(stage, { callers, perSecond, random: randomOf(seed) })
  const until = performance.now() + minutes * 60_000
  while (performance.now() < until) {
    await sleep(Math.min(30_000, Math.max(0, until - performance.now())))
    say(`${storm.begun()} stops, ${storm.made().length} calls, load ${loadavg()[0]?.toFixed(1)}`)
  }
  await storm.stop()
  say(`short calls: ${tally(storm.made())}`)
  const refused = [...storm.refused].map(([reason, times]) => `${reason} ${times} times`)
  if (refused.length > 0)
    say(`changes of stops that were answered 503, and made again: ${refused.join(', ')}`)
  say('reading the whole ledger')
  const { judged, findings } = await judgedLedger(stage)
  const p99 = quantile(judged.cuts, 0.99)
  const isLate = p99 === null || p99 > CUT_P99_MS
  const violations = [
    ...judged.violations,
    ...findings,
    ...(isLate ? [`cutting took ${p99} ms at p99, and ${CUT_P99_MS} are its bound`] : []),
  ]
  say(report(judged, violations))
  return violations.length === 0
}

/** Judges the rows of a run that has ended, and has the verifier do so. */
export async function judgedLedger(
  stage: Stage,
): Promise<{ readonly judged: JudgedStops; readonly findings: readonly string[] }> {
  const open = await openCalls(stage, OUTCOMES_MS)
  const judged = judgeStops(await orderedRows(stage))
  const database = await openDatabase(stage.ledgerUrl)
  const { verdict, authority, findings } = await inspectRows(allRows(database), { authority: true })
  await database.close()
  return {
    judged,
    findings: [
      ...findings,
      ...(verdict.ok ? [] : ['the ledger does not verify']),
      ...(authority?.problems ?? ['no decision was judged again']).map((problem) => JSON.stringify(problem)),
      ...(open.length === 0 ? [] : [`${open.length} calls have no outcome`]),
    ],
  }
}

function report(
  { begun, ended, allowed, refused, cuts }: JudgedStops,
  violations: readonly string[],
): string {
  const ms = (part: number): string => `${Math.round(quantile(cuts, part) ?? 0)} ms`
  return [
    '',
    `by the ledger    ${begun} stops begun, ${ended} ended; ${allowed} calls allowed, ${refused} refused as stopped`,
    `cut under way    ${cuts.length} calls; p50 ${ms(0.5)}, p99 ${ms(0.99)}, longest ${ms(1)}`,
    violations.length === 0
      ? 'held: no call was allowed behind a stop of its scope'
      : `BROKEN ${violations.length} times:`,
    ...violations.slice(0, 40).map((one) => `  ${one}`),
  ].join('\n')
}

const say = (text: string): void => void process.stdout.write(`${text}\n`)
