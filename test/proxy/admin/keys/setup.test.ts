import t from 'tap'
import { tokenFor } from '../../../support/dpop.ts'
import { CHAT, testGateway } from '../../../support/gateway.ts'
import { sallyport } from '../../../support/run.ts'

const NO_SECRET = { MCP_PROXY_ADMIN_SECRET: '' }

await t.test('threat 23 the one-time code sets the first secret, and nothing after it', async (t) => {
  const gateway = await testGateway(t, { settings: NO_SECRET })
  t.equal(await gateway.hasAdminSecret(), false)
  const setup = (setup_code: string, new_secret: string) =>
    gateway.call(null, 'POST', '/v1/admin/setup', { body: { setup_code, new_secret } })
  const list = async (secret: string) =>
    (await gateway.call(null, 'GET', '/v1/admin/agents', { headers: { 'x-admin-secret': secret } })).status
  t.equal(await list('my-first-secret'), 403, 'until then nobody administers')
  t.match(await setup('AAAAA-AAAAA-AAAAA-AAAAA', 'my-first-secret'), { status: 403 })
  t.match(await setup(gateway.setupCode, 'short'), { status: 422 })
  const answers = await Promise.all([
    setup(gateway.setupCode, 'my-first-secret'),
    setup(gateway.setupCode, 'my-other-secret'),
  ])
  t.strictSame(
    answers.map(({ status }) => status).toSorted((a, b) => a - b),
    [204, 409],
    'of two at once one wins',
  )
  const won = answers[0].status === 204 ? 'my-first-secret' : 'my-other-secret'
  t.equal(await list(won), 200)
  t.match(await setup(gateway.setupCode, 'my-third-secret'), { status: 409 })
  t.equal(await list(won), 200)
  const rows = await gateway.rows({ action: 'admin.secret_rotated' })
  t.match(rows, [{ detail: { via: 'setup_code' } }])
})

await t.test('threat 23 guessing the code is throttled', async (t) => {
  const gateway = await testGateway(t, { settings: NO_SECRET })
  const guess = async (setup_code = 'AAAAA-AAAAA-AAAAA-AAAAA') => {
    const body = { setup_code, new_secret: 'my-first-secret' }
    return (await gateway.call(null, 'POST', '/v1/admin/setup', { body })).status
  }
  for (let i = 0; i < 10; i++) t.equal(await guess(), 403)
  t.equal(await guess(), 429)
  const { status } = await gateway.call(null, 'GET', `/proxy/setup?code=${gateway.setupCode}`)
  t.equal(status, 200, 'and keeps nobody out who has the code, also from the same address')
  t.equal(await guess(gateway.setupCode), 204)
})

await t.test(
  '§5.2 a rotated signing key signs from now on, and tokens of the old one run out in peace',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const before = (await tokenFor(gateway, bot, null)).json.access_token
    const ran = await sallyport(['rotate-signing-key'], {
      MCP_PROXY_DATA_DIR: gateway.settings.dataDir,
    })
    t.equal(ran.code, 0, ran.err)
    const after = (await tokenFor(gateway, bot, null)).json.access_token
    const kidOf = (token: string) =>
      JSON.parse(Buffer.from(token.split('.')[0] ?? '', 'base64url').toString()).kid
    t.equal(kidOf(after), ran.out.trim())
    t.not(kidOf(before), kidOf(after))
    for (const token of [before, after]) {
      const headers = { authorization: `Bearer ${token}` }
      t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT, headers })).status, 200)
    }
    const { json } = await gateway.call(null, 'GET', '/.well-known/jwks.json')
    const kids = json.keys.map(({ kid }: { kid: string }) => kid)
    t.strictSame(new Set(kids), new Set([kidOf(before), kidOf(after)]))
    t.notMatch(JSON.stringify(json), /"d":/)
  },
)
