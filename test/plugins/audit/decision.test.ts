import { createHash, hash } from 'node:crypto'
import t from 'tap'
import { athOf, nonceOf, proof, proofSigner, tokenFor } from '../../support/dpop.ts'
import { CHAT, testGateway } from '../../support/gateway.ts'

const CHAT_PATH = '/v1/chat/completions'
const MODE = { egress_dpop_mode: 'optional', no_downgrade: false }

await t.test(
  'an allowed and a denied row say what was demanded, at which revision, by what mode',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    await gateway.call(bot, 'POST', CHAT_PATH, { body: CHAT })
    await gateway.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities: [] })
    await gateway.call(bot, 'POST', CHAT_PATH, { body: CHAT })
    const rows = await gateway.rows({ action: 'egress_llm_chat', order: 'asc' })
    const [allowed, denied] = ['allowed', 'denied'].map((status) => rows.find((row) => row.status === status))
    t.strictSame(allowed?.detail.authority, { demanded: ['llm.chat'], mode: MODE, revision: 1 })
    t.strictSame(denied?.detail.authority, { demanded: ['llm.chat'], mode: MODE, revision: 2 })
    const [loaded] = await gateway.rows({ action: 'config.loaded' })
    t.equal(loaded?.config_digest, allowed?.config_digest, 'what judged is in the row of its configuration')
    t.match(loaded?.detail, { ...MODE, enforce_tools_call: false, list: 'bound', checks: [] })
  },
)

await t.test(
  'a narrowed token stands in the row, sorted, and that it is bound to a key of its own',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat', 'b.b', 'a.a'])
    const signer = proofSigner()
    const { json } = await tokenFor(gateway, bot, signer, { scope: 'llm.chat b.b' })
    const token = String(json.access_token)
    const nonce = await nonceOf(gateway, bot)
    const claims = { htm: 'POST', htu: gateway.url + CHAT_PATH, ath: athOf(token), nonce }
    const headers = { authorization: `DPoP ${token}`, dpop: proof(signer, claims) }
    const { status } = await gateway.call(bot, 'POST', CHAT_PATH, { body: CHAT, headers })
    t.equal(status, 200)
    const [row] = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed' })
    t.match(row?.detail.authority, { scope: ['b.b', 'llm.chat'], token: true })
  },
)

await t.test('an allowed row says that every check passed, a denied one which one refused', async (t) => {
  const checks = {
    '35-first.yaml': 'plugin: ./first.js\n',
    '36-second.yaml': 'plugin: ./second.js\n',
    '37-third.yaml': 'plugin: ./third.js\n',
    'first.js': `export const plugin = () => ({ name: 'first', needs: [], admit: () => {} })\n`,
    'second.js': `export const plugin = (_, { Refusal }) => ({ name: 'second', needs: ['call'],
      admit: ({ call }) => { if (call.model === 'gpt-no') throw new Refusal('policy_denied'); if (call.model === 'gpt-broken') throw new Error('oops') } })\n`,
    'third.js': `export const plugin = () => ({ name: 'third', needs: [], admit: () => {} })\n`,
  }
  const gateway = await testGateway(t, { files: checks })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  for (const model of ['gpt-yes', 'gpt-no', 'gpt-broken'])
    await gateway.call(bot, 'POST', CHAT_PATH, { body: { ...CHAT, model } })
  const rows = await gateway.rows({ action: 'egress_llm_chat', order: 'asc' })
  const verdicts = rows.flatMap(({ detail }) => {
    const { checks: asked } = Object(detail.authority)
    return asked
      ? [asked.map(({ name, verdict }: { name: string; verdict: string }) => `${name} ${verdict}`)]
      : []
  })
  t.same(verdicts, [
    ['first pass', 'second pass', 'third pass'],
    ['first pass', 'second refuse'],
    ['first pass', 'second failed'],
  ])
  const [loaded] = await gateway.rows({ action: 'config.loaded' })
  const code = hash('sha256', checks['first.js'])
  t.match(loaded?.detail.checks, [{ name: 'first', digest: code, shadow: false }, {}, {}])
})

