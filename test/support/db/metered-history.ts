import { costOf, type PriceRates, priceIdOf } from '../../../db/ledger/authority/costs.ts'
import { MeterBook, type MeterReservation } from '../../../db/ledger/meters/meter-book.ts'
import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'
import { type CallLimit, meterAt } from '../../../db/limits/limit.ts'
import { compileScope } from '../../../db/limits/scope.ts'
import { usedInOutcome } from '../../../db/limits/used.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import {
  BOT,
  binding,
  changed,
  decided,
  decidedTool,
  ended,
  loaded,
  note,
  resource,
  started,
} from './history.ts'
import { AT } from './scratch-ledger.ts'

/** A bot of the group. */
export const RED = 'acme::red'
const HELD: Readonly<Record<string, readonly string[]>> = {
  [BOT]: ['files.use', 'llm.chat'],
  [RED]: ['llm.chat', 'team.red'],
}
const RATES: PriceRates = { tokens: { input: 5_000_000, output: 30_000_000 } }
const PRICE = priceIdOf(RATES)

const limit = (id: string, more: Partial<CallLimit>): CallLimit => ({
  ...{ id, name: id, revision: 1, for: {}, each: false, measure: 'calls', amount: 1_000_000 },
  ...{ strict: false, on: 'refuse', show: true, override: null },
  ...(more.measure !== 'concurrent' && { per: 'month' }),
  ...more,
})

/** One of each kind. */
export const LIMITS: readonly CallLimit[] = [
  limit('lim_red', { for: { holding: 'team.red' }, measure: 'cost', amount: 40_000, per: 'month' }),
  limit('lim_each', { each: true, amount: 5, per: 'hour' }),
  limit('lim_rate', { each: true, amount: 3, per: 'minute', burst: 4 }),
  limit('lim_once', concurrent(2)),
  limit('lim_seen', { measure: 'tokens', amount: 10, per: 'ever', on: 'alert' }),
  limit('lim_open', { for: { models: ['openai/*'] }, measure: 'tokens', amount: 30_000, per: 'week' }),
  limit('lim_tool', { for: { tools: ['files.*'], principals: ['acme::*'] }, amount: 6, per: 'day' }),
]

function concurrent(amount: number): Partial<CallLimit> {
  return { measure: 'concurrent', amount, for: { types: ['agent'] } }
}

/** The row of a change of a limit. `at`: ms since the epoch. */
export const limitRow = (what: string, state: CallLimit, at = AT): LedgerEntry => {
  // Proven by its type: texts, truths and whole numbers.
  const detail = { limit: state } as unknown as JsonObject
  return note(`limit.${what}`, detail, { at })
}

export const BEGINNING: readonly LedgerEntry[] = [
  started,
  loaded(),
  note('price.stated', { price: PRICE, rates: RATES as unknown as JsonObject }),
  changed('agent.created', 1, { capabilities: HELD[BOT] ?? [] }),
  changed('agent.created', 1, { subject: RED, capabilities: HELD[RED] ?? [] }),
  resource('created', 1, { pinned: [['read', 'd1']] }),
  binding('created'),
]

interface OpenMeteredCall {
  readonly row: LedgerEntry
  readonly reservations: readonly MeterReservation[]
}

/** Writes rows of calls as the ledger would: counted by the real book, over the limits of now. */
export class MeteredHistory {
  readonly rows: LedgerEntry[] = [...BEGINNING]
  readonly limits = new Map<string, CallLimit>()
  readonly #book = new MeterBook(() => undefined)
  readonly #open: OpenMeteredCall[] = []
  #calls = 0
  at = AT

  set(what: string, state: CallLimit): void {
    if (what === 'removed') this.limits.delete(state.id)
    else this.limits.set(state.id, state)
    this.rows.push(limitRow(what, state, this.at))
  }

  /** Gives a limit another state. */
  change(id: string, more: Partial<CallLimit>, what = 'changed'): void {
    const known = this.limits.get(id)
    if (known) this.set(what, { ...known, ...more, revision: known.revision + 1 })
  }

