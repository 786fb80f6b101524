import { setImmediate } from 'node:timers/promises'
import fc from 'fast-check'
import t from 'tap'
import { peakReservation } from '../../../plugins/collect.ts'
import { CallHangup, type MemoryAccount, MemoryBudget } from '../../../proxy/http/open-calls.ts'
import { refused } from '../../support/refused.ts'

const account = (
  budget: MemoryBudget,
  id: string,
  capabilities: readonly string[] = ['x'],
): MemoryAccount => {
  const held = budget.open()
  held.setOwner({ principal: { id, capabilities } })
  return held
}

const MIB = 1024 * 1024
/** Lets those that wait try again, and be told. */
const turns = async (): Promise<void> => {
  for (let i = 0; i < 3; i += 1) await setImmediate()
}
const budgetOf = (whole: number, share: number, little: number, onRefused = () => {}): MemoryBudget =>
  new MemoryBudget({ process: whole * MIB, perPrincipal: share * MIB, perAnonymous: little * MIB }, onRefused)

await t.test('A4: a caller holds its share, and never more than it leaves free', async (t) => {
  let refusals = 0
  const budget = budgetOf(120, 50, 10, () => {
    refusals += 1
  })
  const alice = account(budget, 'alice')
  t.ok(alice.tryReserve(50 * MIB))
  t.notOk(alice.tryReserve(1), 'past its share')
  t.notOk(account(budget, 'alice').tryReserve(1), 'which is one for all of its calls')
  t.ok(account(budget, 'bob').tryReserve(35 * MIB))
  t.notOk(account(budget, 'bob').tryReserve(1), 'half of what was left')
  t.ok(account(budget, 'carol').tryReserve(17 * MIB), 'and so on')
  t.notOk(account(budget, 'empty', []).tryReserve(11 * MIB), 'without a capability')
  t.notOk(budget.open().tryReserve(11 * MIB), 'a stranger')
  t.ok(budget.open().tryReserve(9 * MIB))
  t.equal(budget.held, 111 * MIB)
  t.equal(refusals, 0)
  await t.rejects(async () => alice.reserveAnswerInTurn(60 * MIB), refused('overloaded'), 'it can never fit')
  t.equal(refusals, 1)
  t.strictSame(budget.refusal().headers, { 'retry-after': '1' })
  t.end()
})

await t.test('A4: what a call holds counts until it ends, and once', (t) => {
  const budget = budgetOf(1000, 500, 10)
  const held = account(budget, 'alice')
  held.tryReserve(100)
  t.equal(held.reserveAnswerInTurn(30), undefined)
  t.equal(held.reserveReply(20), undefined)
  t.equal(budget.held, 130, 'an answer that was counted as it came')
  t.equal(held.reserveReply(45), undefined)
  t.equal(budget.held, 145, 'and one that is longer when it is sent')
  held.setOwner({})
  held.release()
  t.equal(budget.held, 0)
  held.tryReserve(5)
  held.end()
  t.equal(budget.held, 0)
  t.notOk(held.tryReserve(1), 'what comes later is not counted')
  held.end()
  t.equal(budget.held, 0)
  t.end()
})

await t.test('A4: long bodies leave a quarter of a share to short ones and to answers', async (t) => {
  const budget = budgetOf(1000, 100, 10)
  const alice = account(budget, 'alice')
  t.equal(alice.reserveInTurn(75 * MIB, true), undefined)
  const late = account(budget, 'alice').reserveInTurn(MIB, true)
  t.ok(late instanceof Promise, 'one more waits')
  t.equal(account(budget, 'alice').reserveInTurn(65_536, true), undefined, 'a short one does not')
  t.equal(account(budget, 'alice').reserveAnswerInTurn(24 * MIB), undefined, 'nor does an answer')
  alice.end()
  await late
  t.end()
})

await t.test('A4: a caller that holds nothing else may hold one of the longest bodies', async (t) => {
  const budget = budgetOf(64, 16, 8)
  const alice = account(budget, 'alice')
  t.equal(alice.reserveInTurn(32 * MIB, true), undefined)
  t.ok(account(budget, 'alice').reserveInTurn(MIB, true) instanceof Promise)
  const empty = async (): Promise<void> => account(budget, 'empty', []).reserveInTurn(9 * MIB, true)
  await t.rejects(empty, refused('overloaded'), 'one without any capability may not, so it does not wait')
  alice.end()
  t.equal(account(budget, 'bob').reserveInTurn(32 * MIB, true), undefined)
  t.end()
})

