import t from 'tap'
import { weightedOrder } from '../../../../proxy/llm/health/weights.ts'

const of = (weights: Readonly<Record<string, number | undefined>>) =>
  Object.entries(weights).map(([name, weight]) => ({ provider: { name, weight } }))
const orderOf = (targets: ReturnType<typeof of>, key: string): string =>
  weightedOrder(targets, key)
    .map(({ provider: { name } }) => name)
    .join(' ')

await t.test(
  'a conversation stays at one provider, and so do those that are left if another one goes',
  (t) => {
    const [all, fewer] = [of({ a: 1, b: 1, c: 1 }), of({ a: 1, c: 1 })]
    let moved = 0
    for (let key = 0; key < 300; key += 1) {
      const order = orderOf(all, `session-${key}`)
      if (orderOf(all, `session-${key}`) !== order) moved += 1
      if (orderOf(fewer, `session-${key}`) !== order.replace('b', '').replace('  ', ' ').trim()) moved += 1
    }
    t.equal(moved, 0)
    t.end()
  },
)

await t.test('the shares are those of the weights', (t) => {
  const targets = of({ a: 3, b: 1 })
  let first = 0
  for (let key = 0; key < 4_000; key += 1) if (orderOf(targets, `session-${key}`) === 'a b') first += 1
  // Five standard deviations of 27 each.
  t.ok(Math.abs(first - 3_000) < 137, `${first} of 4,000 for three of four`)
  t.end()
})

await t.test('a provider without a weight stays where the file has it', (t) => {
  for (let key = 0; key < 50; key += 1) {
    t.match(orderOf(of({ a: 1, b: 1, last: undefined }), String(key)), /^(?:a b|b a) last$/)
    t.match(orderOf(of({ first: undefined, a: 1, b: 1 }), String(key)), /^first /)
    t.match(orderOf(of({ a: 1, between: undefined, b: 1 }), String(key)), /^[ab] between [ab]$/)
  }
  t.equal(orderOf(of({ a: undefined, b: 5 }), 'x'), 'a b', 'one weight alone changes nothing')
  t.end()
})
