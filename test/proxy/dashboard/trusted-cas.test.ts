import { createPrivateKey } from 'node:crypto'
import t from 'tap'
import { certificateRequest } from '../../../scripts/client/renewal/certificate-request.ts'
import { corporateCa, trustDomain } from '../../support/foreign.ts'
import { testGateway } from '../../support/gateway.ts'
import { signedInBySecret } from '../../support/oidc/jar.ts'

await t.test('H7 the pages say which CA vouches for whom, and replace one without an outage', async (t) => {
  const gateway = await testGateway(t)
  const [old, next] = [await trustDomain(), await trustDomain()]
  const attach = async (ca_pem: string): Promise<string> =>
    (await gateway.admin('POST', '/v1/admin/ca/attach', { ca_pem, kind: 'spiffe' })).json[0].digest
  const first = await attach(old.caPem)
  const { certPem, keyPem } = await old.svid('spiffe://spire.test/pay')
  const body = { agent_name: 'pay', svid_pem: certPem, svid_key_pem: keyPem }
  await gateway.admin('POST', '/v1/admin/agents/enroll/spiffe', body)
  const second = await attach(next.caPem)
  const jar = await signedInBySecret(gateway)
  const { csrf } = (await jar.ask('GET', '/v1/admin/session')).json
  const send = async (path: string, fields: Readonly<Record<string, string>> = {}) =>
    (await jar.send(path, { ...fields, csrf })).headers.location
  const text = async (path: string) => (await jar.ask('GET', path)).text
  const agent = '/proxy/agents/acme%3A%3Apay'
  const third = `${next.caPem}${(await trustDomain()).caPem}`
  const inPart = await jar.send('/proxy/pki', { csrf, ca_pem: third, kind: 'organisation' })
  t.match(inPart.text, /line 1, O=acme, CN=spire: This CA is attached already\./)

  t.match(await text('/proxy/pki'), /1 agent, the only CA of 1/)
  t.match(await text('/proxy/pki'), /lock 1 out/)
  const relied = await jar.send(`/proxy/pki/${first}/detach`, { csrf })
  t.equal(relied.status, 409, 'the box is empty')
  t.match(relied.text, /rely on this CA alone/)
  t.equal(await send(`/proxy/pki/${second}/vouch`, { as: first }), '/proxy/pki?notice=trusted')
  t.match(await text('/proxy/pki'), /1 agent<[\s\S]*1 agent</)
  t.match(await text(agent), first)
  t.equal(await send(`${agent}/trusted-cas/${first}/withdraw`), `${agent}?notice=distrusted`)
  t.match(await text(agent), 'Let another CA vouch for it')
  t.equal(await send(`${agent}/trusted-cas`, { digest: first }), `${agent}?notice=trusted`)
  t.equal(await send(`/proxy/pki/${first}/detach`), '/proxy/pki?notice=detached')
  t.equal(await send(`/proxy/pki/${second}/detach`, { lock_out: 'true' }), '/proxy/pki?notice=detached')
  t.match(await text(agent), 'None: nobody can call as this agent.')
  t.match(await text(agent), 'Replace its trust bundle')
  const bundle = `${agent}/trust-bundle`
  t.equal(await send(bundle, { trust_bundle_pem: next.caPem }), `${agent}?notice=bundle_replaced`)
  t.match(await text(agent), 'Its own trust bundle')
  t.equal((await jar.send(bundle, { csrf, trust_bundle_pem: 'no' })).status, 422)
  const twice = await jar.send(bundle, { csrf, trust_bundle_pem: `${next.caPem}${next.caPem}` })
  t.match(twice.text, /line \d+, O=acme, CN=spire: The text holds this certificate twice\./)
  const last = { trust_bundle_pem: old.caPem, grace_hours: '2' }
  t.equal(await send(bundle, last), `${agent}?notice=bundle_replaced`)
  t.match(await text(agent), 'replaced; honoured until')
  t.match(await text(agent), 'End the replaced ones now')
  t.equal(await send(`${bundle}/end`), `${agent}?notice=bundle_ended`)
  t.notMatch(await text(agent), 'replaced; honoured until')
  t.equal((await jar.send(`${bundle}/end`, { csrf })).status, 404, 'there are none any more')
  const [ended] = await gateway.rows({ action: 'ca.bundle_replaced', order: 'desc' })
  t.match(ended?.detail, { previous_bundles: [], previous_valid_until: null })
  t.same(ended?.detail.digests, ended?.detail.previous, 'its own stays')
  const corporate = await corporateCa()
  const [leaf, renewed] = [await corporate.leaf('own'), await corporate.leaf('own')]
  await gateway.admin('POST', '/v1/admin/ca/attach', { ca_pem: corporate.caPem, kind: 'organisation' })
  const enrolling = { agent_name: 'own', cert_pem: leaf.certPem, private_key_pem: leaf.keyPem }
  await gateway.admin('POST', '/v1/admin/agents/enroll/byoca', enrolling)
  const own = '/proxy/agents/acme%3A%3Aown'
  t.match(await text(own), 'Its own certificate, renewed')
  const csr_pem = certificateRequest(createPrivateKey(renewed.keyPem))
  const pinned = await send(`${own}/certificate`, { cert_pem: renewed.certPem, csr_pem })
  t.equal(pinned, `${own}?notice=leaf_pinned`)
  const [row] = await gateway.rows({ action: 'ca.detached', order: 'desc' })
  t.equal(row?.detail.locked_out, 1)
})
