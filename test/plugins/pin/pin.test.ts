import { createHash, createHmac, randomBytes } from 'node:crypto'
import t from 'tap'
import type { PinnedPrincipal } from '../../../db/principals/pins.ts'
import { commitmentsBy, pin, recheckPin } from '../../../plugins/pin/pin.ts'
import type { TlsPeer } from '../../../plugins/plugin.ts'
import { arrival } from '../../support/plugins/arrival.ts'
import { refused } from '../../support/refused.ts'

const AT = Date.UTC(2026, 0, 1)
const DAY = 86_400_000
// The certificate itself is not looked at: only what TLS proved about it.
const peer = { thumbprint: 'ab', notBefore: AT - DAY, notAfter: AT + DAY } as TlsPeer
const pinned: PinnedPrincipal = {
  principal_id: 'acme::bot',
  principal_ref: 'acme::bot',
  principal_type: 'agent',
  capabilities: ['llm.chat'],
  candidate: null,
  is_active: true,
  dpop_jkt: null,
  previous_dpop_jkt: null,
  previous_dpop_jkt_until: null,
  authority_revision: 7,
  is_current: true,
  grace_until: null,
}

const KEYS = { known: new Map(), open: () => Buffer.alloc(32) }

const admit = async (found: PinnedPrincipal | undefined, over: { peer?: TlsPeer | null; at?: number } = {}) =>
  pin(() => found, KEYS).admit(arrival({ at: AT, peer, ...over }))

await t.test('§5.2 the pinned certificate of an active principal is known', async (t) => {
  const expected = {
    id: 'acme::bot',
    ref: 'acme::bot',
    type: 'agent',
    capabilities: ['llm.chat'],
    dpopJkt: null,
    previousDpopJkt: null,
    inGrace: false,
    revision: 7,
  }
  t.strictSame((await admit(pinned)).principal, expected)
  const slow = pin(() => Promise.resolve(pinned), KEYS)
  t.strictSame(
    (await slow.admit(arrival({ at: AT, peer }))).principal,
    expected,
    'also from a database behind a socket',
  )
})

await t.test('§5.2 everything else is refused', async (t) => {
  await t.rejects(admit(pinned, { peer: null }), refused('certificate_required'))
  await t.rejects(admit(undefined), refused('certificate_not_pinned'))
  await t.rejects(admit({ ...pinned, is_active: false }), refused('principal_deactivated'))
})

await t.test('T5 the dates of the certificate are asked on every request', async (t) => {
  await t.resolves(admit(pinned, { at: peer.notAfter }))
  await t.resolves(admit(pinned, { at: peer.notBefore }))
  await t.rejects(admit(pinned, { at: peer.notAfter + 1 }), refused('certificate_not_valid_now'))
  await t.rejects(admit(pinned, { at: peer.notBefore - 1 }), refused('certificate_not_valid_now'))
})

await t.test(
  'docs/protocol.md#rotation a previous certificate passes within its grace, marked, and not a moment longer',
  async (t) => {
    const previous = { ...pinned, is_current: false, grace_until: new Date(AT + 1).toISOString() }
    t.match(await admit(previous), { principal: { inGrace: true } })
    await t.rejects(admit(previous, { at: AT + 1 }), refused('certificate_not_pinned'))
    await t.rejects(admit({ ...previous, grace_until: null }), refused('certificate_not_pinned'))
  },
)

await t.test(
  'docs/ledger.md#commitments a salt is HMAC-SHA-256 cut to 16 bytes, whatever the key and the request',
  (t) => {
    for (const length of [0, 1, 32, 63, 64]) {
      const key = randomBytes(length)
      const commitments = commitmentsBy(key, 'req_é')
      const expected = createHmac('sha256', key).update('req_ébody_sha256').digest().subarray(0, 16)
      t.equal(commitments.salt('body_sha256'), expected.toString('hex'), `a key of ${length} bytes`)
      const opened = createHash('sha256').update(expected).update('body').digest('hex')
      t.equal(commitments.of('body_sha256', 'body'), opened)
      t.equal(commitments.hashing('body_sha256').update('body').digest('hex'), opened)
      t.not(commitments.salt('arguments_sha256'), expected.toString('hex'), 'each member has its own')
      t.equal(commitments.of('body_sha256', 'body'), opened, 'whichever was asked for last')
    }
    const commitments = commitmentsBy(randomBytes(32), 'req_1')
    const salt = Buffer.from(commitments.salt('body_sha256'), 'hex')
    for (const length of [0, 1, 4_095, 4_096, 4_097, 100_000]) {
      const text = '\u20ac'.repeat(length)
      for (const body of [text, Buffer.from(text), randomBytes(length)]) {
        const expected = createHash('sha256').update(salt).update(body).digest('hex')
        t.equal(commitments.of('body_sha256', body), expected, `${length} characters, or bytes`)
      }
    }
    t.end()
  },
)

/** A pin whose look-ups are counted, and the clock that says how old the last one is. */
function asked(found: () => PinnedPrincipal | undefined) {
  let looks = 0
  let passed = 0
  const lookup = () => {
    looks += 1
    return found()
  }
  const plugin = pin(lookup, KEYS, undefined, () => passed)
  return {
    plugin,
    again: recheckPin(plugin, () => passed),
    pass: (ms: number): void => {
      passed += ms
    },
    looks: () => looks,
  }
}

await t.test(
  'M-06 an answer of the database stands for a tenth of a second, and then it is asked',
  async (t) => {
    let now: PinnedPrincipal | undefined = pinned
    const { plugin, again, pass, looks } = asked(() => now)
    const arrived = arrival({ at: AT, peer })
    const facts = { ...arrived, ...(await plugin.admit(arrived)) }
    now = { ...pinned, capabilities: [], authority_revision: 8 }
    pass(99)
    t.equal((await again.admit(facts)).holder, facts.principal, 'whose revision the record asserts')
    t.equal(looks(), 1)
    pass(1)
    t.match((await again.admit(facts)).holder, { capabilities: [], revision: 8 })
    t.equal(looks(), 2)
    now = { ...pinned, is_active: false }
    t.throws(() => again.admit(facts), refused('principal_deactivated'))
    now = { ...pinned, is_current: false, grace_until: null }
    await t.rejects(async () => again.admit(facts), refused('certificate_not_pinned'))
    now = undefined
    await t.rejects(async () => again.admit(facts), refused('certificate_not_pinned'))
  },
)

await t.test('M-06 that an SVID chains to its CAs is asked each time: no revision counts them', async (t) => {
  let attached = true
  const bySpiffeId = async () => (attached ? pinned : undefined)
  const plugin = pin(
    () => undefined,
    KEYS,
    bySpiffeId,
    () => 0,
  )
  const arrived = arrival({ at: AT, peer })
  const facts = { ...arrived, ...(await plugin.admit(arrived)) }
  attached = false
  const again = recheckPin(plugin, () => 0)
  await t.rejects(async () => again.admit(facts), refused('certificate_not_pinned'))
})
