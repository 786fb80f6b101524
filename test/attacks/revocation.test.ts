import { writeFile } from 'node:fs/promises'
import { request } from 'node:https'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import t from 'tap'
import { trustDomain } from '../support/foreign.ts'
import { agentOf, CHAT, type Identity, type TestGateway, testGateway } from '../support/gateway.ts'
import { eventually } from '../support/settled.ts'

const EVENT = 'data: {"choices":[{"index":0,"delta":{"content":"tick"}}]}\n\n'

/** Opens a stream that never ends by itself; resolves once its first event is here. */
async function openStream(gateway: TestGateway, who: Identity) {
  gateway.upstream.answer = (res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(EVENT)
  }
  const agent = agentOf(gateway.ca, who)
  const headers = { 'content-type': 'application/json' }
  const req = request(`${gateway.url}/v1/chat/completions`, { method: 'POST', agent, headers })
  req.end(JSON.stringify({ ...CHAT, stream: true }))
  const res = await new Promise<import('node:http').IncomingMessage>((resolve) =>
    req.once('response', resolve),
  )
  const first = await new Promise<Buffer>((resolve) => res.once('data', resolve))
  const rest = text(res).then(
    (tail) => ({ tail, clean: true }),
    () => ({ tail: '', clean: false }),
  )
  return { first: first.toString(), rest, agent }
}

for (const [what, revoke] of [
  [
    'its capability',
    (g: TestGateway, id: string) =>
      g.admin('PATCH', `/v1/admin/agents/${id}/capabilities`, { capabilities: [] }),
  ],
  ['its principal', (g: TestGateway, id: string) => g.admin('DELETE', `/v1/admin/agents/${id}`)],
  [
    'its certificate',
    (g: TestGateway, id: string) => g.admin('POST', `/v1/admin/agents/${id}/rotate-cert`, { grace_hours: 0 }),
  ],
  [
    'its certificate, which is in the grace of a newer one,',
    async (g: TestGateway, id: string) => {
      const { cert_thumbprint: stolen } = (await g.admin('GET', `/v1/admin/agents/${id}`)).json
      await g.admin('POST', `/v1/admin/agents/${id}/rotate-cert`, {})
      return g.admin('DELETE', `/v1/admin/agents/${id}/certificates/${stolen}`)
    },
  ],
] as const) {
  await t.test(
    `M-06 a stream that is open when ${what} is revoked is cut, and never ends cleanly`,
    async (t) => {
      const gateway = await testGateway(t)
      const bot = await gateway.enroll('bot', ['llm.chat'])
      const eve = await gateway.enroll('eve', ['llm.chat'])
      const cut = await openStream(gateway, bot)
      const kept = await openStream(gateway, eve)
      t.equal(cut.first, EVENT)
      await revoke(gateway, bot.id)
      const { clean } = await cut.rest
      t.notOk(clean, 'the connection was destroyed')
      const cutRows = () => gateway.rows({ action: 'egress_llm_chat', status: 'truncated' })
      const [outcome] = await eventually(cutRows, (rows) => rows.length === 1)
      t.match(outcome, { principal_id: bot.id, detail: { ending: 'revoked' } })
      t.equal((await gateway.rows({ principal: eve.id, status: 'truncated' })).length, 0, 'nobody else’s was')
      kept.agent.destroy()
      cut.agent.destroy()
      await kept.rest
    },
  )
}

await t.test('H7 a stream of an SVID is cut when no CA vouches for its agent any more', async (t) => {
  const gateway = await testGateway(t)
  const spire = await trustDomain()
  const attached = await gateway.admin('POST', '/v1/admin/ca/attach', { ca_pem: spire.caPem, kind: 'spiffe' })
  const [{ digest }] = attached.json
  const enrolled = async (name: string): Promise<Identity> => {
    const { certPem, keyPem } = await spire.svid(`spiffe://spire.test/${name}`)
    const body = { agent_name: name, capabilities: ['llm.chat'], svid_pem: certPem, svid_key_pem: keyPem }
    const { json } = await gateway.admin('POST', '/v1/admin/agents/enroll/spiffe', body)
    const { certPem: cert, keyPem: key } = await spire.svid(`spiffe://spire.test/${name}`)
    return { id: json.agent_id, cert, key }
  }
  const cases = [
    ['withdrawn', (id: string) => `/v1/admin/agents/${id}/trusted-cas/${digest}`],
    ['detached', () => `/v1/admin/ca/${digest}?lock_out=true`],
  ] as const
  for (const [name, path] of cases) {
    const who = await enrolled(name)
    const stream = await openStream(gateway, who)
    t.equal((await gateway.admin('DELETE', path(who.id))).status, 204)
    t.notOk((await stream.rest).clean, name)
    stream.agent.destroy()
  }
})

await t.test('H3 a stream that came without a proof is cut once a reload demands proofs', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const open = await openStream(gateway, bot)
  t.equal(open.first, EVENT)
  const dpop = (text: string) =>
    writeFile(join(gateway.pluginsDir, '20-dpop.yaml'), `plugin: dpop\n${text}\n`)
  await dpop('egress_dpop_mode: off')
  t.ok(await gateway.reload(), 'which demands less, and cuts nothing')
  await dpop('egress_dpop_mode: required')
  t.ok(await gateway.reload())
  t.notOk((await open.rest).clean, 'the connection was destroyed')
  const cutRows = () => gateway.rows({ action: 'egress_llm_chat', status: 'truncated' })
  const [outcome] = await eventually(cutRows, (rows) => rows.length === 1)
  t.match(outcome, { principal_id: bot.id, detail: { ending: 'revoked' } })
  open.agent.destroy()
})
