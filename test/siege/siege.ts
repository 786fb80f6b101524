import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { inScratch } from '../bench/ground/scratch.ts'
import { ATTACK_NAMES, type AttackName } from './attacks/attacks.ts'
import { randomOf } from './attacks/target.ts'
import type { Wish } from './callers.ts'
import { commandOf } from './command.ts'
import { askCallers, type Sample, sample } from './figures.ts'
import { inspectLedger } from './ledger.ts'
import { PROGRESS_HEAD, progress, report } from './report.ts'
import { schedule } from './schedule.ts'
import { type Stage, setStage } from './stage.ts'
import { ARCHIVED_AFTER_S, type Found, judge } from './verdict.ts'

export interface SiegeOptions {
  readonly seconds: number
  /** Honest calls per second, of all kinds. */
  readonly perSecond: number
  /** Only these attacks. Empty: all. */
  readonly only: readonly AttackName[]
  readonly seed: number
  /** The bound of the p99 of each kind of honest call. ms. */
  readonly p99Ms: number
  readonly parent: string | undefined
  readonly jsonFile: string | undefined
}

/** The rows of each day before; of a short siege, in which nothing is archived, fewer. */
const [OLD_ROWS, FEW_OLD_ROWS] = [20_000, 512]

/** The interval of samples. s. */
const SAMPLE_S = 10

/**
 * Lays siege to a gateway of its own, prints what it sees, and resolves to whether everything held. Whatever happens, its
 * processes end and its directory goes.
 */
export async function siege(options: SiegeOptions): Promise<boolean> {
  return inScratch({ name: 'siege', parent: options.parent }, async ({ directory, children }) => {
    const isShort = options.seconds < ARCHIVED_AFTER_S
    const stage = await setStage(directory, children, isShort ? FEW_OLD_ROWS : OLD_ROWS)
    const found = await run(stage, options, directory)
    const judged = judge(found, options.p99Ms)
    process.stdout.write(report(found, judged))
    if (options.jsonFile)
      await writeFile(options.jsonFile, `${JSON.stringify({ ...found, judged }, null, 2)}\n`)
    return judged.every(({ holds }) => holds !== false)
  })
}

async function run(stage: Stage, options: SiegeOptions, directory: string): Promise<Found> {
  const { seconds, seed, perSecond, only } = options
  const log = join(directory, 'answers.txt')
  const attackers = commandOf(stage, seed)
  const ended = new Promise<never>((_, reject) => {
    const gone = (code: number | null): void => reject(new Error(`the gateway ended by itself with ${code}`))
    stage.gateway.process.once('exit', gone)
  })
  ended.catch(() => {})
  stage.callers.process.send({ ...stage.begin, perSecond, log } satisfies Wish)
  const turns = schedule(only.length > 0 ? only : ATTACK_NAMES, seconds, randomOf(seed))
  const samples: Sample[] = []
  const begunAt = performance.now()
  const now = (): number => (performance.now() - begunAt) / 1_000
  const until = (at: number): Promise<void> => pause(Math.max(0, (at - now()) * 1_000))
  const attacking = Promise.all(
    turns.map(async ({ attack, from, to }) => {
      await until(from)
      const end = attackers.begin(attack)
      await until(to)
      await end()
    }),
  )
  const sampling = async (): Promise<void> => {
    process.stderr.write(`${PROGRESS_HEAD}\n`)
    for (let at = Math.min(SAMPLE_S, seconds); ; at = Math.min(at + SAMPLE_S, seconds)) {
      await until(at)
      const under = turns
        .filter(({ from, to }) => from < at && to > at - SAMPLE_S)
        .map(({ attack }) => attack)
      const taken = await sample(stage, at, [...new Set(under)])
      samples.push(taken)
      process.stderr.write(`${progress(taken)}\n`)
      if (at >= seconds) return
    }
  }
  await Promise.race([Promise.all([attacking, sampling()]), attackers.failed, ended])
  const { kinds } = await askCallers(stage, 'end')
  await stage.attackers.stop()
  await stage.gateway.stop()
  const ledger = await inspectLedger(stage.databaseFile, log, stage.archive)
  return { seconds, seed, samples, kinds: kinds ?? {}, tries: attackers.tries, ledger }
}
