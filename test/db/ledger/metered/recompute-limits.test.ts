import t, { type Test } from 'tap'
import { MAX_PAST_METERS } from '../../../../db/ledger/metered/replayed-meters.ts'
import { recomputer } from '../../../../db/ledger/verify/recompute.ts'
import { BOT, chainOf, exportOf } from '../../../support/db/history.ts'
import { LIMITS, MeteredHistory, RED } from '../../../support/db/metered-history.ts'
import { exportOf as exportOfLines, resealed } from '../../../support/db/resealed.ts'
import { asStored, sameStates } from '../../../support/docs/states.ts'
import { walkedByPython } from '../../../support/docs/walks.ts'
import type { Json } from '../../../support/gateway.ts'
import { runsOf } from '../../../support/sweep-places.ts'
import { withoutPython } from '../../../support/verifiers.ts'

const parsed = (text: string): readonly Json[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))

function walked(lines: readonly Json[]) {
  const walk = recomputer()
  for (const line of lines) walk.add(asStored(line))
  return walk.result()
}

/** A seeded choice. */
function chooser(seed: number): (below: number) => number {
  let state = seed * 2_654_435_761
  return (below) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
    return Math.floor((state / 2_147_483_648) * below)
  }
}

/** An honest history of calls under limits of each kind, that are changed meanwhile. */
function life(seed: number, steps: number): MeteredHistory {
  const choose = chooser(seed)
  const history = new MeteredHistory()
  for (const limit of LIMITS) history.set('created', limit)
  for (let step = 0; step < steps; step += 1) {
    history.at += choose(20_000) + (choose(12) === 0 ? 3_600_000 * choose(40) : 0)
    const chance = choose(20)
    if (chance < 11) history.begin(choose(2) ? BOT : RED, choose(3) ? 'openai' : 'local', 200 + choose(2_000))
    else if (chance < 13) history.begin(BOT, 'tool')
    else if (chance < 18) history.end(choose(3), { crashed: choose(9) === 0 })
    else if (chance === 18) history.change('lim_each', { amount: 3 + choose(6) })
    else
      history.change(
        'lim_rate',
        {
          override: {
            amount: 1 + choose(9),
            until: new Date(history.at + 60_000 * choose(9)).toISOString(),
            reason: 'x',
          },
        },
        'overridden',
      )
  }
  return history
}

t.test(
  'docs/ledger.md#recomputing-limits: honest meters agree, whatever is used, changed or refused',
  async (t) => {
    const seeds = Array.from({ length: runsOf(100) }, (_, seed) => seed + 1)
    const lines = seeds.map((seed) => parsed(exportOf(chainOf(life(seed, 120).rows))))
    const refused = lines.flat().filter(({ detail }) => detail.reason === 'limit_reached')
    t.ok(refused.length > seeds.length, `${refused.length} refusals`)
    for (const [index, one] of lines.entries()) {
      const { disagree, not_recomputable: why, problems } = walked(one)
      t.same({ disagree, why, problems }, { disagree: 0, why: {}, problems: [] }, `seed ${seeds[index]}`)
    }
    if (withoutPython) return
    for (const [index, found] of walkedByPython(lines.map(exportOfLines)).entries())
      t.match(found, { disagree: 0, not_recomputable: {}, problems: [] }, `seed ${seeds[index]}`)
    sameStates(t as Test, parsed(exportOf(chainOf(life(1, 45).rows))))
  },
)

/** All numbers of limits in rows, as functions that change one of them. */
function* changesOf(lines: readonly Json[]): Generator<readonly [name: string, lines: readonly Json[]]> {
  for (const [place, line] of lines.entries()) {
    const lists = [...(line.detail.limits ?? []).entries(), ['refusal', line.detail.limit] as const]
    for (const [at, meter] of lists) {
      if (meter?.n === undefined) continue
      for (const [name, value] of Object.entries(meter)) {
        // An estimate follows from no row.
        if (name === 'took' && value !== 1) continue
        const changed =
          typeof value === 'number' ? value + 1 : name === 'each' ? undefined : `${String(value)}x`
        const next = { ...meter, [name]: changed }
        const detail =
          at === 'refusal'
            ? { ...line.detail, limit: next }
            : { ...line.detail, limits: line.detail.limits.with(at, next) }
        const more = lines.with(place, { ...line, detail: JSON.parse(JSON.stringify(detail)) })
        yield [`${line.status} ${place + 1}: ${name} of ${meter.id}`, more]
      }
    }
  }
}

