import fc from 'fast-check'
import t from 'tap'
import {
  MeterBook,
  type MeterKey,
  type MeterState,
  NEW_METER,
} from '../../../../db/ledger/meters/meter-book.ts'
import { budgetSpan, spanName } from '../../../../db/ledger/meters/span.ts'

const SECOND_MS = 1_000
const MINUTE_MS = 60 * SECOND_MS
const FROM = Date.UTC(2026, 0, 1)
const STEADY = { limit: 'lim_1', who: '', span: 'steady' }
const MONTH = { limit: 'lim_2', who: '', span: '2026-01-01T00:00:00.000Z' }

/** A book that keeps what batches have left, as the database does. */
function keptBook() {
  const stored = new Map<string, MeterState>()
  const name = (key: MeterKey) => JSON.stringify([key.limit, key.who, key.span])
  const batch = <Result>(work: (book: MeterBook) => Result): Result => {
    const book = new MeterBook((key) => stored.get(name(key)))
    const result = work(book)
    for (const [key, state] of book.changed()) stored.set(name(key), state)
    return result
  }
  return { batch, state: (key: MeterKey) => stored.get(name(key)) }
}

t.test(
  'a steady rate lets through at most its burst and what it is refilled with, in any interval',
  async () => {
    const rates = fc.record({
      rate: fc.integer({ min: 1, max: 50 }),
      periodMs: fc.constantFrom(SECOND_MS, MINUTE_MS),
      burst: fc.integer({ min: 1, max: 60 }),
      gaps: fc.array(fc.integer({ min: 0, max: 3_000 }), { minLength: 1, maxLength: 120 }),
    })
    fc.assert(
      fc.property(rates, ({ rate, periodMs, burst, gaps }) => {
        const { batch } = keptBook()
        const passed: number[] = []
        let at = FROM
        for (const gap of gaps) {
          at += gap
          const wish = { ...STEADY, took: 1, most: burst, refuses: true, refill: { rate, periodMs, at } }
          const fits = batch((book) => book.misfit([wish]) === null && book.apply([wish], []).length > 0)
          if (fits) passed.push(at)
        }
        for (const [first, from] of passed.entries())
          for (let last = first; last < passed.length; last += 1) {
            const took = (passed[last] ?? 0) - from
            if (last - first + 1 > burst + (rate * took) / periodMs) return false
          }
        return true
      }),
      { numRuns: 200 },
    )
  },
)

t.test('a caller at nine tenths of a steady rate is never refused', async () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 5_000 }), fc.integer({ min: 1, max: 100 }), (rate, burst) => {
      const { batch } = keptBook()
      for (let call = 0; call < 200; call += 1) {
        const at = FROM + Math.ceil((call * MINUTE_MS) / (rate * 0.9))
        const refill = { rate, periodMs: MINUTE_MS, at }
        const wish = { ...STEADY, took: 1, most: burst, refuses: true, refill }
        if (batch((book) => book.misfit([wish]))) return false
        batch((book) => book.apply([wish], []))
      }
      return true
    }),
    { numRuns: 100 },
  )
})

t.test('a clock that steps back gives no part of a rate twice', async (t) => {
  const { batch } = keptBook()
  const wish = (at: number) => ({
    ...STEADY,
    ...{ took: 1, most: 1, refuses: true, refill: { rate: 1, periodMs: SECOND_MS, at } },
  })
  batch((book) => book.apply([wish(FROM)], []))
  t.ok(
    batch((book) => book.misfit([wish(FROM - MINUTE_MS)])),
    'an earlier instant drains nothing',
  )
  t.ok(batch((book) => book.misfit([wish(FROM + 999)])))
  t.notOk(
    batch((book) => book.misfit([wish(FROM + 1_000)])),
    'it has drained by the clock of before',
  )
})

