import { chmod, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setInterval } from 'node:timers/promises'
import t from 'tap'
import { agentOf, CHAT, PLUGIN_FILES, type TestGateway, testGateway, writeFiles } from '../support/gateway.ts'
import { chatBytes, rawConnect, requestBytes, statuses } from '../support/raw.ts'
import { eventually, settledCalls } from '../support/settled.ts'
import { completion, testUpstream } from '../support/upstream.ts'

const PATH = '/v1/chat/completions'

/** How often a balancer looks: a twentieth of ten seconds. */
const CHECK_MS = 500

t.test('F-31 a bad file leaves the configuration in force, is logged, counted and recorded', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const before = gateway.configuration()
  const llm = join(gateway.pluginsDir, '50-llm.yaml')
  const good = await readFile(llm, 'utf8')
  const bad: readonly (readonly [string, string, string | null])[] = [
    ['a syntax error', '50-llm.yaml', 'plugin: llm\nproviders: [\n'],
    ['a file half written', '50-llm.yaml', good.slice(0, good.indexOf('api_key') + 5)],
    ['an empty file', '50-llm.yaml', ''],
    ['a missing file', '50-llm.yaml', null],
    ['an unknown plugin', '60-evil.yaml', 'plugin: evil\n'],
    ['an unknown key', '50-llm.yaml', `${good}allow_everything: true\n`],
    ['a mandatory plugin removed', '30-capability.yaml', null],
    ['an unknown DPoP mode', '20-dpop.yaml', 'plugin: dpop\negress_dpop_mode: of\n'],
    // biome-ignore lint/suspicious/noTemplateCurlyInString: it is for the gateway to expand
    ['a variable that is not set', '50-llm.yaml', good.replace('sk-upstream-openai', '${env:NOT_SET}')],
    ['a module that is not there', '45-own.yaml', 'plugin: ./nothing.ts\n'],
  ]
  for (const [name, file, text] of bad) {
    const path = join(gateway.pluginsDir, file)
    if (text === null) await rm(path)
    else await writeFile(path, text)
    t.equal(await gateway.reload(), false, name)
    t.equal(gateway.configuration(), before, `${name}: the one before stays`)
    const original = { '50-llm.yaml': good, ...pick(file) }[file]
    if (original === undefined) await rm(path)
    else await writeFile(path, original)
  }
  t.equal((await gateway.call(bot, 'POST', PATH, { body: CHAT })).status, 200)
  const rejected = (await gateway.rows()).filter(({ action }) => action === 'config.rejected')
  t.equal(rejected.length, bad.length, 'a row for each')
  t.equal(gateway.log.filter(({ msg }) => /^configuration rejected/.test(msg)).length, bad.length)
  const { text } = await gateway.admin('GET', '/metrics')
  t.match(text, new RegExp(`sallyport_config_reloads_total\\{result="rejected"\\} ${bad.length}\\n`))
  t.equal(await gateway.reload(), true, 'and the repaired one is taken')
})

const pick = (file: string): Record<string, string> => {
  const text = PLUGIN_FILES[file]
  return text === undefined || file === '50-llm.yaml' ? {} : { [file]: text }
}

t.test('F-31 a reload that fails halfway leaves everything as it was', async (t) => {
  const gateway = await testGateway(t)
  const before = gateway.configuration()
  const dpop = join(gateway.pluginsDir, '20-dpop.yaml')
  await writeFile(dpop, 'plugin: dpop\negress_dpop_mode: "off"\n')
  const key = join(gateway.settings.dataDir, 'ca', 'server.key.sealed')
  await chmod(key, 0o644)
  t.equal(await gateway.reload(), false, 'the key of the server certificate is open to others')
  t.equal(gateway.configuration(), before)
  t.equal(
    (await gateway.rows({ action: 'config.loaded' })).length,
    1,
    'nothing says it was loaded, but the one at the start',
  )
  await chmod(key, 0o600)
  t.equal(await gateway.reload(), true)
  t.equal(gateway.configuration().dpopMode, 'off')
})

t.test(
  'F-31 F-32 under load a good reload fails nobody, and the next call goes to the new provider',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const other = await testUpstream(t)
    const agent = agentOf(gateway.ca, bot, true)
    t.teardown(() => agent.destroy())
    let loading = true
    const found = new Set<number>()
    const load = async (): Promise<void> => {
      while (loading) found.add((await gateway.call(bot, 'POST', PATH, { body: CHAT, agent })).status)
    }
    const loads = Array.from({ length: 4 }, load)
    const urls = [other.url, gateway.upstream.url, other.url]
    for (const url of urls) {
      await writeFiles(gateway.pluginsDir, PLUGIN_FILES, url)
      t.equal(await gateway.reload(), true)
    }
    const before = gateway.upstream.seen.length
    await Promise.all(Array.from({ length: 10 }, () => gateway.reload()))
    loading = false
    await Promise.all(loads)
    t.same([...found], [200])
    const { status } = await gateway.call(bot, 'POST', PATH, { body: CHAT })
    t.equal(status, 200)
    t.ok(
      gateway.upstream.seen.length <= before + loads.length,
      'at most what was under way still went to the old one',
    )
    t.ok(other.seen.length > 0)
    const digests = new Set((await settledCalls(gateway)).allowed.map((row) => row.config_digest))
    t.ok(digests.size >= 2, 'each decision names the configuration that judged it')
  },
)

