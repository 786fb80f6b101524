import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import {
  type Answered,
  type Identity,
  PLUGIN_FILES,
  type TestGateway,
  testGateway,
  writeFiles,
} from '../support/gateway.ts'
import { chatBytes, rawConnect, requestBytes } from '../support/raw.ts'
import { settledCalls } from '../support/settled.ts'
import { completion } from '../support/upstream.ts'

/** Everything that must stay where it is, each by a name of its own. */
const CANARY = {
  adminSecret: 'canary-admin-secret-5f1c',
  nextSecret: 'canary-next-secret-77a2',
  providerKey: 'sk-canary-provider-key-9d3e',
  otherKey: 'sk-canary-other-key-21bc',
  callerKey: 'sk-canary-caller-key-c0de',
  proof: 'canary-dpop-proof-8eab',
  cookie: 'canary-cookie-4b1d',
  prompt: 'canary-prompt-of-a-user-e7f0',
  completion: 'canary-completion-of-a-model-3a9c',
  upstreamBody: 'canary-in-an-error-of-the-provider-6d2f',
  query: 'canary-in-a-query-90ab',
  field: 'canary-field-of-a-body-1f7e',
}

const FILES = {
  '50-llm.yaml': (PLUGIN_FILES['50-llm.yaml'] ?? '')
    .replace('sk-upstream-openai', CANARY.providerKey)
    .replace('sk-upstream-anthropic', CANARY.otherKey),
}

const HEADERS = {
  authorization: `Bearer ${CANARY.callerKey}`,
  'x-api-key': CANARY.callerKey,
  cookie: CANARY.cookie,
}

const CALL = { model: 'gpt-test', messages: [{ role: 'user', content: CANARY.prompt }] }

/** One of each: served, streamed, broken off, refused for each reason, and administered. */
async function scenario(t: Parameters<typeof rawConnect>[0], gateway: TestGateway) {
  const answers: string[] = []
  const keys: string[] = []
  const keep = ({ headers, text }: Answered): void => void answers.push(JSON.stringify(headers) + text)
  const operator = { 'x-admin-secret': CANARY.adminSecret }
  const enroll = async (agent_name: string, capabilities: readonly string[]): Promise<Identity> => {
    const { json } = await gateway.call(null, 'POST', '/v1/admin/agents', {
      headers: operator,
      body: { agent_name, capabilities },
    })
    keys.push(json.private_key_pem)
    return { id: json.agent_id, cert: json.cert_chain_pem, key: json.private_key_pem }
  }
  const bot = await enroll('bot', ['llm.chat'])
  const nobody = await enroll('nobody', [])
  const ask = async (
    who: Identity | null,
    path: string,
    body: unknown,
    more: Record<string, string> = {},
  ) => {
    const answer = await gateway.call(who, 'POST', path, { headers: { ...HEADERS, ...more }, body })
    keep(answer)
    return answer.status
  }
  const chat = '/v1/chat/completions'

  // The one answer that may show what the model said is the answer itself.
  gateway.upstream.answer = (res) => {
    const usage = { prompt_tokens: 1, completion_tokens: 1 }
    res.setHeader('content-type', 'application/json').setHeader('x-request-id', 'up-1')
    res.end(
      JSON.stringify({ model: 'gpt-test', usage, choices: [{ message: { content: CANARY.completion } }] }),
    )
  }
  const served = await gateway.call(bot, 'POST', chat, { headers: HEADERS, body: CALL })
  t.match(served, { status: 200, text: CANARY.completion })

  gateway.upstream.answer = completion
  t.equal(await ask(nobody, chat, CALL), 403)
  t.equal(await ask(null, chat, CALL), 401)
  t.equal(await ask(bot, `${chat}?key=${CANARY.query}`, CALL), 200)
  t.equal(await ask(bot, `/nothing/here?key=${CANARY.query}`, CALL), 404)
  t.equal(await ask(bot, chat, `{"model": "${CANARY.prompt}`), 400)
  t.equal(await ask(bot, chat, `{"model":"gpt-test","${CANARY.field}":1,"model":"x"}`), 400)
  t.equal(await ask(bot, chat, { ...CALL, model: 'no-such-model' }), 200, 'the default provider')
  t.equal(await ask(bot, chat, CALL, { dpop: CANARY.proof }), 401)

  // A provider that quotes our key, in every way it can fail.
  for (const [status, expected] of [
    [401, 502],
    [403, 502],
    [400, 502],
    [422, 502],
    [429, 429],
    [500, 502],
    [529, 529],
    [302, 502],
  ] as const) {
    gateway.upstream.answer = (res, { headers }) => {
      res.writeHead(status, {
        'content-type': 'application/json',
        location: `https://${CANARY.upstreamBody}.example`,
      })
      res.end(JSON.stringify({ error: CANARY.upstreamBody, headers }))
    }
    t.equal(await ask(bot, chat, CALL), expected, `the provider says ${status}`)
  }
  gateway.upstream.answer = (res) => void res.destroy()
  t.equal(await ask(bot, '/v1/messages', { ...CALL, model: 'claude-x', max_tokens: 1 }), 502)
  gateway.upstream.answer = (res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {}\n\n', () => res.destroy())
  }
  const stream = await rawConnect(t, gateway, bot)
  stream.send(chatBytes('gpt-test', [], { stream: true, user: CANARY.prompt }))
  answers.push(await stream.closed)
  const framed = await rawConnect(t, gateway, bot)
  framed.send(
    requestBytes('POST', chat, [
      `x-admin-secret: ${CANARY.adminSecret}`,
      `x-admin-secret: ${CANARY.nextSecret}`,
    ]),
  )
  answers.push(await framed.closed)

  // Administration, and the operator's own mistakes.
  keep(await gateway.call(null, 'GET', '/v1/admin/agents', { headers: operator }))
  keep(await gateway.call(null, 'GET', '/v1/models', { headers: operator }))
  keep(await gateway.call(bot, 'GET', '/v1/models', { headers: HEADERS }))
  keep(
    await gateway.call(null, 'POST', '/v1/admin/agents', { headers: operator, body: { [CANARY.field]: 1 } }),
  )
  const good = gateway.configuration()
  const broken = FILES['50-llm.yaml'].replace(CANARY.providerKey, `[${CANARY.providerKey}]`)
  await writeFiles(gateway.pluginsDir, { '50-llm.yaml': broken }, gateway.upstream.url)
  t.equal(await gateway.reload(), false)
  t.equal(gateway.configuration(), good)
  await writeFiles(gateway.pluginsDir, FILES, gateway.upstream.url)
  t.equal(await gateway.reload(), true)
  const body = { new_secret: CANARY.nextSecret }
  keep(await gateway.call(null, 'POST', '/v1/admin/secret/rotate', { headers: operator, body }))
  const next = { 'x-admin-secret': CANARY.nextSecret }
  keep(await gateway.call(null, 'GET', '/metrics', { headers: next }))
  const exported = await gateway.call(null, 'GET', '/v1/admin/audit/export', { headers: next })
  keep(exported)
  keep(await gateway.call(null, 'GET', '/v1/admin/audit?limit=1000', { headers: next }))
  return { answers, keys, exported: exported.text }
}

