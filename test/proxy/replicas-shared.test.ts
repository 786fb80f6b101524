import t from 'tap'
import { endPresence, raw } from '../support/db/postgres/replica.ts'
import { twoStages } from '../support/db/postgres/stages.ts'
import { tokenFor } from '../support/dpop.ts'
import type { Identity } from '../support/gateway.ts'
import type { Stage } from '../support/mcp/stage.ts'

t.test(
  'a setup code that one replica has printed is taken by the other, and by none once a secret is stored',
  async (t) => {
    const { one, other } = await twoStages(t, { settings: { MCP_PROXY_ADMIN_SECRET: '' } })
    t.equal(one.setupCode, other.setupCode)
    t.match(one.setupCode, /^([A-Z2-9]{5}-){3}[A-Z2-9]{5}$/)
    const [third] = [(await twoStages(t)).one]
    t.not(third.setupCode, one.setupCode, 'another service has another one')
    const setUp = (gateway: Stage, setup_code: string) =>
      gateway.call(null, 'POST', '/v1/admin/setup', { body: { setup_code, new_secret: 'my-first-secret' } })
    t.equal((await setUp(other, third.setupCode)).status, 403)
    t.equal((await setUp(other, one.setupCode)).status, 204)
    t.equal((await setUp(one, one.setupCode)).status, 409)
    const listed = await one.call(null, 'GET', '/v1/admin/agents', {
      headers: { 'x-admin-secret': 'my-first-secret' },
    })
    t.equal(listed.status, 200)
  },
)

t.test('wrong secrets at one replica count at the other', async (t) => {
  const { one, other } = await twoStages(t)
  const guess = (gateway: Stage) =>
    gateway.call(null, 'GET', '/v1/admin/agents', { headers: { 'x-admin-secret': 'wrong-wrong-wrong' } })
  for (let n = 0; n < 10; n += 1) t.equal((await guess(one)).status, 403)
  t.equal((await guess(one)).status, 429)
  let guesses = 1
  while ((await guess(other)).status !== 429) guesses += 1
  t.ok(guesses < 10, `${guesses} at the other`)
})

t.test('a guess is no row of its own', async (t) => {
  const { url, one } = await twoStages(t, { settings: { MCP_PROXY_ADMIN_SECRET: '' } })
  const written = async () => (await raw(url, 'select count(*) as rows from audit_rows')).rows[0]
  const before = await written()
  const body = { setup_code: 'AAAAA-AAAAA-AAAAA-AAAAA', new_secret: 'my-first-secret' }
  for (let n = 0; n < 9; n += 1) {
    t.equal((await one.call(null, 'POST', '/v1/admin/setup', { body })).status, 403)
  }
  t.equal((await written()).rows, before.rows)
})

t.test('a token of one replica is honoured at the other the moment after a rotation at either', async (t) => {
  const { url, one, other } = await twoStages(t, {
    settings: { MCP_PROXY_PUBLIC_URLS: 'https://sallyport.test' },
  })
  const bot = await one.enroll('bot', ['llm.chat'])
  const chat = (gateway: Stage, who: Identity, token: string) =>
    gateway.call(who, 'POST', '/v1/chat/completions', {
      headers: { authorization: `Bearer ${token}` },
      body: { model: 'gpt-5-mini', messages: [] },
    })
  const tokenOf = async (gateway: Stage): Promise<string> => {
    const { json, status } = await tokenFor(gateway, bot, null)
    t.equal(status, 200)
    return json.access_token
  }
  for (let round = 0; round < 3; round += 1) {
    for (const [issuing, rotating, asked] of [
      [one, one, other],
      [one, other, other],
      [other, one, one],
    ] as const) {
      const before = await tokenOf(issuing)
      t.equal((await rotating.admin('POST', '/v1/admin/signing-key/rotate')).status, 200)
      t.equal((await chat(asked, bot, before)).status, 200, 'issued before')
      t.equal((await chat(asked, bot, await tokenOf(issuing))).status, 200, 'issued after')
    }
    // The next round: nobody hears of it.
    await endPresence(url)
  }
})
