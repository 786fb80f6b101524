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

const REVOKED = [
  ['its principal', 401, (g: TestGateway, id: string) => g.admin('DELETE', `/v1/admin/agents/${id}`)],
  ['its data', 401, (g: TestGateway, id: string) => g.admin('POST', `/v1/admin/agents/${id}/erase`)],
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
] as const

/** What is not asked again after so short a time, the record finds. */
const TIMES = [
  ['at once', 0],
  ['a while later', 100],
] as const

let now = 0
const gateway = await testGateway(t, { monotonic: () => now })

for (const [when, passed] of TIMES) {
  for (const [what, status, revoke] of REVOKED) {
    await t.test(`M-06 a call is refused whose body comes ${when}, after ${what} was revoked`, async (t) => {
      const bot = await gateway.enroll(`bot-${passed}-${what.replaceAll(' ', '-')}`, ['llm.chat'])
      const finish = await held(t, gateway, bot, chat)
      t.equal(
        (await (await held(t, gateway, bot, chat))())[0],
        200,
        'as long as nothing is revoked it passes',
      )
      const calls = gateway.upstream.seen.length
      await revoke(gateway, bot.id)
      now += passed
      t.strictSame(await finish(), [status])
      t.equal(gateway.upstream.seen.length, calls)
      t.equal((await gateway.rows({ principal: bot.id, status: 'denied' })).length, 1)
    })
  }

  await t.test(`M-06 a call passes whose body comes ${when}, after its capability was given`, async (t) => {
    const bot = await gateway.enroll(`given-${passed}`, [])
    const finish = await held(t, gateway, bot, chat)
    await gateway.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities: ['llm.chat'] })
    now += passed
    t.equal((await finish())[0], 200)
    t.equal((await gateway.rows({ principal: bot.id, status: 'denied' })).length, 0)
  })

  await t.test(
    `M-06 a call passes whose body comes ${when}, after its certificate was given grace`,
    async (t) => {
      const bot = await gateway.enroll(`grace-${passed}`, ['llm.chat'])
      const finish = await held(t, gateway, bot, chat)
      await gateway.admin('POST', `/v1/admin/agents/${bot.id}/rotate-cert`, { grace_hours: 1 })
      now += passed
      t.equal((await finish())[0], 200)
      const [row] = await gateway.rows({ principal: bot.id, status: 'allowed' })
      t.match(row?.detail, { certificate: 'previous' }, 'and its row says that it is the previous one')
    },
  )
}

await t.test('threat 7 a secret that is rotated while a body is on its way opens nothing', async (t) => {
  const headers = [`x-admin-secret: ${ADMIN_SECRET}`]
  const body = { agent_name: 'eve', capabilities: ['llm.chat'] }
  const created = await gateway.rows({ action: 'agent.created' })
  const finish = await held(t, gateway, null, { method: 'POST', path: '/v1/admin/agents', headers, body })
  await gateway.admin('POST', '/v1/admin/secret/rotate', { new_secret: 'another-secret-here' })
  t.strictSame(await finish(), [403])
  t.same(await gateway.rows({ action: 'agent.created' }), created)
})