t.test('threats 13, 25, 30 no secret and no content stands anywhere it has no business', async (t) => {
  const settings = { MCP_PROXY_LOG_LEVEL: 'trace', MCP_PROXY_ADMIN_SECRET: CANARY.adminSecret }
  const gateway = await testGateway(t, { settings, files: FILES })
  const { answers, keys, exported } = await scenario(t, gateway)
  const { allowed, ended } = await settledCalls(gateway)
  t.equal(ended.length, allowed.length)
  await gateway.close(0)

  const { dataDir } = gateway.settings
  const files = (await readdir(dataDir, { recursive: true, withFileTypes: true })).filter((entry) =>
    entry.isFile(),
  )
  const stored = await Promise.all(
    files.map(async ({ parentPath, name }) => ({
      name,
      text: await readFile(join(parentPath, name), 'latin1'),
    })),
  )
  const bodies = keys.map((pem) => pem.split('\n')[1] ?? '')
  t.ok(
    bodies.length === 2 && bodies.every((line) => line.length === 64),
    'the private keys are looked for too',
  )
  const places = [
    ...stored,
    { name: 'the log', text: JSON.stringify(gateway.log) },
    { name: 'the audit export', text: exported },
    ...answers.map((text, i) => ({ name: `answer ${i}`, text })),
  ]
  t.ok(
    exported.split('\n').length > 10 && gateway.log.length > 20 && stored.length > 5,
    'there is something to search',
  )
  for (const canary of [...Object.values(CANARY), ...bodies]) {
    const found = places.filter(({ text }) => text.includes(canary)).map(({ name }) => name)
    // A refused field is named to whoever sent it (docs/protocol.md#error-types), and to nobody else.
    const named = canary === CANARY.field ? found.filter((name) => !name.startsWith('answer')) : found
    t.same(named, [], canary)
  }
  const escaped = /[^\x20-\x7e\n]/
  t.notOk(
    escaped.test(gateway.log.map((line) => JSON.stringify(line)).join('\n')),
    'threat 29: the log is plain text',
  )
})

t.test('threat 29 what a stranger writes cannot break a log line', async (t) => {
  const gateway = await testGateway(t, { settings: { MCP_PROXY_LOG_LEVEL: 'trace' } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const evil = '\u001b[31m\r\n{"level":60}\u2028'
  const paths = [`/${encodeURIComponent(evil)}`, `/${'x'.repeat(8_000)}`]
  for (const path of paths) await gateway.call(bot, 'GET', path)
  const headers = {
    'user-agent': 'a'.repeat(8_000),
    'x-request-id': `a"b'{}`,
    'x-client-request-id': 'x'.repeat(500),
  }
  await gateway.call(bot, 'GET', '/health', { headers })
  const body = { model: `gpt-${evil}`, messages: [] }
  t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body })).status, 400)
  const lines = gateway.log.map((line) => JSON.stringify(line))
  t.ok(
    lines.every((line) => line.length < 4_096),
    'no line is longer than 4 KB',
  )
  t.notMatch(lines.join('\n'), /\\u001b|\u2028|"level":60|a\\"b/)
})
