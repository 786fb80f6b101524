import t from 'tap'
import { askNameServers, lookUpHost } from '../../db/host-names/ask.ts'
import { egressAgent } from '../../proxy/egress/agent.ts'
import { mcpStage } from '../support/mcp/stage.ts'
import { nameServer } from '../support/name-server.ts'
import { completion, testUpstream } from '../support/upstream.ts'

await t.test('H2: names whose name server is silent', async (t) => {
  const dns = await nameServer(t, (name) => (name.startsWith('silent') ? 'silent' : '127.0.0.1'))
  const upstream = await testUpstream(t)
  const { port } = new URL(upstream.url)
  const provider = (name: string): string => `
  - name: ${name}
    dialect: openai
    base_url: http://${name}.provider.example:${port}/v1
    api_key: sk-${name}
    connect_timeout_ms: 2000
    models: ["${name}-*"]
`
  const stage = await mcpStage(t, {
    nameServers: dns.servers,
    files: {
      '50-llm.yaml': `plugin: llm\ndefault_provider: healthy\nproviders:${provider('healthy')}${provider('silent')}`,
      '60-mcp.yaml': 'plugin: mcp\nhttp_get:\n  timeout_ms: 2000\n',
    },
  })
  // Each answer ends its connection: every call needs another one, and so the name.
  upstream.answer = (res, seen) => {
    res.setHeader('connection', 'close')
    return completion(res, seen)
  }
  const bot = await stage.enroll('bot', ['llm.chat', 'http.get'])
  const chat = (model: string) =>
    stage.call(bot, 'POST', '/v1/chat/completions', { body: { model, messages: [] } })
  const servesTheOther = async (): Promise<void> => {
    for (let call = 0; call < 3; call += 1) t.equal((await chat('healthy-1')).status, 200)
  }

  await t.test('of one provider harm no other provider, and the log names the right one', async (t) => {
    const silent = Promise.all(Array.from({ length: 24 }, () => chat('silent-1')))
    await servesTheOther()
    t.same(new Set((await silent).map(({ status }) => status)), new Set([502]))
    const failed = stage.log.filter(({ status }) => status === 502)
    t.ok(failed.length > 0)
    for (const { provider: name, err } of failed) {
      t.equal(name, 'silent')
      t.match(JSON.stringify(err), 'silent.provider.example')
    }
    t.equal(new Set(dns.asked.filter((name) => name.startsWith('silent'))).size, 1)
  })

  await t.test('that callers of http.get choose harm no provider, nor another caller', async (t) => {
    const fetched = (who: typeof bot, host: string) =>
      stage.callTool(who, 'http.get', { url: `http://${host}.example/` })
    const own = Array.from({ length: 24 }, (_, index) => fetched(bot, `silent-${index}`))
    await servesTheOther()
    const other = await stage.enroll('other', ['http.get'])
    // Loopback: refused once its name was looked up, which took no place of the one's.
    t.match((await fetched(other, 'quick')).json.result, { isError: true })
    const answers = await Promise.all(own)
    const refusals = answers.filter(({ json }) => json.error)
    t.equal(refusals.length, 8, 'one agent has 16 at once')
    t.match(refusals[0]?.json.error.data, { reason: 'overloaded' })
  })
})

await t.test('H2: fetches that were called off hold neither a look-up nor a connection', async (t) => {
  const dns = await nameServer(t, () => 'silent')
  const over = new AbortController()
  const opened: AbortSignal[] = []
  const agent = egressAgent({
    ...{ allowPrivate: false, connectMs: 60_000, answerMs: 60_000, keepAlive: false },
    signal: over.signal,
    resolve: async (host, signal) => {
      opened.push(signal)
      return (await askNameServers(host, { ...dns, signal })).addresses
    },
  })
  t.teardown(() => agent.destroy())
  const asked = Array.from({ length: 16 }, (_, index) =>
    agent.request({ origin: `http://n${index}.example`, path: '/', method: 'GET', signal: over.signal }),
  )
  over.abort(new Error('the caller has left'))
  for (const one of asked) await t.rejects(one, { message: 'the caller has left' })
  t.equal(opened.filter(({ aborted }) => !aborted).length, 0)
})

await t.test('H2: a look-up is called off, and says of which name and why', async (t) => {
  const says = { 'a.example': '192.0.2.1', 'none.example': 'none', 'broken.example': 'broken' } as const
  const dns = await nameServer(
    t,
    (name) => Object.entries(says).find(([one]) => one === name)?.[1] ?? 'silent',
  )
  const signal = new AbortController().signal
  t.match(await askNameServers('a.example', { ...dns, signal }), {
    addresses: [{ address: '192.0.2.1', family: 4 }],
    ttlS: 1,
  })
  const failing = (host: string) => askNameServers(host, { ...dns, signal })
  await t.rejects(failing('none.example'), { code: 'ENOTFOUND', denied: true, message: /none\.example/ })
  await t.rejects(failing('broken.example'), { code: 'ESERVFAIL', denied: false })
  const gone = new AbortController()
  const silent = askNameServers('silent.example', { ...dns, signal: gone.signal })
  setImmediate(() => gone.abort(new Error('nobody waits')))
  await t.rejects(silent, { message: 'nobody waits' })
  await t.rejects(askNameServers('a.example', { ...dns, signal: gone.signal }), { message: 'nobody waits' })

  t.match(await lookUpHost('localhost', { ...dns, signal }), {
    addresses: [{ address: /^(127\.0\.0\.1|::1)$/ }],
  })
  t.match(await lookUpHost('deep.localhost', { ...dns, signal }), {
    addresses: [{ address: '127.0.0.1' }, { address: '::1' }],
  })
  t.notOk(
    dns.asked.some((name) => name.includes('localhost')),
    'no name server hears of it',
  )
})