t.test(
  'each number and word of limits that is changed in an export is found, by both verifiers',
  async (t) => {
    const lines = parsed(exportOf(chainOf(life(7, 60).rows)))
    const apart = runsOf(100) < 100 ? 17 : 1
    const changes = [...changesOf(lines)].filter((_, place) => place % apart === 0)
    t.ok(changes.length > 30, `${changes.length} changes`)
    const exports = changes.map(([, changed]) => resealed(changed))
    const theirs = withoutPython ? [] : walkedByPython(exports.map(exportOfLines))
    for (const [place, [name]] of changes.entries()) {
      const ours = walked(exports[place] ?? [])
      t.ok(ours.disagree > 0, name)
      const seqs = ({ problems }: Pick<typeof ours, 'problems'>) => problems.map(({ seq }) => seq)
      const { recomputed, disagree, not_recomputable: why } = ours
      const other = theirs[place]
      if (other)
        t.match(
          { ...other, at: seqs(other) },
          { recomputed, disagree, not_recomputable: why, at: seqs(ours) },
          name,
        )
    }
  },
)

/** Has both verifiers judge histories whose rows were changed and made anew, and demands one verdict. */
function judged(
  t: Test,
  histories: readonly (readonly [name: string, rows: readonly Json[], problem?: RegExp])[],
) {
  const files = histories.map(([, rows]) => resealed(rows))
  const theirs = withoutPython ? [] : walkedByPython(files.map(exportOfLines))
  return files.map((rows, place) => {
    const { recomputed, disagree, not_recomputable: why, problems } = walked(rows)
    const [other, [name] = ['']] = [theirs[place], histories[place]]
    if (other) t.match(other, { recomputed, disagree, not_recomputable: why }, `${name}: both say the same`)
    return { disagree, why, problem: problems[0]?.problem }
  })
}

