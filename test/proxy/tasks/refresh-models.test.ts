import { join } from 'node:path'
import { Writable } from 'node:stream'
import t from 'tap'
import { readSettings } from '../../../proxy/boot/settings.ts'
import { startGateway } from '../../../proxy/wiring/gateway.ts'
import { CHAT, PLUGIN_FILES, scratch, testGateway, writeFiles } from '../../support/gateway.ts'
import { catalogueStage } from '../../support/llm/catalogue.ts'
import { anthropic, openai } from '../../support/llm/facts.ts'
import { answer, nobody, rawUpstream } from '../../support/llm/upstreams.ts'
import { eventually } from '../../support/settled.ts'
import { testUpstream } from '../../support/upstream.ts'

const listOf = (...ids: readonly string[]): string =>
  answer(200, JSON.stringify({ data: ids.map((id) => ({ id })) }))
const LIST = listOf('gpt-4o', 'gpt-5', 'whisper-1')
const LITERAL = { models: ['gpt-*', 'o9'], aliases: { fast: 'gpt-4o' } }
const MINUTES = 60_000

const FAILURES = [
  ['answers 500', answer(500, '{}'), /answered with 500/],
  ['answers with no JSON', answer(200, '<p>sk-up-1'), /no JSON/],
  ['answers with no list', answer(200, '{"data":{}}'), /no data/],
  ['answers with too much', answer(200, `{"data":["${'x'.repeat(4 * 1024 * 1024)}"]}`), /longer than/],
  ['redirects', answer(302, '', { location: 'http://127.0.0.1:1/' }), /answered with 302/],
] as const

for (const [name, text, problem] of FAILURES) {
  await t.test(`§3 a provider that ${name} is listed with what its file names`, async (t) => {
    const { url } = await rawUpstream(t, (socket) => socket.write(text))
    const { round, ids, log } = catalogueStage(t, [openai(url, LITERAL)])
    await round()
    t.strictSame(await ids(), ['fast', 'o9'])
    t.match(log, [{ level: 40, provider: 'openai', problem }])
    t.notMatch(JSON.stringify(log), 'sk-up-1', 'what it answered is in no log')
  })
}

await t.test('§3 a list is read every 5 minutes, and a failed reading leaves the one before', async (t) => {
  const answers = [listOf('gpt-1'), answer(500, '{}'), listOf('gpt-2')]
  const { url, seen } = await rawUpstream(t, (socket) => socket.write(answers.shift() ?? LIST))
  const { round, ids, begun } = catalogueStage(t, [openai(url)])
  await round()
  t.strictSame(await ids(), ['gpt-1'])
  await round(5 * MINUTES - 1)
  t.equal(begun.length, 1)
  await round(1)
  t.equal(begun.length, 2)
  t.strictSame(await ids(), ['gpt-1'])
  await round(30_000)
  t.strictSame(await eventually(ids, ([first]) => first === 'gpt-2'), ['gpt-2'])
  t.equal(seen.length, 3)
})

await t.test(
  '§3 a provider that fails is asked after 30 s, then ever later, at most 5 minutes',
  async (t) => {
    let well = false
    const { url } = await rawUpstream(t, (socket) => socket.write(well ? LIST : answer(503, '{}')))
    const { round, ids, begun, log } = catalogueStage(t, [openai(url)])
    await round()
    for (const [tries, waitMs] of [30_000, 60_000, 120_000, 240_000, 300_000, 300_000].entries()) {
      await round(waitMs - 1)
      t.equal(begun.length, tries + 1)
      await round(1)
      t.equal(begun.length, tries + 2)
    }
    t.match(log, [{ level: 40, provider: 'openai' }], 'one line, however often it fails')
    well = true
    await round(5 * MINUTES)
    await eventually(ids, (all) => all.length > 0)
    t.match(log.slice(1), [{ level: 30, provider: 'openai', msg: /again/ }])
    t.equal(log.length, 2)
  },
)