t.test('F-30 a unary call under way is completed, and /ready says 503 meanwhile', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const release = Promise.withResolvers<void>()
  gateway.upstream.answer = async (res, seen) => {
    await release.promise
    await completion(res, seen)
  }
  const call = gateway.call(bot, 'POST', PATH, { body: CHAT })
  // Half a request is on its way when the stop comes: its connection is not idle.
  const probe = await rawConnect(t, gateway, null)
  const ready = requestBytes('GET', '/ready')
  probe.send(ready.slice(0, 10))
  const kept = await rawConnect(t, gateway, null)
  kept.send(ready)
  t.same(statuses(await kept.until('"ready"')), [200])
  await eventually(
    () => gateway.upstream.seen.length,
    (count) => count === 1,
  )

  const closing = gateway.close(10_000)
  await kept.closed
  probe.send(ready.slice(10))
  const answer = await probe.closed
  t.same(statuses(answer), [503])
  t.match(answer, /"status":"draining"/)
  await t.rejects(rawConnect(t, gateway, null), 'nobody new is let in')
  release.resolve()
  const { status, headers, json } = await call
  t.match(
    { status, connection: headers.connection, json },
    { status: 200, connection: 'close', json: { id: 'chatcmpl-1' } },
  )
  await closing
  const rows = await gateway.rows()
  t.match(rows.at(-1), { action: 'service.stopped' })
  t.match(rows.at(-2), { action: 'egress_llm_chat', status: 'success' })
})

t.test('F-30 a stop goes on taking calls for the delay, and says what it does', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  gateway.upstream.answer = (res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {"hello":1}\n\n')
  }
  const streaming = await rawConnect(t, gateway, bot)
  streaming.send(chatBytes('gpt-test', [], { stream: true }))
  await streaming.until('hello')
  const closing = gateway.close(0, { why: 'SIGTERM', delayMs: 600_000 })
  gateway.upstream.answer = completion
  t.match(await gateway.call(null, 'GET', '/ready'), { status: 503, json: { status: 'draining' } })
  const late = await gateway.call(bot, 'POST', PATH, { body: CHAT })
  t.match(late, { status: 200, headers: { connection: 'close' } }, 'on a new connection, which is closed')
  // Asked again: nobody waits for the rest of the delay.
  void gateway.close()
  await closing
  await t.rejects(rawConnect(t, gateway, null))
  t.match(
    gateway.log.filter(({ msg }) => /^stopp/.test(String(msg))),
    [
      { why: 'SIGTERM', delay_ms: 600_000, grace_ms: 0, calls: 1, msg: /^stopping: \/ready is 503/ },
      { why: 'SIGTERM', msg: /^stopping: no new calls/ },
      { calls: 1, msg: /^stopping: calls were cut off/ },
      { why: 'SIGTERM', calls: 0, cut: 1, msg: 'stopped' },
    ],
  )
})

t.test('F-30 a balancer that believes one check in the delay loses no call', async (t) => {
  const [one, other] = [await testGateway(t), await testGateway(t)]
  let taking = [one, other]
  let stopped = false
  const isReady = async (gateway: TestGateway): Promise<boolean> =>
    (await gateway.call(null, 'GET', '/ready').catch(() => null))?.status === 200
  const checks = (async () => {
    for await (const _ of setInterval(CHECK_MS)) {
      const ready = await Promise.all([one, other].map(isReady))
      taking = [one, other].filter((_, at) => ready[at])
      if (stopped) return
    }
  })()
  const callers = Array.from({ length: 4 }, async (_, caller) => {
    const got: (number | string)[] = []
    for (let n = caller; !stopped; n += 1) {
      const to = taking[n % taking.length] ?? one
      got.push(await to.call(null, 'GET', '/v1/models').then(({ status }) => status, String))
    }
    return got
  })
  await other.close(10_000, { delayMs: 5 * CHECK_MS })
  stopped = true
  await checks
  t.same([...new Set((await Promise.all(callers)).flat())], [401])
  t.same(taking, [one])
})

t.test('F-30 a stream gets its grace, then is cut with an outcome, and never ends cleanly', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  gateway.upstream.answer = (res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {"hello":1}\n\n')
  }
  const connection = await rawConnect(t, gateway, bot)
  connection.send(chatBytes('gpt-test', [], { stream: true }))
  await connection.until('hello')
  const closing = gateway.close(10_000)
  // Asked again: the grace is over.
  void gateway.close()
  const received = await connection.closed
  t.notMatch(received, /\r\n0\r\n|\[DONE\]/)
  t.match(received, /provider_failed|"error"/, 'an error event tells its loop')
  await closing
  const { ended } = await settledCalls(gateway)
  t.match(ended, [{ status: 'truncated', detail: { ending: 'drained' } }])
})

t.test('F-30 what hangs does not keep the gateway from stopping once its grace is over', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  gateway.upstream.answer = () => {}
  const waiting = await rawConnect(t, gateway, bot)
  waiting.send(chatBytes('gpt-test'))
  const sending = await rawConnect(t, gateway, bot)
  sending.send(requestBytes('POST', PATH, ['content-type: application/json', 'content-length: 100']))
  await eventually(
    () => gateway.upstream.seen.length,
    (count) => count === 1,
  )
  await gateway.close(50)
  t.same(
    statuses((await waiting.closed) + (await sending.closed)).filter((status) => status < 400),
    [],
  )
  const { allowed, ended } = await settledCalls(gateway)
  t.equal(allowed.length, 1)
  t.match(ended, [{ status: 'truncated' }])
})
