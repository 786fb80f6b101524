import fc from 'fast-check'
import t from 'tap'
import { databaseLocation, openDatabase } from '../../../db/engine.ts'
import { reservedDetail, settledDetail } from '../../../db/ledger/meters/detail.ts'
import type { MeterReservation } from '../../../db/ledger/meters/meter-book.ts'
import { verifyDatabase } from '../../../db/ledger/read/read.ts'
import { LimitReached } from '../../../db/ledger/record/entry.ts'
import { type Ledger, openLedger } from '../../../db/ledger/record/ledger.ts'
import type { LimitEffect } from '../../../db/ledger/rehearsal/limit-tally.ts'
import type { LimitTerms } from '../../../db/limits/limit.ts'
import { meterAt } from '../../../db/limits/limit.ts'
import { walkOnThread } from '../../../db/rehearsal/thread.ts'
import { databaseUrl } from '../../support/db/engine.ts'
import { changed, decided, loaded, note } from '../../support/db/history.ts'
import { changes } from '../../support/db/rehearsal.ts'

t.setTimeout(60_000)

const PEOPLE = ['acme::ada', 'acme::bob', 'acme::eve']
const DAY_MS = 86_400_000

interface HistoricCall {
  readonly who: number
  /** ms since the call before it. */
  readonly after: number
  readonly took: number
  readonly charged: number
  /** The calls that begin before it ends. */
  readonly lasts: number
}

const call: fc.Arbitrary<HistoricCall> = fc.record({
  who: fc.nat(PEOPLE.length - 1),
  after: fc.oneof(fc.nat(900), fc.nat(50_000), fc.nat(DAY_MS)),
  took: fc.nat(60),
  charged: fc.nat(60),
  lasts: fc.nat(4),
})

const terms: fc.Arbitrary<LimitTerms> = fc
  .record({
    for: fc.constantFrom({}, { holding: 'team.red' }, { principals: ['acme::a*', 'acme::eve'] }),
    each: fc.boolean(),
    on: fc.constant('refuse' as const),
    ...{ strict: fc.constant(false), show: fc.constant(true) },
    counts: fc.constantFrom(
      ...(['hour', 'day', 'week', 'month', 'ever'] as const).flatMap((per) => [
        { measure: 'cost' as const, per, amount: 200 },
        { measure: 'tokens' as const, per, amount: 150 },
        { measure: 'calls' as const, per, amount: 5 },
      ]),
      { measure: 'tokens' as const, per: 'minute' as const, amount: 60, burst: 90 },
      { measure: 'calls' as const, per: 'second' as const, amount: 1, burst: 3 },
      { measure: 'concurrent' as const, amount: 2 },
    ),
  })
  .map(({ counts, ...rest }) => ({ ...rest, ...counts }))

/** Calls in the order in which they begin and end. */
function* eventsOf(calls: readonly HistoricCall[]) {
  let at = 0
  const ending: { index: number; in: number }[] = []
  for (const [index, one] of calls.entries()) {
    at += one.after
    yield { index, at, isEnd: false }
    for (const end of ending) {
      end.in -= 1
      if (end.in === -1) yield { index: end.index, at, isEnd: true }
    }
    ending.push({ index, in: one.lasts })
  }
  for (const end of ending) if (end.in >= 0) yield { index: end.index, at: at + 1, isEnd: true }
}

interface Play {
  readonly calls: readonly HistoricCall[]
  readonly limit: LimitTerms
  readonly name: string
  readonly base: number
  readonly on: 'refuse' | 'alert'
  /** False: rows say nothing of limits, as before there were any. */
  readonly states: boolean
}

const fits = ({ for: scope }: LimitTerms, who: number): boolean =>
  scope.holding === undefined && scope.principals === undefined ? true : who !== 1

/** Makes the calls with a limit in force, and returns the indexes of those that it refused. */
async function play(ledger: Ledger, { calls, limit, name, base, on, states }: Play): Promise<Set<number>> {
  const refused = new Set<number>()
  const made = new Map<number, readonly MeterReservation[]>()
  for (const { index, at, isEnd } of eventsOf(calls)) {
    const { who, took, charged } = calls[index] as HistoricCall
    const principal = PEOPLE[who] ?? ''
    const when = base + at
    const request = `${name}_${index}`
    const decision = { at: when, principal_id: principal, request_id: request }
    const { measure } = limit
    const isOne = measure === 'calls' || measure === 'concurrent'
    const used = measure === 'concurrent' ? 0 : isOne ? 1 : charged
    if (!isEnd) {
      const { span, most, refill } = meterAt({ ...limit, override: null }, when)
      const wish = {
        ...{ limit: name, who: limit.each ? principal : '', span, most, refuses: on === 'refuse' },
        took: isOne ? 1 : states ? took : charged,
        ...(refill && { refill }),
      }
      const reservations = fits(limit, who) && (states || on === 'refuse') ? [wish] : []
      const more =
        reservations.length > 0 ? { limits: reservations.map((one) => reservedDetail(one, 1)) } : {}
      const entries = [decided(index, { ...decision, more })]
      const isOver = await ledger.commit({ reservations, entries }).then(
        () => false,
        (error: unknown) => {
          if (!(error instanceof LimitReached)) throw error
          return true
        },
      )
      if (isOver) refused.add(index)
      else made.set(index, reservations)
    } else if (!refused.has(index)) {
      const settlements = (made.get(index) ?? []).map(({ refill, ...one }) => ({
        ...{ limit: one.limit, who: one.who, span: one.span, took: one.took, charged: used },
        ...(refill && { refill: { ...refill, at: when } }),
      }))
      const detail = {
        ...{ http_status: 200, attempts: [{ provider: 'openai', status: 200 }] },
        ...{
          tokens: { input: charged, output: 0 },
          cost: { microusd: charged, price: null, priced: 'free' },
        },
        ...(settlements.length > 0 && { limits: settlements.map(settledDetail) }),
      }
      const entry = decided(index, { ...decision, more: {} })
      await ledger.commit({
        settlements,
        entries: [{ ...entry, status: 'success', provider: 'openai', detail }],
      })
    }
  }
  return refused
}

