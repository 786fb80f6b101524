// The honest callers, a process of its own: they call at a constant rate, whatever the answers do.

import { appendFileSync } from 'node:fs'
import { messageOf } from '../../db/support/error-message.ts'
import { type Honest, type Kind, kindsOf } from './callers/calls.ts'
import { type OperatorOf, operatorKinds } from './callers/operator.ts'
import { type Figures, Tally } from './callers/tally.ts'

/** What the callers are told. */
export type Wish =
  | {
      readonly kind: 'begin'
      readonly honest: Honest
      readonly operator: OperatorOf
      readonly perSecond: number
      readonly log: string
    }
  /** Tell what was seen since the last time. `end`: and call no more. */
  | { readonly kind: 'figures' | 'end' }

/** What the callers say. `kinds`: by kind, since the beginning; only at the end. */
export type Told =
  | { readonly kind: 'ready' }
  | {
      readonly kind: 'figures'
      readonly figures: Figures
      readonly kinds: Readonly<Record<string, Figures>> | null
    }

/** The calls of one kind that may be under way at once. More than that are failures: nobody waits so long. */
const UNDER_WAY = 200
const TICK_MS = 5

let recent = new Tally()
const all = new Map<string, Tally>()
const stops: (() => Promise<void>)[] = []
let lines: string[] = []
let logFile = ''

const tell = (told: Told): void => void process.send?.(told)

process.on('disconnect', () => process.exit(0))
process.on('SIGINT', () => {})
process.on('message', (wish: Wish) => {
  if (wish.kind === 'begin') {
    logFile = wish.log
    const kinds = [...kindsOf(wish.honest), ...operatorKinds(wish.operator)]
    for (const kind of kinds) stops.push(keepCalling(kind, wish.perSecond * kind.share))
  } else if (wish.kind === 'end') {
    void Promise.all(stops.map((stop) => stop())).then(() => report(true))
  } else report(false)
})
tell({ kind: 'ready' })

function report(last: boolean): void {
  const figures = recent.figures()
  recent = new Tally()
  appendFileSync(logFile, lines.join(''))
  lines = []
  const kinds = last ? Object.fromEntries([...all].map(([name, tally]) => [name, tally.figures()])) : null
  tell({ kind: 'figures', figures, kinds })
}

/** Calls at that rate until it is stopped; stopping waits for the calls under way. */
function keepCalling(kind: Kind, perSecond: number): () => Promise<void> {
  const tally = new Tally()
  all.set(kind.name, tally)
  const underWay = new Set<Promise<void>>()
  const begunAt = performance.now()
  let due = 0
  const timer = setInterval(() => {
    for (; begunAt + (due * 1_000) / perSecond <= performance.now(); due += 1) {
      const call = one(kind, tally, begunAt + (due * 1_000) / perSecond, underWay.size)
      underWay.add(call)
      void call.finally(() => underWay.delete(call))
    }
  }, TICK_MS)
  return async () => {
    clearInterval(timer)
    await Promise.all(underWay)
  }
}

async function one(
  { name, call, isAdmin = false }: Kind,
  tally: Tally,
  dueAt: number,
  others: number,
): Promise<void> {
  try {
    if (others >= UNDER_WAY) throw new Error(`${UNDER_WAY} calls wait`)
    const { status, headers } = await call()
    const ms = performance.now() - dueAt
    for (const each of [tally, recent]) each.served(ms)
    if (!isAdmin) lines.push(`${status} ${String(headers['x-request-id'])}\n`)
  } catch (error) {
    for (const each of [tally, recent]) each.failed(`${name}: ${messageOf(error)}`)
  }
}