await t.test(
  'a body is committed to, and only its receipt or an operator can open the commitment',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const long = { ...CHAT, messages: [{ role: 'user', content: 'é'.repeat(200_000) }] }
    for (const body of [CHAT, CHAT, long]) {
      const { headers } = await gateway.call(bot, 'POST', CHAT_PATH, { body })
      const id = String(headers['x-request-id'])
      const [decision] = await gateway.rows({ request_id: id, status: 'allowed' })
      const [, salt = ''] = /, salt=([0-9a-f]{32})$/.exec(String(headers['audit-receipt'])) ?? []
      const bytes = JSON.stringify(body)
      const opened = createHash('sha256').update(Buffer.from(salt, 'hex')).update(bytes).digest('hex')
      t.equal(decision?.detail.body_sha256, opened, 'salt and bytes prove it')
      t.not(decision?.detail.body_sha256, hash('sha256', bytes), 'the bytes alone do not')
      const { json } = await gateway.admin('GET', `/v1/admin/audit?request_id=${id}&status=allowed`)
      t.equal(json.rows[0].salts.body_sha256, salt)
    }
    const rows = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed' })
    t.equal(
      new Set(rows.map(({ detail }) => detail.body_sha256)).size,
      3,
      'the same bytes look different each time',
    )
  },
)

await t.test('a nonce challenge is not a denied call: it is no row', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const dpop = proof(proofSigner(), { htm: 'POST', htu: gateway.url + CHAT_PATH })
  const before = await gateway.rows()
  const { status, json } = await gateway.call(bot, 'POST', CHAT_PATH, { body: CHAT, headers: { dpop } })
  t.match([status, json.reason], [401, 'use_dpop_nonce'])
  t.equal((await gateway.rows()).length, before.length)
  const { text } = await gateway.admin('GET', '/metrics')
  t.match(text, /use_dpop_nonce/, 'it is counted')
})

await t.test('a refusal of form is an invalid row, and no decision about authority', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  t.equal((await gateway.call(bot, 'POST', CHAT_PATH, { body: '{"model":' })).status, 400)
  t.equal((await gateway.call(bot, 'POST', CHAT_PATH, { body: { model: 7 } })).status, 400)
  t.equal((await gateway.rows({ status: 'denied' })).length, 0)
  const invalid = await gateway.rows({ status: 'invalid' })
  t.match(invalid, [{ detail: { reason: 'body_invalid' } }, { detail: { reason: 'body_invalid' } }])
  t.match(invalid[0]?.detail.authority, { demanded: ['llm.chat'], revision: 1 })
})

await t.test('session and trace stand in the row where they are sane, and nothing else does', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const trace = '0af7651916cd43dd8448eb211c80319c'
  const cases = [
    [
      { 'session-id': 's-1', traceparent: `00-${trace}-b7ad6b7169203331-01` },
      { session_id: 's-1', trace_id: trace },
    ],
    [{ 'x-claude-code-session-id': 'cc', 'session-id': 'other' }, { session_id: 'cc' }],
    [{ 'mcp-session-id': 'm', 'x-claude-code-session-id': 'cc' }, { session_id: 'm' }],
    [{ 'session-id': 'a b' }, {}],
    [{ 'session-id': 'x'.repeat(129) }, {}],
    [{ traceparent: `00-${'0'.repeat(32)}-b7ad6b7169203331-01` }, {}],
    [{ traceparent: `ff-${trace}-b7ad6b7169203331-01` }, {}],
    [{ traceparent: trace }, {}],
  ] as const
  for (const [headers, expected] of cases) {
    const { headers: answer } = await gateway.call(bot, 'POST', CHAT_PATH, { body: CHAT, headers })
    const [row] = await gateway.rows({ request_id: String(answer['x-request-id']), status: 'allowed' })
    const { session_id, trace_id } = row?.detail ?? {}
    t.same(
      { ...(session_id && { session_id }), ...(trace_id && { trace_id }) },
      expected,
      JSON.stringify(headers),
    )
  }
})
