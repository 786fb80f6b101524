import t from 'tap'
import type { MeterRefusal, MeterReservation } from '../../../db/ledger/meters/meter-book.ts'
import { KnownFull } from '../../../plugins/limits/known-full.ts'

const KEY = { limit: 'lim_1', who: '', span: 'ever' }
const OVER: MeterRefusal = { ...KEY, n: 7, used: 5, spent: 4, took: 2, most: 4 }
const wish = (took: number, most: number): MeterReservation => ({ ...KEY, took, most, refuses: true })

t.test('a meter that is known to be full refuses the calls that have no room, and no others', async (t) => {
  const full = new KnownFull()
  full.note(OVER, 1)
  t.same(full.find(wish(3, 4), 1), { ...OVER, took: 3 }, 'with its own numbers')
  t.same(full.find(wish(1, 3), 1), { ...OVER, took: 1, most: 3 }, 'an override that gave more has ended')
  t.equal(full.find(wish(1, 5), 1), undefined, 'one that gave less has')
  t.equal(full.find(wish(0, 4), 1), undefined, 'what costs nothing fits')
  t.equal(full.find(wish(3, 4), 2), undefined, 'limits have changed')
  full.note({ ...OVER, span: 'now' }, 1)
  t.equal(full.find({ ...wish(3, 4), span: 'now' }, 1), undefined, 'calls under way end')
})