await t.test('§3 a provider that is not there, or too slow, does not hold up the others', async (t) => {
  const slow = await rawUpstream(t, () => {})
  const good = await rawUpstream(t, (socket) => socket.write(listOf('claude-x')))
  const { round, ids } = catalogueStage(t, [
    openai(await nobody(), LITERAL),
    openai(slow.url, { name: 'slow', models: ['x'], first_byte_timeout_ms: 20 }),
    anthropic(good.url),
  ])
  await round()
  t.strictSame(await ids(), ['fast', 'o9', 'x', 'claude-x'])
})

await t.test(
  '§8 a reload has a changed provider read at once, and leaves the others their lists',
  async (t) => {
    const { url } = await rawUpstream(t, (socket) => socket.write(LIST))
    const other = await rawUpstream(t, (socket) => socket.write(listOf('claude-x')))
    const { round, ids, begun, reload } = catalogueStage(t, [openai(url)])
    await round()
    t.strictSame(await ids(), ['gpt-4o', 'gpt-5'])
    reload([openai(url), anthropic(other.url)])
    await round()
    t.strictSame(await ids(), ['gpt-4o', 'gpt-5', 'claude-x'])
    t.strictSame(begun, ['openai', 'anthropic'])
    reload([openai(other.url, { models: ['claude-*'] })])
    await round()
    t.strictSame(await ids(), ['claude-x'])
    t.strictSame(begun, ['openai', 'anthropic', 'openai'])
  },
)

await t.test(
  'F-30 stopping cuts a reading that hangs, says nothing of it, and no more is begun',
  async (t) => {
    const { promise: hangs, resolve: hang } = Promise.withResolvers<void>()
    const { url, closed } = await rawUpstream(t, () => hang())
    const { round, begun, log, stop } = catalogueStage(t, [openai(url)])
    const rounds = round()
    await hangs
    await stop()
    await closed
    await rounds
    await round(5 * MINUTES)
    t.equal(begun.length, 1)
    t.strictSame(log, [])
  },
)

await t.test('§3 the gateway reads the lists by itself: after its start, and after a reload', async (t) => {
  const gateway = await testGateway(t)
  const { upstream } = gateway
  const listings = (count: number) =>
    eventually(
      () => upstream.readings.map(({ url }) => url).toSorted(),
      (urls) => urls.length >= count,
    )
  t.strictSame(await listings(2), ['/v1/models', '/v1/models?limit=1000'])
  const bot = await gateway.enroll('bot', ['llm.chat'])
  for (const path of ['/v1/models', '/v1/egress/models']) {
    t.equal((await gateway.call(bot, 'GET', path)).status, 200)
  }
  t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
  t.equal(upstream.readings.length, 2, 'no caller has a list read')
  const llm = PLUGIN_FILES['50-llm.yaml']?.replace('sk-upstream-openai', 'sk-upstream-new') ?? ''
  await writeFiles(gateway.pluginsDir, { '50-llm.yaml': llm }, upstream.url)
  t.equal(await gateway.reload(), true)
  await listings(3)
  t.equal(upstream.readings.length, 3, 'of the changed provider alone')
  t.equal(upstream.readings[2]?.headers.authorization, 'Bearer sk-upstream-new')
})

await t.test('§8 a gateway that only opens its control socket asks no provider', async (t) => {
  const upstream = await testUpstream(t)
  const root = await scratch(t)
  const directory = join(root, 'config')
  await writeFiles(directory, PLUGIN_FILES, upstream.url)
  const settings = readSettings(
    { MCP_PROXY_DATA_DIR: join(root, 'data'), MCP_PROXY_PLUGINS_DIR: directory },
    root,
  )
  const logTo = new Writable({ write: (_line, _encoding, done) => done() })
  const gateway = await startGateway(settings, { env: {}, logTo, controlOnly: true })
  t.teardown(() => gateway.close(0))
  // A reading that began at the start would be there before this request is.
  await (await fetch(upstream.url)).text()
  t.equal(upstream.seen.length, 1)
  t.equal(upstream.readings.length, 0)
})
