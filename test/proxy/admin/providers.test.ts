import t from 'tap'
import { CHAT, testGateway } from '../../support/gateway.ts'
import { signedInBySecret } from '../../support/oidc/jar.ts'
import { eventually, settledCalls } from '../../support/settled.ts'
import { testUpstream } from '../../support/upstream.ts'

const KEY = 'sk-upstream-of-the-organisation'

const filesFor = (refusing: string) => ({
  '50-llm.yaml': `plugin: llm
default_provider: second
providers:
  - { name: first, dialect: openai, base_url: "${refusing}/v1", api_key: ${KEY}, models: ["gpt-*"] }
  - name: second
    dialect: openai
    base_url: UPSTREAM/v1
    api_key: sk-other
    models: ["gpt-*"]
    aliases: { house: gpt-test }
  - { name: keyless, dialect: anthropic, base_url: UPSTREAM/v1, models: ["claude-test"] }
  - { name: theirs, dialect: anthropic, base_url: UPSTREAM/v1, auth: passthrough, models: ["claude-own"] }
`,
})

await t.test('providers are shown with their keys, models, order and figures, and never a key', async (t) => {
  const failing = await testUpstream(t, (res) => void res.writeHead(503).end())
  const gateway = await testGateway(t, { files: filesFor(failing.url) })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const list = async () => (await gateway.admin('GET', '/v1/admin/providers')).json
  t.match(await list(), {
    providers: [
      { name: 'first', key: 'set', answering_since: null, failing_since: null, last_hour: { calls: 0 } },
      { name: 'second', key: 'set', is_default: true, aliases: { house: 'gpt-test' } },
      { name: 'keyless', key: 'missing', listed: null },
      { name: 'theirs', key: 'callers', listed: null },
    ],
  })
  t.same((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
  t.same((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: { model: 'house' } })).status, 200)
  const now = await eventually(list, ({ providers }) => providers[1].last_hour.calls === 2)
  const [first, second] = now.providers
  t.match(first, { problem: 'provider_failed', answering_since: null, failing_since: String })
  t.match(first.last_day, { calls: 1, errors: 1, p50_ms: null })
  t.match(second, { problem: null, answering_since: String, failing_since: null })
  t.match(second.last_hour, { calls: 2, errors: 0, tokens: { input: 14, output: 6 } })
  t.ok(second.last_hour.p50_ms > 0 && second.last_hour.first_byte_p99_ms > 0)
  t.same(now.routes, [
    { model: 'gpt-*', providers: ['first', 'second'] },
    { model: 'house', providers: ['second'] },
    { model: 'claude-test', providers: ['keyless'] },
    { model: 'claude-own', providers: ['theirs'] },
  ])
  const jar = await signedInBySecret(gateway)
  const page = (await jar.ask('GET', '/proxy/providers')).text
  for (const said of ['failing', 'answering since', 'missing: it is not called', 'house → gpt-test'])
    t.match(page, said)
  for (const text of [page, JSON.stringify(now)]) t.notMatch(text, /sk-/)
})

await t.test(
  'a provider is tried by one request for its list, on record, and never again at once',
  async (t) => {
    let asked = 0
    let words = `Incorrect API key provided: ${KEY}`
    const refusing = await testUpstream(t)
    refusing.server.removeAllListeners('request')
    refusing.server.on('request', (req, res) => {
      asked += 1
      t.match(req, { method: 'GET', url: '/v1/models' })
      res.writeHead(401, { 'content-type': 'application/json' })
      res.end(JSON.stringify({ error: { message: words } }))
    })
    let at = Date.now()
    const gateway = await testGateway(t, { files: filesFor(refusing.url), clock: () => at })
    await eventually(
      () => asked,
      (count) => count > 0,
    )
    asked = 0
    const tried = (name: string) => gateway.admin('POST', `/v1/admin/providers/${name}/try`)
    const quoting = await tried('first')
    t.match(quoting.json, { models: null, problem: 'the model list was answered with 401' })
    t.notMatch(quoting.text, KEY, 'words that quote a key are no words')
    words = 'You have no account <script>'
    t.same((await tried('first')).json, quoting.json, 'the last answer stands for five seconds')
    t.equal(asked, 1)
    at += 5_000
    const both = await Promise.all([tried('first'), tried('first')])
    for (const { json } of both)
      t.equal(json.problem, 'the model list was answered with 401: You have no account <script>')
    t.equal(asked, 2)
    t.match((await tried('second')).json, { models: 0, problem: null })
    t.match((await tried('keyless')).json, { models: null, problem: /no key/ })
    t.equal((await tried('nobody')).status, 404)
    t.equal(gateway.upstream.seen.length, 0, 'no prompt was sent')
    const rows = await gateway.rows({ action: 'provider.tried', order: 'asc' })
    t.same(
      rows.map(({ detail: { provider, models } }) => [provider, models]),
      [
        ['first', null],
        ['first', null],
        ['second', 0],
        ['keyless', null],
      ],
    )
    const jar = await signedInBySecret(gateway)
    const page = (await jar.ask('GET', '/proxy/providers')).text
    const [, csrf = ''] = /name="csrf" value="([^"]+)"/.exec(page) ?? []
    const shown = await jar.send('/proxy/providers/first/try', { csrf })
    t.match(shown.text, 'You have no account &lt;script&gt;')
    t.equal((await jar.send('/proxy/providers/first/try', { csrf: 'x' })).status, 403)
    t.equal(asked, 2)
  },
)

await t.test('a provider that is left alone is named to operators, and to nobody else', async (t) => {
  const failing = await testUpstream(t, (res) => void res.writeHead(503).end())
  const file = `plugin: llm
providers:
  - name: first
    dialect: openai
    base_url: "${failing.url}/v1"
    api_key: ${KEY}
    models: ["gpt-*"]
    breaker: { failures: 1, open_s: 3600, most_s: 3600 }
  - { name: second, dialect: openai, base_url: UPSTREAM/v1, api_key: sk-other, models: ["gpt-*"], weight: 2 }
`
  const gateway = await testGateway(t, { files: { '50-llm.yaml': file } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const ready = () => gateway.call(null, 'GET', '/ready')
  t.equal((await ready()).json.checks.providers, 'ok')
  for (let call = 0; call < 2; call += 1)
    t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
  const { status, json, text } = await ready()
  t.same([status, json.checks.providers], [200, 'degraded'])
  t.notMatch(text, 'first', 'whoever asks')
  t.match((await gateway.admin('GET', '/v1/admin/providers')).json.providers, [
    { name: 'first', breaker: 'open', weight: null },
    { name: 'second', breaker: 'closed', weight: 2 },
  ])
  const [one, two] = (await settledCalls(gateway)).ended.map(({ detail }) => detail.attempts)
  const second = { provider: 'second', status: 200 }
  t.same(one, [{ provider: 'first', status: 503, reason: 'provider_failed' }, second])
  t.same(two, [{ provider: 'first', skipped: 'open' }, second])
  const metrics = (await gateway.admin('GET', '/metrics')).text
  for (const line of [
    'sallyport_provider_state{provider="first"} 2',
    'sallyport_provider_state{provider="second"} 0',
    'sallyport_provider_attempts_total{provider="first",result="failed"} 1',
    'sallyport_provider_attempts_total{provider="first",result="skipped"} 1',
    'sallyport_provider_attempts_total{provider="second",result="ok"} 2',
    'sallyport_llm_provider_answers_total{provider="first",status="503"} 1',
  ])
    t.match(metrics, line)
  t.match((await (await signedInBySecret(gateway)).ask('GET', '/proxy/providers')).text, 'left alone')
})
