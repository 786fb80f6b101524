import t from 'tap'
import { LedgerPlaces } from '../../../../proxy/admin/operation/ledger-places.ts'
import { CallHangup } from '../../../../proxy/http/open-calls.ts'

const MIB = 1_048_576

/** Readings of exports, on a clock of the test's own. */
function exportsOn() {
  let now = 0
  const places = new LedgerPlaces(() => now)
  const begin = async (id: string, pieceBytes = MIB) => {
    const opened: AbortSignal[] = []
    const read = await places.stream(
      'exports',
      { actor: { id }, hangup: new CallHangup() },
      async (signal) => {
        opened.push(signal)
        return endless(pieceBytes)
      },
    )
    const pieces = read[Symbol.asyncIterator]()
    return {
      /** Reads so many pieces. */
      on: async (count: number): Promise<void> => {
        for (let one = 0; one < count; one += 1) await pieces.next()
      },
      ended: () => opened[0]?.aborted ?? false,
      leave: () => pieces.return?.(),
    }
  }
  return {
    begin,
    later: (ms: number): void => {
      now += ms
    },
  }
}

async function* endless(bytes: number): AsyncGenerator<Uint8Array> {
  for (;;) yield new Uint8Array(bytes)
}

const WAITS = {
  reason: 'overloaded',
  message: '6 readings of the ledger are under way. Try again when one is done.',
}

await t.test('H2: who reads an export slowly gives his place to whoever finds none', async (t) => {
  const { begin, later } = exportsOn()
  const all = await Promise.all(['a', 'a', 'b', 'b', 'c', 'c'].map((id) => begin(id)))
  const paces = [20, 20, 3, 2, 20, 20]
  const readOn = () => Promise.all(all.map((one, index) => one.on(paces[index] ?? 0)))
  await readOn()
  await t.rejects(begin('d'), WAITS, 'not before its first minute is over')
  later(60_000)
  await t.rejects(begin('a'), { reason: 'overloaded', message: /^2 of your readings of the ledger/ })
  t.notOk(
    all.some(({ ended }) => ended()),
    'nor for who has his own share',
  )
  const next = [await begin('d')]
  t.same(
    all.map(({ ended }) => ended()),
    [false, false, false, true, false, false],
    'the slowest',
  )
  await t.rejects(
    all[3]?.on(1) ?? Promise.resolve(),
    /read too slowly/,
    'what it has got does not look whole',
  )
  all.splice(3, 1)
  paces.splice(3, 1)
  next.push(await begin('e'))
  t.ok(all[2]?.ended(), 'then the next')
  all.splice(2, 1)
  paces.splice(2, 1)
  for (let minute = 0; minute < 3; minute += 1) {
    await readOn()
    await Promise.all(next.map((one) => one.on(20)))
    later(30_000)
    await t.rejects(begin('f'), WAITS, 'nobody who reads on')
    later(30_000)
  }
})

await t.test(
  'H2: a fast beginning buys no slow end; while there are places anybody is as slow as he likes',
  async (t) => {
    const { begin, later } = exportsOn()
    const all = await Promise.all(['a', 'a', 'b', 'b', 'c'].map((id) => begin(id)))
    await Promise.all(all.map((one) => one.on(100)))
    later(3_600_000)
    const last = await begin('c')
    t.notOk(all.some(({ ended }) => ended()))
    await Promise.all(all.slice(1).map((one) => one.on(20)))
    await last.on(20)
    later(60_000)
    await begin('d')
    t.same(
      all.map(({ ended }) => ended()),
      [true, false, false, false, false],
    )
    await last.leave()
    await begin('e')
    t.equal(all.filter(({ ended }) => ended()).length, 1, 'a place that was left is taken first')
  },
)
