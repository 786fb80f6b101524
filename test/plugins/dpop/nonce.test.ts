import { randomBytes } from 'node:crypto'
import t from 'tap'
import { NonceIssuer } from '../../../plugins/dpop/dpop.ts'

const AT = Date.UTC(2026, 0, 1)
const STEP_MS = 300_000

await t.test(
  'D-14 RFC 9449 §8.1 a nonce is of NQCHAR, of at least 128 bits, and no two are the same',
  async (t) => {
    // A step is five minutes: a year of them, for three secrets and both kinds of door.
    const found = new Set<string>()
    let made = 0
    for (let i = 0; i < 3; i += 1) {
      const nonces = new NonceIssuer(randomBytes(32))
      for (let step = 0; step < 105_120; step += 10) {
        for (const use of ['token', 'resource'] as const) {
          found.add(nonces.current(use, AT + step * STEP_MS))
          made += 1
        }
      }
    }
    t.equal(found.size, made)
    t.ok([...found].every((nonce) => /^[\x21\x23-\x5b\x5d-\x7e]+$/.test(nonce)))
    t.ok([...found].every((nonce) => Buffer.from(nonce, 'base64url').length * 8 >= 128))
  },
)

await t.test(
  'D-13 a nonce is fresh in its step and the next one, and not a millisecond longer',
  async (t) => {
    const nonces = new NonceIssuer(Buffer.alloc(32, 1))
    const nonce = nonces.current('resource', AT)
    const isFresh = (at: number): boolean => nonces.isFresh('resource', nonce, at)
    t.strictSame([AT, AT + STEP_MS - 1, AT + STEP_MS, AT + 2 * STEP_MS - 1, AT + 2 * STEP_MS].map(isFresh), [
      true,
      true,
      true,
      true,
      false,
    ])
    // As a replica sees it whose clock is behind that of the one which handed it out.
    t.strictSame([AT - STEP_MS - 1, AT - STEP_MS, AT - 1].map(isFresh), [false, true, true])
    t.not(
      nonces.current('resource', AT + STEP_MS),
      nonce,
      'D-14 a new one is handed out before the old one ends',
    )
  },
)

await t.test('D-13 a nonce of the one kind of door is none at the other', async (t) => {
  const nonces = new NonceIssuer(Buffer.alloc(32, 1))
  t.equal(nonces.isFresh('token', nonces.current('resource', AT), AT), false)
  t.equal(nonces.isFresh('resource', nonces.current('token', AT), AT), false)
})

await t.test(
  'D-13 replicas that share the secret accept each other’s nonces; another secret ends them',
  async (t) => {
    const one = new NonceIssuer(Buffer.alloc(32, 1))
    const two = new NonceIssuer(Buffer.alloc(32, 1))
    const other = new NonceIssuer(Buffer.alloc(32, 2))
    t.equal(two.isFresh('resource', one.current('resource', AT), AT), true)
    t.equal(other.isFresh('resource', one.current('resource', AT), AT), false)
  },
)

await t.test('D-13 what is no nonce is stale, of whatever length', async (t) => {
  const nonces = new NonceIssuer(Buffer.alloc(32, 1))
  const nonce = nonces.current('resource', AT)
  for (const text of ['', 'x', nonce.slice(1), `${nonce}A`, nonce.toLowerCase(), 'é'.repeat(22), '\ud800']) {
    t.equal(nonces.isFresh('resource', text, AT), false, JSON.stringify(text))
  }
})
