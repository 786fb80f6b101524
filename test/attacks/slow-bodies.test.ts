import t, { type Test } from 'tap'
import { ADMIN_SECRET, CHAT, type Identity, type TestGateway, testGateway } from '../support/gateway.ts'
import { rawConnect, requestBytes, statuses } from '../support/raw.ts'

interface Held {
  readonly method: string
  readonly path: string
  readonly headers?: readonly string[]
  readonly body: unknown
}

/** Sends a request up to its body; the returned function sends that, and resolves with the status. */
async function held(t: Test, gateway: TestGateway, who: Identity | null, request: Held) {
  const { method, path, headers = [] } = request
  const body = JSON.stringify(request.body)
  const { send, until } = await rawConnect(t, gateway, who)
  const length = `content-length: ${Buffer.byteLength(body)}`
  send(requestBytes(method, path, ['expect: 100-continue', 'connection: close', length, ...headers]))
  // Asked for by whatever reads the body, so everything that comes before it has been passed.
  await until('100 Continue')
  return async (): Promise<readonly number[]> => {
    send(body)
    return statuses(await until('x-request-id'))
  }
}

const chat = { method: 'POST', path: '/v1/chat/completions', body: CHAT } as const

for (const [what, status, revoke] of [
  ['its principal', 401, (g: TestGateway, id: string) => g.admin('DELETE', `/v1/admin/agents/${id}`)],
  [
    'its capability',
    403,
    (g: TestGateway, id: string) =>
      g.admin('PATCH', `/v1/admin/agents/${id}/capabilities`, { capabilities: [] }),
  ],
  [
    'its certificate',
    401,
    (g: TestGateway, id: string) => g.admin('POST', `/v1/admin/agents/${id}/rotate-cert`, { grace_hours: 0 }),
  ],
] as const) {
  await t.test(`M-06 a call whose body is on its way when ${what} is revoked is refused`, async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const finish = await held(t, gateway, bot, chat)
    t.equal((await (await held(t, gateway, bot, chat))())[0], 200, 'as long as nothing is revoked it passes')
    await revoke(gateway, bot.id)
    t.strictSame(await finish(), [status])
    t.equal(gateway.upstream.seen.length, 1)
    t.equal((await gateway.rows({ principal: bot.id, status: 'denied' })).length, 1)
  })
}

await t.test('threat 7 a secret that is rotated while a body is on its way opens nothing', async (t) => {
  const gateway = await testGateway(t)
  const headers = [`x-admin-secret: ${ADMIN_SECRET}`]
  const body = { agent_name: 'eve', capabilities: ['llm.chat'] }
  const finish = await held(t, gateway, null, { method: 'POST', path: '/v1/admin/agents', headers, body })
  await gateway.admin('POST', '/v1/admin/secret/rotate', { new_secret: 'another-secret-here' })
  t.strictSame(await finish(), [403])
  t.equal((await gateway.rows({ action: 'agent.created' })).length, 0)
})
