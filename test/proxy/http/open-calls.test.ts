import fc from 'fast-check'
import t from 'tap'
import { peakReservation } from '../../../plugins/collect.ts'
import { type MemoryAccount, MemoryBudget } from '../../../proxy/http/open-calls.ts'
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
const budgetOf = (whole: number, share: number, little: number, onRefused = () => {}): MemoryBudget =>
  new MemoryBudget({ process: whole * MIB, perPrincipal: share * MIB, perAnonymous: little * MIB }, onRefused)

await t.test('A4: a caller holds its share, and never more than it leaves free', (t) => {
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
  t.throws(() => alice.reserveAnswer(1), refused('overloaded'))
  t.throws(() => alice.requireRoom(1), refused('overloaded'))
  t.equal(refusals, 2)
  t.strictSame(budget.refusal().headers, { 'retry-after': '1' })
  t.end()
})

await t.test('A4: what a call holds counts until it ends, and once', (t) => {
  const budget = budgetOf(1000, 500, 10)
  const held = account(budget, 'alice')
  held.tryReserve(100)
  held.reserveAnswer(30)
  held.reserveReply(20)
  t.equal(budget.held, 130, 'an answer that was counted as it came')
  held.reserveReply(45)
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
