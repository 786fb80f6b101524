// Measures what limits take of a call: a decision and an outcome each, 64 callers, on limits that all of them share; and the
// refusal of a call whose limit is known to be used up. Usage: node limits.ts URL
import { openDatabase } from '../../../db/engine.ts'
import { reservedDetail, settledDetail } from '../../../db/ledger/meters/detail.ts'
import type { MeterReservation } from '../../../db/ledger/meters/meter-book.ts'
import { type Ledger, openLedger } from '../../../db/ledger/record/ledger.ts'
import type { CallLimit } from '../../../db/limits/limit.ts'
import type { Principal } from '../../../plugins/facts.ts'
import { UsageSamples } from '../../../plugins/limits/estimate.ts'
import { KnownFull } from '../../../plugins/limits/known-full.ts'
import { callLimits } from '../../../plugins/limits/limits.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { countedWay } from '../../support/db/postgres/turns.ts'
import { medianOf } from '../median.ts'
import { decisionOf, outcomeOf } from './call.ts'
import { JUDGING } from './call-cost.ts'

/** The cost of the record of a call to which so many limits apply. */
export interface LimitsPoint {
  readonly limits: number
  /** Processor time of a call: two rows, caller and writer together; PostgreSQL's is its client's alone. µs. */
  readonly cpuUs: number
  /** The time until its decision is committed, among 64 callers. µs. */
  readonly p50: number
  /** Round trips of a commit of one caller. Null: the database is a file, or its server has no socket here. */
  readonly roundTrips: number | null
}

/** The answer, one line of JSON on standard output. */
export interface LimitsAlone {
  readonly points: readonly LimitsPoint[]
  /** Processor time of the refusal of a call whose limit is known to be used up. µs. */
  readonly knownFullUs: number
}

const LIMITS = [0, 1, 4]
const [CALLS, CALLERS, ROUNDS] = [4_000, 64, 7]
const [REFUSALS, COUNTED] = [100_000, 50]
const CALLER = { id: 'acme::bench', revision: 3, thumbprint: 'ab'.repeat(32) }

const [, , url = ''] = process.argv
let calls = 0
const points = await measured(url)
process.stdout.write(`${JSON.stringify({ points, knownFullUs: knownFullUs() } satisfies LimitsAlone)}\n`)

async function measured(of: string): Promise<readonly LimitsPoint[]> {
  const database = await openDatabase(of)
  const ledger = await openLedger({ database, version: 'bench' })
  const rounds = new Map(LIMITS.map((limits) => [limits, [] as { cpuUs: number; p50: number }[]]))
  // In turn: what else the machine does spoils all of them alike. The first round warms up.
  for (let round = 0; round <= ROUNDS; round += 1)
    for (const limits of LIMITS) {
      const found = await recorded(ledger, limits)
      if (round > 0) rounds.get(limits)?.push(found)
    }
  await ledger.close()
  await database.close()
  const trips = await roundTripsOf(of)
  return LIMITS.map((limits, at) => ({
    ...{ limits, roundTrips: trips?.[at] ?? null },
    cpuUs: medianOf((rounds.get(limits) ?? []).map(({ cpuUs }) => cpuUs)),
    p50: medianOf((rounds.get(limits) ?? []).map(({ p50 }) => p50)),
  }))
}

async function recorded(ledger: Ledger, limits: number) {
  const times: number[] = []
  let left = CALLS
  const caller = async (): Promise<void> => {
    while (left > 0) {
      left -= 1
      times.push(await recordCall(ledger, limits))
    }
  }
  const before = process.cpuUsage()
  await Promise.all(Array.from({ length: CALLERS }, caller))
  const { user, system } = process.cpuUsage(before)
  return { cpuUs: (user + system) / CALLS, p50: medianOf(times) }
}

/** Records a call. Returns the time until its decision was committed. µs. */
async function recordCall(ledger: Ledger, limits: number): Promise<number> {
  calls += 1
  const call = { n: calls, at: Date.now(), caller: CALLER, model: 'gpt-5' }
  const reservations = Array.from({ length: limits }, (_, n) => reservation(n))
  const settlements = reservations.map((one) => ({ ...one, charged: 3 }))
  const [decision, outcome] = [decisionOf(call, JUDGING), outcomeOf(call, JUDGING)]
  const held = { ...decision.detail, limits: reservations.map((one) => reservedDetail(one, 1)) }
  const charged = { ...outcome.detail, limits: settlements.map(settledDetail) }
  const since = performance.now()
  await ledger.commit(
    limits === 0 ? { entries: [decision] } : { reservations, entries: [{ ...decision, detail: held }] },
  )
  const us = (performance.now() - since) * 1_000
  await ledger.commit(
    limits === 0
      ? { entries: [outcome], lazy: true }
      : { settlements, entries: [{ ...outcome, detail: charged }], lazy: true },
  )
  return us
}

function reservation(n: number): MeterReservation {
  const key = { limit: `lim_${n}`, who: '', span: '2026-11-01T00:00:00.000Z' }
  return { ...key, took: 5, most: 9e15, refuses: true }
}

/** Counts the round trips of a decision's commit, for each number of limits. Null: there is nothing to count. */
async function roundTripsOf(of: string): Promise<readonly number[] | null> {
  if (!URL.parse(of)?.searchParams.get('host')?.startsWith('/')) return null
  const ends: (() => unknown)[] = []
  const way = await countedWay({ teardown: (end: () => unknown) => void ends.push(end) }, of)
  const database = await openDatabase(way.url)
  const ledger = await openLedger({ database, version: 'bench' })
  const found: number[] = []
  for (const limits of LIMITS) {
    await recordCall(ledger, limits)
    const before = way.turns()
    for (let done = 0; done < COUNTED; done += 1) await recordCall(ledger, limits)
    // Two commits a call; what the ledger asks in between is shared by them.
    found.push((way.turns() - before) / (2 * COUNTED))
  }
  await ledger.close()
  await database.close()
  for (const end of ends) await end()
  return found
}

function knownFullUs(): number {
  const limit: CallLimit = {
    ...{ id: 'lim_1', name: 'red-month', revision: 1, override: null, for: { holding: 'team.red' } },
    ...{
      each: false,
      measure: 'cost',
      amount: 25_000_000,
      per: 'month',
      strict: false,
      on: 'refuse',
      show: true,
    },
  }
  const [full, at] = [new KnownFull(), Date.UTC(2026, 10, 15)]
  const used = { n: 7, used: 25_000_000, spent: 25_000_000, took: 1, most: 25_000_000 }
  full.note({ limit: 'lim_1', who: '', span: '2026-11-01T00:00:00.000Z', ...used }, 1)
  const means = { full, samples: new UsageSamples(), costOf: () => 100, windowOf: () => null }
  const models = ['openai/gpt-5']
  const { admit } = callLimits(means, () => ({ models, tool: null, size: { bytes: 489, maxOutput: 100 } }))
  const holder = {
    ...{ ref: CALLER.id, id: CALLER.id, type: 'agent', capabilities: ['llm.chat', 'team.red'], revision: 3 },
  }
  // The only members that are looked at.
  const facts = { at, holder, rules: { revision: 1, limits: [limit], stops: [] } } as unknown as Arrival & {
    readonly holder: Principal
    readonly rules: { readonly revision: number; readonly limits: readonly CallLimit[]; readonly stops: [] }
  }
  const before = process.cpuUsage()
  for (let call = 0; call < REFUSALS; call += 1) {
    try {
      void admit(facts)
      throw new Error('the call was let through')
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
    }
  }
  const { user, system } = process.cpuUsage(before)
  return (user + system) / REFUSALS
}
