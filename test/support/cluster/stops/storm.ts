import { setTimeout as sleep } from 'node:timers/promises'
import type { StopScope } from '../../../../db/stops/stop.ts'
import { oneOf, type Random } from '../../../siege/attacks/target.ts'
import type { Answered, Identity } from '../../gateway.ts'
import { heldCall } from '../held-call.ts'
import { load } from '../load.ts'
import type { Replica } from '../replicas.ts'
import { openScope } from '../scope.ts'
import type { Stage } from '../stage.ts'

export interface StopStormOptions {
  readonly callers: number
  /** Short calls per second, of all callers. */
  readonly perSecond: number
  readonly random: Random
}

/** The callers that hold a call, of all. */
const HOLDING = 1 / 4
/** The longest that one holds it, and that a stop lasts, and the pause after a stop. ms. */
const HELD_MS = 4_000
const STOPPED_MS = 800
const PAUSE_MS = 1_200
/** The least time that a stop with an end of its own is begun for. ms. */
const UNTIL_MS = 5_000
/** Operators who begin and end stops, each one at a time. */
const MAX_OPEN = 3

type Replicas = readonly [Replica, ...Replica[]]

/** Callers at all replicas while stops begin and end at any of them, with seeded choices. */
export async function stopStorm(stage: Stage, { callers, perSecond, random }: StopStormOptions) {
  // Proven: a stage has at least one.
  const replicas = stage.replicas as unknown as Replicas
  const bots = await Promise.all(['a', 'b', 'c', 'd'].map((name) => stage.enroll(name)))
  const holders = Math.round(callers * HOLDING)
  const pauseMs = ((callers - holders) * 1_000) / perSecond
  const each = Math.ceil((callers - holders) / (replicas.length * bots.length))
  const loads = replicas.flatMap(({ url }) =>
    // The provider does not look for each decision: the ledger is judged at the end.
    bots.map((bot) => load(stage, bot, { url, callers: each, pauseMs, kind: 'herd' })),
  )
  let going = true
  const isGoing = (): boolean => going
  const held = Array.from({ length: holders }, (_, n) =>
    holding(stage, { bot: bots[n % bots.length], replica: replicas[n % replicas.length], random, isGoing }),
  )
  const stops = stopping(stage, { replicas, bots, random, isGoing })
  return {
    made: () => loads.flatMap(({ made }) => made),
    begun: stops.begun,
    /** The changes that were answered 503, by reason. */
    refused: stops.refused,
    /** Ends all stops, then all calls. */
    stop: async (): Promise<void> => {
      going = false
      await stops.over
      await Promise.all([...held, ...loads.map((way) => way.stop())])
    },
  }
}

interface Holding {
  readonly bot: Identity | undefined
  readonly replica: Replica | undefined
  readonly random: Random
  readonly isGoing: () => boolean
}

/** Holds a call that ends only if it is cut, or its caller hangs up after a while; then the next one. */
async function holding(stage: Stage, { bot, replica, random, isGoing }: Holding): Promise<void> {
  if (!bot || !replica) throw new Error('nobody calls')
  while (isGoing()) {
    const scope = openScope()
    const kind = random() < 0.5 ? 'wait' : 'open'
    const call = await heldCall(scope, stage, bot, kind, replica).catch(() => null)
    await (call ? Promise.race([call.lost, sleep(HELD_MS * random())]) : sleep(200))
    await scope.close()
  }
}

interface Stopping {
  readonly replicas: Replicas
  readonly bots: readonly Identity[]
  readonly random: Random
  readonly isGoing: () => boolean
}

const PATH = '/v1/admin/stops'

/** Begins stops of random scopes and ends them at another gateway; one in twenty ends by itself. */
function stopping(stage: Stage, { replicas, bots, random, isGoing }: Stopping) {
  const scopes: readonly [StopScope, ...StopScope[]] = [
    ...(['all', 'llm', 'mcp', { kind: 'agents' }, { kind: 'users' }] as const),
    ...bots.map(({ id }) => ({ principal: id })),
  ]
  let begun = 0
  const refused = new Map<string, number>()
  /** Asks until it is done: a database on a busy machine may be late (503), and the stop is begun again. */
  const change = async (path: string, body: object, done: number): Promise<Answered> => {
    for (;;) {
      const answered = await stage.admin('POST', path, body, oneOf(random, replicas))
      const { status, json } = answered
      // Whether an end that was answered 503 was one is seen when it is asked for again.
      if (status === done || (status === 404 && path !== PATH)) return answered
      if (status !== 503) throw new Error(`${path} was answered ${status}`)
      const reason = String(json?.reason)
      refused.set(reason, (refused.get(reason) ?? 0) + 1)
    }
  }
  const end = (id: string): Promise<Answered> => change(`${PATH}/${id}/end`, { reason: 'over' }, 204)
  const one = async (): Promise<void> => {
    while (isGoing()) {
      await sleep(PAUSE_MS * random())
      const lastsMs = STOPPED_MS * random()
      const until = random() < 0.05 ? { until: new Date(Date.now() + lastsMs + UNTIL_MS).toISOString() } : {}
      const body = { scope: oneOf(random, scopes), reason: 'a rehearsed leak', ...until }
      const { json } = await change(PATH, body, 201)
      begun += 1
      await sleep(lastsMs)
      if (!('until' in until)) await end(json.stop_id)
    }
  }
  const all = async (): Promise<void> => {
    await Promise.all(Array.from({ length: MAX_OPEN }, one))
    const { json } = await stage.admin('GET', PATH)
    for (const { stop_id: id } of json.stops) await end(id)
  }
  return { begun: () => begun, refused, over: all() }
}