const toldOf = (effect: LimitEffect | undefined) => ({
  calls: effect?.calls,
  refused: effect?.refused,
  undecidable: effect?.undecidable,
  first: effect?.first_refused?.request_id ?? null,
  groups: Object.fromEntries(
    (effect?.groups ?? []).map(({ principal_id: who, calls, refused, first_refused: first }) => [
      who,
      { calls, refused, first: first?.request_id ?? null },
    ]),
  ),
})

function happened(
  calls: readonly HistoricCall[],
  limit: LimitTerms,
  refused: ReadonlySet<number>,
  name: string,
) {
  const mine = calls.flatMap(({ who }, index) => (fits(limit, who) ? [{ who, index }] : []))
  const [first] = refused
  const groups = [...Map.groupBy(mine, ({ who }) => who)].map(([who, own]) => {
    const over = own.filter(({ index }) => refused.has(index))
    const at = over[0]?.index
    return [
      PEOPLE[who],
      { calls: own.length, refused: over.length, first: at === undefined ? null : `${name}_${at}` },
    ]
  })
  return {
    ...{ calls: mine.length, refused: refused.size, undecidable: 0 },
    first: first === undefined ? null : `${name}_${first}`,
    groups: Object.fromEntries(groups),
  }
}

const NEVER = new AbortController().signal
const iso = (at: number): string => new Date(at).toISOString()

await t.test(
  'what a rehearsal says of a limit is what then happens: the same calls of the same principals are refused',
  async (t) => {
    const url = await databaseUrl(t.testdir())
    const database = await openDatabase(url)
    const ledger = await openLedger({ database, version: 'test' })
    const people = PEOPLE.map((subject, who) =>
      changed('agent.created', 1, {
        subject,
        capabilities: who === 1 ? ['llm.chat'] : ['llm.chat', 'team.red'],
      }),
    )
    await ledger.commit({ entries: [loaded({ config_digest: 'cd'.repeat(32) }), ...people] })
    const seen = { refused: 0, runs: 0 }
    await fc.assert(
      fc.asyncProperty(
        fc.array(call, { minLength: 5, maxLength: 24 }),
        terms,
        fc.boolean(),
        async (calls, limit, states) => {
          seen.runs += 1
          const name = `lim_${seen.runs}`
          // Each run has months of its own, in both times.
          const base = Date.UTC(2026, seen.runs * 3, 1) + 5 * DAY_MS
          const later = Date.UTC(2054, seen.runs * 3, 1) + 5 * DAY_MS
          if (states) {
            const detail = { limit: { id: name, name, ...limit, override: null, revision: 1 } }
            await ledger.commit({ entries: [note('limit.created', JSON.parse(JSON.stringify(detail)))] })
          }
          const past = { calls, limit, name, base, on: 'alert', states } as const
          t.same(await play(ledger, past), new Set(), 'an alert refuses nothing')
          const walked = await walkOnThread(
            databaseLocation(url),
            {
              kind: 'rehearse',
              changes: {
                ...changes({}),
                limits: {
                  limits: [{ id: null, name, terms: { ...limit, override: null }, isRemoved: false }],
                  ...{ names: new Map(), aliases: new Map() },
                },
              },
              wanted: { since: iso(base - DAY_MS), until: iso(base + 60 * DAY_MS), principals: null },
            },
            NEVER,
          )
          const refused = await play(ledger, {
            ...{ calls, limit, states, on: 'refuse' },
            ...{ name: `${name}_real`, base: later },
          })
          const [effect] = walked.limits
          t.same(toldOf(effect), happened(calls, limit, refused, name), JSON.stringify({ limit, states }))
          t.equal(walked.newlyRefused.decisions, refused.size)
          t.equal(walked.unchanged + walked.newlyRefused.decisions, calls.length)
          seen.refused += refused.size
        },
      ),
      { numRuns: 30, endOnFailure: true },
    )
    t.ok(seen.refused > 0, `${seen.refused} calls were refused`)
    await ledger.close()
    t.match(await verifyDatabase(database.kysely), { ok: true })
    await database.close()
  },
)
