import t from 'tap'
import type { PinnedPrincipal } from '../../../db/principals/pins.ts'
import { pin } from '../../../plugins/pin/pin.ts'
import type { Peer } from '../../../plugins/plugin.ts'
import { arrival } from '../../support/plugins/arrival.ts'
import { refused } from '../../support/refused.ts'

const AT = Date.UTC(2026, 0, 1)
const DAY = 86_400_000
// The certificate itself is not looked at: only what TLS proved about it.
const peer = { thumbprint: 'ab', notBefore: AT - DAY, notAfter: AT + DAY } as Peer
const pinned: PinnedPrincipal = {
  principal_id: 'acme::bot',
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

const admit = async (found: PinnedPrincipal | undefined, over: { peer?: Peer | null; at?: number } = {}) =>
  pin(() => found).admit(arrival({ at: AT, peer, ...over }))

await t.test('§5.2 the pinned certificate of an active principal is known', async (t) => {
  const expected = {
    id: 'acme::bot',
    type: 'agent',
    capabilities: ['llm.chat'],
    dpopJkt: null,
    previousDpopJkt: null,
    inGrace: false,
    revision: 7,
  }
  t.strictSame(await admit(pinned), { principal: expected })
  const slow = pin(() => Promise.resolve(pinned))
  t.strictSame(
    await slow.admit(arrival({ at: AT, peer })),
    { principal: expected },
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
