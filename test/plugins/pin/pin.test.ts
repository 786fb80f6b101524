import { createHash, createHmac, randomBytes } from 'node:crypto'
import t from 'tap'
import type { PinnedPrincipal } from '../../../db/principals/pins.ts'
import { commitmentsBy, pin } from '../../../plugins/pin/pin.ts'
import type { Peer } from '../../../plugins/plugin.ts'
import { arrival } from '../../support/plugins/arrival.ts'
import { refused } from '../../support/refused.ts'

const AT = Date.UTC(2026, 0, 1)
const DAY = 86_400_000
// The certificate itself is not looked at: only what TLS proved about it.
const peer = { thumbprint: 'ab', notBefore: AT - DAY, notAfter: AT + DAY } as Peer
const pinned: PinnedPrincipal = {
  principal_id: 'acme::bot',
  principal_ref: 'acme::bot',
  principal_type: 'agent',
  capabilities: ['llm.chat'],
  is_active: true,
  dpop_jkt: null,
  previous_dpop_jkt: null,
  previous_dpop_jkt_until: null,
  authority_revision: 7,
  not_before: '',
  not_after: '',
  is_current: true,
  grace_until: null,
}

const KEYS = { known: new Map(), open: () => Buffer.alloc(32) }

const admit = async (found: PinnedPrincipal | undefined, over: { peer?: Peer | null; at?: number } = {}) =>
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
      const { salt, of, hashing } = commitmentsBy(key, 'req_é')
      const expected = createHmac('sha256', key).update('req_ébody_sha256').digest().subarray(0, 16)
      t.same(salt('body_sha256'), expected, `a key of ${length} bytes`)
      const opened = createHash('sha256').update(expected).update('body').digest('hex')
      t.equal(of('body_sha256', 'body'), opened)
      t.equal(hashing('body_sha256').update('body').digest('hex'), opened)
      t.notSame(salt('arguments_sha256'), expected, 'each member has its own')
    }
    t.end()
  },
)