t.test(
  'a budget is reserved, then spent as it was charged, and each change has the next number',
  async (t) => {
    const { batch, state } = keptBook()
    const wish = { ...MONTH, took: 40, most: 100, refuses: true }
    t.same(
      batch((book) => book.apply([wish], [])),
      [1, 0],
    )
    t.same(
      batch((book) => book.apply([wish], [])),
      [2, 40],
      'used: what was before it',
    )
    t.match(
      batch((book) => book.misfit([wish])),
      { n: 2, used: 80, spent: 0, took: 40, most: 100 },
    )
    t.notOk(
      batch((book) => book.misfit([{ ...wish, refuses: false }])),
      'one that only counts has room',
    )
    t.same(
      batch((book) => book.apply([], [{ ...MONTH, took: 40, charged: 7 }])),
      [3],
    )
    t.same(state(MONTH), { n: 3, reserved: 40, spent: 7, tat: 0 })
    t.notOk(
      batch((book) => book.misfit([wish])),
      'what was not used is free again',
    )
    t.same(
      batch((book) => book.apply([], [{ ...MONTH, took: 40, charged: 90 }])),
      [4],
    )
    t.same(
      state(MONTH),
      { n: 4, reserved: 0, spent: 97, tat: 0 },
      'more than was held is charged all the same',
    )
  },
)

t.test('a window is of the UTC calendar, and the last ms of it belongs to it', async (t) => {
  const at = (text: string) => Date.parse(text)
  t.equal(spanName('month', at('2028-02-29T23:59:59.999Z')), '2028-02-01T00:00:00.000Z')
  t.equal(spanName('month', at('2028-03-01T00:00:00.000Z')), '2028-03-01T00:00:00.000Z')
  t.equal(spanName('week', at('2026-11-29T23:59:59.999Z')), '2026-11-23T00:00:00.000Z', 'a Sunday')
  t.equal(spanName('week', at('2026-11-30T00:00:00.000Z')), '2026-11-30T00:00:00.000Z', 'a Monday')
  t.equal(spanName('day', at('2026-12-31T23:59:59.999Z')), '2026-12-31T00:00:00.000Z')
  t.equal(spanName('hour', at('2026-12-31T23:59:59.999Z')), '2026-12-31T23:00:00.000Z')
  t.equal(spanName('ever', 0), 'ever')
  const windows = fc.constantFrom('hour', 'day', 'week', 'month') as fc.Arbitrary<
    'hour' | 'day' | 'week' | 'month'
  >
  fc.assert(
    fc.property(windows, fc.integer({ min: 0, max: 4e12 }), (window, instant) => {
      const span = budgetSpan(window, instant)
      if (!span) return false
      const isIn = span.from <= instant && instant < span.until
      return isIn && budgetSpan(window, span.until)?.from === span.until
    }),
  )
})

t.test(
  'what is spent and held never passes the amount, but by what calls under way cost more than they held',
  async () => {
    const most = 100
    const key = { limit: 'lim_a', who: '', span: 'ever' }
    const call = fc.record({ took: fc.nat(40), more: fc.integer({ min: -40, max: 20 }), ends: fc.nat(3) })
    fc.assert(
      fc.property(fc.array(call, { maxLength: 60 }), fc.boolean(), (calls, strict) => {
        let state: MeterState = NEW_METER
        let beyond = 0
        const underWay: { readonly took: number; readonly charged: number }[] = []
        const unit = (work: (book: MeterBook) => void): void => {
          const book = new MeterBook(() => state)
          work(book)
          state = book.changed()[0]?.[1] ?? state
        }
        const settle = ({ took, charged }: { readonly took: number; readonly charged: number }): void =>
          unit((book) => void book.apply([], [{ ...key, took, charged }]))
        for (const { took, more, ends } of calls) {
          const wish = { ...key, took, most, refuses: true }
          unit((book) => {
            if (book.misfit([wish])) return
            const extra = strict ? Math.min(0, more) : more
            book.apply([wish], [])
            underWay.push({ took, charged: Math.max(0, took + extra) })
          })
          for (const ended of underWay.splice(0, ends)) {
            settle(ended)
            beyond += Math.max(0, ended.charged - ended.took)
          }
          if (state.spent + state.reserved > most + beyond) return false
        }
        for (const ended of underWay.splice(0)) settle(ended)
        return state.reserved === 0
      }),
    )
  },
)
