import t from 'tap'
import { SessionSeal } from '../../../../proxy/mcp/state/shared-sessions.ts'

const SECRET = Buffer.alloc(32, 1)
const FACTS = {
  principalId: 'acme::bot',
  resourceId: 'mcp_1',
  capabilities: { elicitation: {}, roots: { listChanged: true } },
  clientInfo: { name: 'client', version: '1' },
  until: 1_000,
}

await t.test('a session id says all of its session to who has the secret, and to nobody else', (t) => {
  const id = new SessionSeal(SECRET).seal(FACTS) ?? ''
  t.same(new SessionSeal(SECRET).open(id), FACTS)
  t.equal(new SessionSeal(Buffer.alloc(32, 2)).open(id), undefined)
  t.match(id, /^[\w-]{16}\.[\w-]+$/)
  t.notMatch(Buffer.from(id.split('.')[1] ?? '', 'base64url').toString('latin1'), /acme/)
  t.not(new SessionSeal(SECRET).seal(FACTS), id, 'of the same facts another one')
  t.end()
})

await t.test('threat 6: any other text is no session', (t) => {
  const seal = new SessionSeal(SECRET)
  const id = seal.seal(FACTS) ?? ''
  for (let place = 0; place < id.length; place += 1) {
    const other = id[place] === 'A' ? 'B' : 'A'
    t.equal(seal.open(id.slice(0, place) + other + id.slice(place + 1)), undefined, `at ${place}`)
    t.equal(seal.open(id.slice(0, place)), undefined, `to ${place}`)
  }
  for (const text of [`${id}=`, `${id}A`, `${id}.A`, ` ${id}`, '', '.', 'x'.repeat(10_000), 'made-up'])
    t.equal(seal.open(text), undefined, text.slice(0, 20))
  t.end()
})

await t.test('an id that no header would hold is not made', (t) => {
  const seal = new SessionSeal(SECRET)
  const x = Array.from({ length: 9_000 }, () => Math.random().toString(36)[3]).join('')
  t.equal(seal.seal({ ...FACTS, capabilities: { x } }), null)
  const same = { x: 'x'.repeat(16_000) }
  t.same(seal.open(seal.seal({ ...FACTS, capabilities: same }) ?? '')?.capabilities, same)
  t.end()
})
