import { request } from 'node:https'
import { text } from 'node:stream/consumers'
import t from 'tap'
import { agentOf, type Identity, type TestGateway, testGateway } from '../support/gateway.ts'
import { request as rpc } from '../support/mcp/stage.ts'

/** Sends all of a body but its last byte, resolves once the gateway reads it, and answers what it says to the last. */
async function slowly(
  gateway: TestGateway,
  who: Identity,
  { path, body, type }: { readonly path: string; readonly body: string; readonly type: string },
): Promise<() => Promise<{ readonly status: number | undefined; readonly said: string }>> {
  const agent = agentOf(gateway.ca, who)
  const headers = {
    accept: 'application/json, text/event-stream',
    'content-type': type,
    'content-length': Buffer.byteLength(body),
    // Said once the pin was asked, and the body is read.
    expect: '100-continue',
  }
  const sent = request(gateway.url + path, { method: 'POST', agent, headers })
  const answered = new Promise<{ readonly status: number | undefined; readonly said: string }>(
    (resolve, reject) => {
      sent.once('error', reject)
      sent.once('response', (res) => {
        text(res).then((said) => resolve({ status: res.statusCode, said }), reject)
      })
    },
  )
  const read = new Promise<void>((resolve) => sent.once('continue', resolve))
  sent.flushHeaders()
  await read
  sent.write(body.slice(0, -1))
  return () => {
    sent.end(body.slice(-1))
    return answered.finally(() => agent.destroy())
  }
}

const JSON_TYPE = 'application/json'
const FORM_TYPE = 'application/x-www-form-urlencoded'
const INITIALIZE = rpc('initialize', {
  params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'a', version: '1' } },
}).body

/** The doors that open nothing by a capability, and read a body. */
const BODIES = {
  'a token': { path: '/v1/auth/token', body: 'grant_type=client_credentials', type: FORM_TYPE },
  'the handshake of MCP': { path: '/v1/mcp', body: JSON.stringify(INITIALIZE), type: JSON_TYPE },
  'the next certificate': { path: '/v1/auth/certificate', body: '{"csr_pem":"none"}', type: JSON_TYPE },
}

await t.test('H3 who is revoked while a body comes gets nothing for it, at every door', async (t) => {
  let monotonic = 0
  const gateway = await testGateway(t, { monotonic: () => monotonic })
  for (const [index, [what, asked]] of Object.entries(BODIES).entries()) {
    const [bot, eve] = [await gateway.enroll(`bot-${index}`, []), await gateway.enroll(`eve-${index}`, [])]
    const [last, others] = [await slowly(gateway, bot, asked), await slowly(gateway, eve, asked)]
    t.equal((await gateway.admin('DELETE', `/v1/admin/agents/${bot.id}`)).status, 204)
    monotonic += 1_000
    const { status, said } = await last()
    t.equal(status, 401, `${what}: ${said}`)
    t.match(said, 'principal_deactivated', what)
    t.notMatch((await others()).said, 'principal_deactivated', 'nobody else')
  }
  const granted = await gateway.enroll('granted', [])
  const last = await slowly(gateway, granted, BODIES['a token'])
  const body = { capabilities: ['llm.chat'] }
  t.equal((await gateway.admin('PATCH', `/v1/admin/agents/${granted.id}/capabilities`, body)).status, 200)
  monotonic += 1_000
  const { status, said } = await last()
  t.equal(status, 200, 'who was granted something meanwhile has a token')
  t.equal(JSON.parse(said).scope, 'llm.chat', 'by what it holds now')
  const rows = await gateway.rows({ action: 'token.issued' })
  t.same(new Set(rows.map(({ principal_id: id }) => id)), new Set(['acme::eve-0', 'acme::granted']))
})

await t.test('H19 no token is stored behind a revocation, however soon it comes', async (t) => {
  // Its clock stands still: the pin is not asked again.
  const gateway = await testGateway(t, { monotonic: () => 0 })
  const bot = await gateway.enroll('bot', [])
  const last = await slowly(gateway, bot, BODIES['a token'])
  await gateway.admin('DELETE', `/v1/admin/agents/${bot.id}`)
  t.match(await last(), { status: 401, said: /"reason":"principal_deactivated"/ }, 'judged again')
  t.same(await gateway.rows({ action: 'token.issued' }), [])
})