t.test(
  'docs/ledger.md#recomputing-limits: what does not follow is named, and what rows do not say is undecided',
  async (t) => {
    const history = new MeteredHistory()
    for (const limit of LIMITS.filter(({ id }) => /open|once|each/.test(id))) history.set('created', limit)
    history.begin(RED, 'openai')
    history.begin(BOT, 'local')
    t.equal(history.begin(BOT, 'local'), false)
    history.end()
    history.begin(BOT, 'local')
    const lines = parsed(exportOf(chainOf(history.rows)))
    const at = (status: string) =>
      lines.findLastIndex((row) => row.status === status && row.request_id !== null)
    const edited = (place: number, change: (row: Json) => Json) =>
      lines.map((row, index) => (index === place ? change(row) : row))
    const detail = (more: object) => (row: Json) => ({ ...row, detail: { ...row.detail, ...more } })
    const without = (row: Json, name: string) => {
      const { [name]: _, ...rest } = row.detail
      return { ...row, detail: rest }
    }
    const first = lines.findIndex(({ status }) => status === 'allowed')
    const limitOf = (row: Json) => row.detail.limit
    const made = lines.findIndex(({ action }) => action === 'limit.created')
    const cases: readonly (readonly [string, readonly Json[], RegExp])[] = [
      ['a limit left out', edited(at('allowed'), (row) => without(row, 'limits')), /leaves out the limit/],
      [
        'one that is not for it',
        edited(at('allowed'), detail({ routed: ['openai/m'] })),
        /leaves out the limit lim_open/,
      ],
      ['one for others', edited(first, detail({ routed: ['local/m'] })), /lim_open, which is not for it/],
      ['no settlement', edited(at('success'), (row) => without(row, 'limits')), /does not settle the limit/],
      [
        'charged otherwise',
        edited(at('success'), (row) =>
          detail({ limits: row.detail.limits.map((one: Json) => ({ ...one, charged: 2_000 })) })(row),
        ),
        /charges 2000 of the limit lim_/,
      ],
      [
        'a refusal with room',
        edited(at('denied'), (row) => detail({ limit: { ...limitOf(row), n: 1, used: 1 } })(row)),
        /had room: 1 and 1 of 2/,
      ],
      [
        'a refusal of no limit',
        edited(at('denied'), (row) => without(row, 'limit')),
        /does not say its limits/,
      ],
      [
        'a refusal of a change to come',
        edited(at('denied'), (row) => detail({ limit: { ...limitOf(row), n: 99 } })(row)),
        /names change 99/,
      ],
      ['a limit that nobody made', lines.filter((_, index) => index !== made), /which is not there/],
      [
        'a limit of another form',
        edited(made, (row) => detail({ limit: { ...limitOf(row), cheap: 1 } })(row)),
        /does not carry the state of a limit/,
      ],
    ]
    const found = judged(t, cases)
    for (const [place, [name, , problem]] of cases.entries()) {
      t.ok(Number(found[place]?.disagree) > 0, name)
      t.match(found[place]?.problem, problem, name)
    }
    const unrouted = lines.map((row) => (row.status === 'allowed' ? without(row, 'routed') : row))
    const unlike = edited(at('denied'), detail({ refused_by: 'x' }))
    const [whole, unsaid, by] = judged(t, [
      ['honest', lines],
      ['rows that do not say how they were routed', unrouted],
      ['who refused it is not asked', unlike],
    ])
    t.match(
      [whole, by],
      [
        { disagree: 0, why: {} },
        { disagree: 0, why: {} },
      ],
    )
    const why = { 'in one point: limits for something that the row does not say': 3 }
    t.match(unsaid, { disagree: 0, why })
  },
)

t.test('windows that are over are forgotten a day later, and no call under way is', async (t) => {
  const history = new MeteredHistory()
  for (const limit of LIMITS.filter(({ id }) => id === 'lim_each')) history.set('created', limit)
  history.begin(BOT, 'local')
  const spans = () => {
    const walk = recomputer()
    for (const row of chainOf(history.rows)) walk.add(row)
    t.match(walk.result(), { disagree: 0, problems: [] })
    return Object.keys(walk.state().limits?.lim_each?.meters ?? {}).length
  }
  for (let hour = 0; hour < 40; hour += 1) {
    history.at += 3_600_000
    history.begin(RED, 'local')
    history.end(1)
  }
  t.equal(spans(), 26, 'those of a day, the one of now, and the one that a call holds')
  history.end()
  history.at += 3_600_000
  history.begin(RED, 'local')
  t.equal(spans(), 25)
  sameStates(t as Test, parsed(exportOf(chainOf(history.rows))))
})

t.test('a refusal is held against its meter as it was then, as long as that is remembered', async (t) => {
  const history = new MeteredHistory()
  for (const limit of LIMITS.filter(({ id }) => id === 'lim_once')) history.set('created', limit)
  for (const allowed of [true, true, false]) t.equal(history.begin(BOT, 'local'), allowed)
  const late = history.rows.splice(-1)
  const saidAfter = (calls: number) => {
    for (let call = 0; call < calls; call += 1) {
      history.end()
      history.begin(BOT, 'local')
    }
    const walk = recomputer()
    for (const row of chainOf([...history.rows, ...late])) walk.add(row)
    const { disagree, not_recomputable: why } = walk.result()
    return { disagree, why }
  }
  t.same(saidAfter(100), { disagree: 0, why: {} })
  const why = { 'limits whose meter has gone on since': 1 }
  t.same(
    saidAfter(MAX_PAST_METERS / 2),
    { disagree: 0, why },
    'memory is bounded: not decided, and not wrong',
  )
})