await t.test(
  'A4: what waits has its turn as it came, callers by turns, and the short ones between',
  async (t) => {
    const budget = budgetOf(1000, 8, 8)
    const [alice, bob] = [account(budget, 'alice'), account(budget, 'bob')]
    alice.tryReserve(8 * MIB)
    bob.tryReserve(8 * MIB)
    const order: string[] = []
    const waits = (name: string, mebibytes: number): MemoryAccount => {
      const held = account(budget, name.split(' ')[0] ?? '')
      void held.reserveInTurn(mebibytes * MIB, true)?.then(() => order.push(name))
      return held
    }
    const [first] = [waits('alice 1', 3), waits('alice 2', 4), waits('alice 3', 2), waits('bob 1', 3)]
    const short = account(budget, 'alice')
    t.equal(short.reserveInTurn(65_536, true), undefined, 'a short one does not wait')
    short.end()
    await turns()
    t.strictSame(order, [], 'nothing else fits')
    alice.end()
    bob.end()
    await turns()
    t.strictSame(order, ['alice 1', 'bob 1', 'alice 3'])
    t.equal(budget.held, 8 * MIB)
    first.end()
    await turns()
    t.strictSame(order.slice(3), ['alice 2'])
    t.end()
  },
)

await t.test(
  'A4: a caller of which nothing is under way does not wait for one that fills the line',
  async (t) => {
    const budget = budgetOf(64, 16, 8)
    const hangup = new CallHangup()
    const others = ['a', 'b', 'c', 'd'].map((name) => account(budget, name))
    for (const one of others) one.tryReserve(12 * MIB)
    const refusals: unknown[] = []
    const waits = (name: string): void => {
      const held = budget.open(null, hangup)
      held.setOwner({ principal: { id: name, capabilities: ['x'] } })
      held.reserveInTurn(13 * MIB, true)?.catch((error: unknown) => refusals.push(error))
    }
    for (const name of ['a', 'b', 'c', 'd', 'd']) for (let i = 0; i < 256; i += 1) waits(name)
    await turns()
    t.equal(refusals.length, 256, 'each has a quarter of the line')
    waits('e')
    await turns()
    t.equal(refusals.length, 257, 'and the newest of one that has most goes for a newcomer')
    t.match(refusals.at(-1), refused('overloaded'))
    hangup.hangUp()
    await turns()
    for (const one of others) one.end()
    t.end()
  },
)

await t.test('A4: what has waited its time is refused, and holds nothing', async (t) => {
  let refusals = 0
  let waits = 0
  const limits = { process: 64 * MIB, perPrincipal: 16 * MIB, perAnonymous: 8 * MIB }
  const budget = new MemoryBudget(
    limits,
    () => (refusals += 1),
    () => (waits += 1),
    1,
  )
  const held = account(budget, 'alice')
  held.tryReserve(16 * MIB)
  await t.rejects(async () => account(budget, 'alice').reserveInTurn(MIB, true), refused('overloaded'))
  await t.rejects(async () => account(budget, 'alice').reserveAnswerInTurn(MIB), refused('overloaded'))
  t.strictSame([refusals, waits, budget.held], [2, 2, 16 * MIB])
  held.end()
  t.equal(account(budget, 'alice').reserveInTurn(MIB, true), undefined, 'and keeps nobody else waiting')
  t.end()
})

await t.test('A4: whoever hangs up while it waits holds nothing, and keeps nobody waiting', async (t) => {
  const budget = budgetOf(1000, 8, 8)
  const held = account(budget, 'alice')
  held.tryReserve(8 * MIB)
  const hangup = new CallHangup()
  const gone = budget.open(null, hangup)
  gone.setOwner({ principal: { id: 'alice', capabilities: ['x'] } })
  const waited = gone.reserveInTurn(6 * MIB, true)
  hangup.hangUp()
  await t.rejects(async () => waited, refused('client_gone'))
  await t.rejects(async () => gone.reserveInTurn(6 * MIB, true), refused('client_gone'))
  held.end()
  const next = account(budget, 'alice')
  t.equal(next.reserveInTurn(6 * MIB, true), undefined)
  next.end()
  t.equal(budget.held, 0)
  t.end()
})

await t.test('A4: of something that grows and shrinks the most counts', (t) => {
  const budget = budgetOf(1000, 50, 10)
  const fits = peakReservation(account(budget, 'alice'))
  t.strictSame(
    [10, 40, 20, 40, 50].map((length) => fits(length * MIB)),
    [true, true, true, true, true],
  )
  t.equal(budget.held, 50 * MIB)
  t.notOk(fits(51 * MIB))
  t.ok(peakReservation(null)(1e9))
  t.end()
})

await t.test('A4: whatever callers do, one that holds little is not refused, and all is given back', (t) => {
  const act = fc.tuple(fc.nat(5), fc.nat(400 * MIB), fc.boolean())
  const property = fc.property(fc.array(act, { maxLength: 60 }), (acts) => {
    const budget = budgetOf(1000, 1000, 1)
    const open = Array.from({ length: 6 }, (_, i) => account(budget, `p${i}`))
    for (const [who, bytes, ends] of acts) {
      if (ends) open[who]?.release()
      else open[who]?.tryReserve(bytes)
      if (budget.held > 1000 * MIB + 6 * 65_536) return false
      const small = account(budget, 'small')
      if (!small.tryReserve(65_536)) return false
      small.end()
    }
    for (const held of open) held.end()
    return budget.held === 0
  })
  fc.assert(property)
  t.end()
})
