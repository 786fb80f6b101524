import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { createMetrics, type GatewayMetrics } from '../../../proxy/telemetry/metrics.ts'
import { CHAT, testGateway } from '../../support/gateway.ts'
import { eventually } from '../../support/settled.ts'
import { testUpstream } from '../../support/upstream.ts'

/** The metrics of a gateway that has nothing to tell. */
const metricsOf = (waiting: number): GatewayMetrics =>
  createMetrics({
    waiting: () => waiting,
    owed: () => 0,
    held: () => 0,
    unsealed: async () => 0,
    sealingStopped: () => false,
    archiveAlarm: () => Promise.resolve({ overdue: false, last: null }),
    lateAnchors: async () => 0,
    exportLags: async () => [],
    brokenExpectations: async () => 0,
    quarantined: async () => 0,
    unreadable: async () => 0,
    unreadBundles: () => 0,
    diskFree: () => 0,
    diskReserve: () => 0,
    failing: () => false,
    lostLines: () => 0,
    reachable: async () => true,
    listening: () => true,
    descriptors: { limit: null, open: null, connections: 0, mostConnections: 0 },
    providerStates: () => [],
    limits: async () => [],
    certificates: async () => new Map(),
  })

t.test('gateways of one process tell of the process alike, and each of itself', async (t) => {
  for (const metrics of [metricsOf(1), metricsOf(2)]) {
    metrics.summarised.inc()
    const text = await metrics.registry.metrics()
    t.match(text, /^nodejs_heap_size_used_bytes \d/m)
    t.match(text, /^nodejs_eventloop_lag_p99_seconds \d/m)
    t.match(text, /^sallyport_refusals_summarised_total 1$/m)
  }
})

t.test('the metrics of the process hold no gateway that is gone', async (t) => {
  const gone = [1, 2, 3].map((waiting) => new WeakRef(metricsOf(waiting).registry))
  setFlagsFromString('--expose_gc')
  const collect = runInNewContext('gc')
  // A reference that was just made or read lives until the end of its turn.
  for (let turn = 0; turn < 3; turn += 1) {
    await new Promise((resolve) => setImmediate(resolve))
    collect()
  }
  t.same(
    gone.map((registry) => registry.deref()),
    [undefined, undefined, undefined],
  )
})

t.test('the figures of a provider are of the last hour and day, and of no other calls', (t) => {
  const { providers } = metricsOf(0)
  const began = Date.UTC(2026, 0, 1)
  const note = (at: number, ms: number, failed = false) =>
    providers.note({
      provider: 'a',
      attempts: [{ provider: 'a', status: failed ? 503 : 200, ...(failed && { reason: 'provider_failed' }) }],
      failed,
      ms,
      timing: { firstByteMs: ms / 2, upstreamMs: ms - 1 },
      tokens: { input: 7, output: 3 },
      at,
    })
  for (let call = 0; call < 98; call += 1) note(began, 100)
  note(began, 3_000, true)
  note(began, 3_000, true)
  const { hour, day, failingSince, problem } = providers.standing('a', began + 1_000)
  t.same(hour, day)
  t.match(hour, { calls: 100, errors: 2, tokens: { input: 700, output: 300 } })
  for (const [value, real] of [
    [hour.p50Ms, 100],
    [hour.p99Ms, 3_000],
    [hour.firstByteP50Ms, 50],
    [hour.firstByteP99Ms, 1_500],
  ] as const)
    t.ok(value !== null && value >= real && value <= real * 1.27, `${value} stands for ${real}`)
  t.same([failingSince, problem], [began, 'provider_failed'])
  note(began + 3_600_000, 100)
  const later = providers.standing('a', began + 3_600_000)
  t.match(later, { hour: { calls: 1, errors: 0 }, day: { calls: 101 }, failingSince: null })
  t.equal(later.answeringSince, began + 3_600_000)
  t.match(providers.standing('a', began + 88_200_000), { hour: { calls: 0, p50Ms: null }, day: { calls: 1 } })
  t.match(providers.standing('b', began), { answeringSince: null, failingSince: null, day: { calls: 0 } })
  t.end()
})

t.test('calls are counted by provider and status, and no caller makes a label', async (t) => {
  const failing = await testUpstream(t, (res) => void res.writeHead(503).end())
  const gateway = await testGateway(t, {
    files: {
      '50-llm.yaml': `plugin: llm
providers:
  - { name: first, dialect: openai, base_url: "${failing.url}/v1", api_key: sk-1, models: ["gpt-*"] }
  - { name: second, dialect: openai, base_url: UPSTREAM/v1, api_key: sk-2, models: ["gpt-*"] }
`,
    },
  })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const chat = (body: object = CHAT) => gateway.call(bot, 'POST', '/v1/chat/completions', { body })
  t.equal((await chat()).status, 200)
  gateway.upstream.answer = (res) => void res.writeHead(777).end('{"error":{"message":"no"}}')
  await chat()
  gateway.upstream.answer = (res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write('data: {"choices":[]}\n\n', () => res.end('data: [DONE]\n\n'))
  }
  t.equal((await chat({ ...CHAT, stream: true })).status, 200)
  const page = await gateway.call(null, 'GET', '/proxy/setup')
  for (const [, asset = ''] of page.text.matchAll(/"(\/proxy\/assets\/[^"]+)"/g))
    t.equal((await gateway.call(null, 'GET', asset)).status, 200, asset)
  t.equal((await gateway.call(null, 'GET', '/proxy/assets/dashboard-0123456789ab.css')).status, 404)
  await chat({ ...CHAT, model: 'nobody-has-0123456789abcdef' })
  const text = await eventually(
    async () => (await gateway.admin('GET', '/metrics')).text,
    (told) => /^sallyport_llm_gateway_seconds_count 2$/m.test(told),
  )
  for (const line of [
    'sallyport_llm_provider_answers_total{provider="first",status="503"} 3',
    'sallyport_llm_provider_answers_total{provider="second",status="200"} 2',
    'sallyport_llm_provider_answers_total{provider="second",status="other"} 1',
    'sallyport_llm_first_byte_seconds_count{provider="second"} 2',
    'sallyport_llm_gateway_seconds_count 2',
  ])
    t.ok(text.includes(`${line}\n`), line)
  t.match(text, /^sallyport_build_info\{version="[\d.]+",node="24\.[\d.]+"\} 1$/m)
  t.match(text, /route="\/proxy\/assets\/\{file\}"/)
  t.notMatch(text, /route="[^"]*[0-9a-f]{8}/, 'no route holds a digest')
  t.notMatch(text, /nobody-has/)
  t.notMatch(text, /provider="first",direction/, 'the tokens are those of the provider that answered')
})