  /** A call begins, or is refused. Returns whether it was allowed. */
  begin(principal: string, kind: 'openai' | 'local' | 'tool', took = 1_000): boolean {
    this.#calls += 1
    const routed = kind === 'tool' ? [] : [`${kind}/m`]
    const claims = this.#claims(principal, routed, kind === 'tool' ? 'files.read' : null, took)
    const reservations = claims.map(([, reservation]) => reservation)
    const over = this.#book.misfit(reservations)
    const base = { at: this.at, principal_id: principal, principal_type: 'agent' }
    const made = (values: object, more: JsonObject): LedgerEntry =>
      kind === 'tool'
        ? decidedTool(this.#calls, { ...base, ...values, more })
        : decided(this.#calls, { ...base, ...values, more: { ...more, routed } })
    if (over) {
      const { limit: id, who, span, n, used, took: wish, most } = over
      const revision = this.limits.get(id)?.revision ?? 0
      const meter = {
        ...(who !== '' && { each: true }),
        ...{ id, revision, span, n, used, took: wish, most },
      }
      this.rows.push(
        made({ status: 'denied' }, { reason: 'limit_reached', refused_by: 'limits', limit: meter }),
      )
      return false
    }
    const numbers = this.#book.apply(reservations, []).values()
    const limits = claims.map(([{ id, revision, each }, reservation]) => ({
      ...{ id, revision, span: reservation.span, took: reservation.took, ...(each && { each }) },
      ...{ n: numbers.next().value ?? 0, used: numbers.next().value ?? 0 },
    }))
    const cost = claims.find(([{ measure }]) => measure === 'cost')?.[1].took
    const row = made(
      {},
      { ...(limits.length > 0 && { limits }), ...(cost !== undefined && { held_microusd: cost }) },
    )
    this.rows.push(row)
    this.#open.push({ row, reservations })
    return true
  }

  get open(): number {
    return this.#open.length
  }

  /** The call that began so long ago ends. */
  end(place = 0, { crashed = false } = {}): void {
    const [call] = this.#open.splice(place % Math.max(1, this.#open.length), 1)
    if (!call) return
    const { row, reservations } = call
    const { held_microusd: held } = row.detail
    const cost = held === undefined ? {} : { cost: { microusd: held, price: null, priced: 'reserved' } }
    const detail = crashed ? { reason: 'crash', ...cost } : usageDetail(row.action, this.#calls)
    const settlements = reservations.map(({ limit: id, who, span, took, refill }) => {
      const measure = LIMITS.find((one) => one.id === id)?.measure ?? 'calls'
      const charged = crashed
        ? measure === 'concurrent'
          ? 0
          : took
        : (usedInOutcome(measure, detail) ?? took)
      return {
        ...{ limit: id, who, span, took, charged },
        ...(refill && !crashed && { refill: { ...refill, at: this.at } }),
      }
    })
    const numbers = this.#book.apply([], settlements)
    const limits = settlements.map(({ limit: id, span, charged }, index) => ({
      id,
      span,
      charged,
      n: numbers[index] ?? 0,
    }))
    const status = crashed ? 'unknown' : 'success'
    this.rows.push({
      ...ended(row),
      at: this.at,
      status,
      detail: { ...detail, ...(limits.length > 0 && { limits }) },
    })
  }

  #claims(principal: string, models: readonly string[], tool: string | null, wish: number) {
    return [...this.limits.values()].flatMap((state): readonly (readonly [CallLimit, MeterReservation])[] => {
      const { fitsPrincipal, fitsCall } = compileScope(state.for)
      const who = { id: principal, type: 'agent', capabilities: HELD[principal] ?? [] } as const
      if (!fitsPrincipal(who) || !fitsCall({ models, tool })) return []
      const { span, most, refill } = meterAt(state, this.at)
      const isUnit = state.measure === 'calls' || state.measure === 'concurrent'
      const took = isUnit ? 1 : wish
      const key = { limit: state.id, who: state.each ? principal : '', span }
      return [[state, { ...key, took, most, refuses: state.on === 'refuse', ...(refill && { refill }) }]]
    })
  }
}

function usageDetail(action: string, seed: number): JsonObject {
  if (action === 'mcp_tools_call') return { http_status: 200 }
  const tokens = { input: 100 + (seed % 7) * 50, output: 30 + (seed % 5) * 20 }
  const { microusd } = costOf(RATES, { tokens })
  const cost = { microusd, price: PRICE, priced: 'stated' }
  return { http_status: 200, upstream_status: 200, attempts: [{ provider: 'x' }], tokens, cost }
}
