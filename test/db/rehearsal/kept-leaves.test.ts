import t from 'tap'
import type { WalkedPart, WalkScope } from '../../../db/ledger/rehearsal/rehearse.ts'
import { leafCache } from '../../../db/rehearsal/kept-leaves.ts'

const wanted = (name: string, since = '2026'): WalkScope => ({ since, until: '2027', principals: [name] })

/** A ledger of rows that are as long as their place, each read told. */
function ledger(rows: number) {
  const reads: number[] = []
  const state = { rows }
  function* read(_: WalkScope, after: number): Generator<WalkedPart, number> {
    reads.push(after)
    for (let place = after + 1; place <= state.rows; place += 1)
      yield { leaves: ['x'.repeat(place)], rows: place, of: state.rows }
    return state.rows
  }
  return { reads, state, read }
}

const lengthsOf = (parts: Iterable<WalkedPart>): readonly number[] =>
  [...parts].flatMap(({ leaves }) => [...leaves].map(({ length }) => length))

t.test(
  'docs/rehearsal.md#cost: the next question about a principal reads what was written since',
  async (t) => {
    const { reads, state, read } = ledger(3)
    const kept = leafCache()
    t.same(lengthsOf(kept('a', wanted('bot'), read)), [1, 2, 3])
    state.rows = 5
    t.same(lengthsOf(kept('a', wanted('bot', '2026-02'), read)), [1, 2, 3, 4, 5])
    t.same(reads, [0, 3])
    t.same(lengthsOf(kept('a', wanted('bot', '2025'), read)), [1, 2, 3, 4, 5], 'a window that begins earlier')
    t.same(lengthsOf(kept('b', wanted('bot'), read)), [1, 2, 3, 4, 5], 'another database')
    t.same(lengthsOf(kept('a', { ...wanted('bot'), callsAlone: true }, read)), [1, 2, 3, 4, 5], 'other rows')
    t.same(lengthsOf(kept('a', { ...wanted('bot'), principals: null }, read)), [1, 2, 3, 4, 5], 'everybody')
    t.same(reads, [0, 3, 0, 0, 0, 0])
  },
)

t.test('docs/rehearsal.md#cost: what is kept has an end, in walks and in characters', async (t) => {
  const { reads, read } = ledger(3)
  const kept = leafCache(6)
  for (const name of ['a', 'b', 'c', 'a', 'c']) t.same(lengthsOf(kept('f', wanted(name), read)), [1, 2, 3])
  t.same(reads, [0, 0, 0, 0, 3], 'two are kept')
  const less = leafCache(5)
  for (const _ of [1, 2]) t.same(lengthsOf(less('f', wanted('a'), read)), [1, 2, 3])
  t.same(reads.slice(-2), [0, 0], 'what is longer is read again')
})
