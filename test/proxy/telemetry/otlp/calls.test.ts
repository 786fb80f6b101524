import t, { type Test } from 'tap'
import { run } from '../../../support/clients/files.ts'
import { CHAT, type Json } from '../../../support/gateway.ts'
import { rawMcp, result, sendJson } from '../../../support/mcp/raw-upstream.ts'
import { mcpStage, type Stage, tool, toolServer } from '../../../support/mcp/stage.ts'
import { modern } from '../../../support/mcp/upstream-servers.ts'
import { attributesOf, type TestCollector, testCollector } from '../../../support/telemetry/collector.ts'
import { parseStrictly } from '../../../support/telemetry/strict.ts'

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
const OTHER = '00f067aa0ba902b7'
const PARENT = 'b7ad6b7169203331'
const traceparent = (span: string, flags = '01'): string => `00-${TRACE}-${span}-${flags}`

const PROMPT = 'the secret of the prompt'
const SAID = 'the words of the model'

/** An answer by another model than was asked for, with its usage. */
const completionText = (): string =>
  JSON.stringify({
    id: 'chatcmpl-1',
    object: 'chat.completion',
    created: 1,
    model: 'gpt-other',
    choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: SAID } }],
    usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 },
  })

async function traced(t: Test, more = ''): Promise<{ stage: Stage; collector: TestCollector }> {
  const collector = await testCollector(t)
  const file = `plugin: telemetry
endpoint: ${collector.url}
headers: { x-key: of-the-collector }
signals: [traces, metrics, logs]
resource: { deployment.environment.name: test }
${more}`
  return { stage: await mcpStage(t, { files: { '80-telemetry.yaml': file } }), collector }
}

const kindOf = (spans: readonly Json[], kind: number): readonly Json[] =>
  spans.filter((span) => span.kind === kind)
const SERVER = 2
const CLIENT = 3

const { code } = await run('python3', ['-c', 'import opentelemetry.proto, google.protobuf']).catch(() => ({
  code: null,
}))
const skip = code === 0 ? false : 'not installed here: pip install opentelemetry-proto protobuf'

await t.test('calls of models and tools are exported as spans, metrics and logs', async (t) => {
  const { stage, collector } = await traced(t)
  const { upstream } = stage
  const legacy = await stage.register('files', await toolServer(t, [tool('read')]))
  const act = modern(() => ({ tools: [tool('search')], ttlMs: 0, cacheScope: 'private' }))
  const modernServer = await rawMcp(t, (res, told) =>
    told.rpc === 'tools/call'
      ? sendJson(res, result(told, { resultType: 'complete', content: [], isError: true }))
      : act(res, told),
  )
  const web = await stage.register('web', modernServer)
  const bot = await stage.enroll('bot', ['llm.chat', 'mcp.tools.call', 'mcp.tools.list'])
  const other = await stage.enroll('other', [])
  await stage.bind(bot, legacy)
  await stage.bind(bot, web)

  let failing = 1
  upstream.answer = (res) => {
    res.setHeader('content-type', 'application/json')
    if (failing-- > 0) return void res.writeHead(200).end(completionText())
    res.writeHead(400).end('{"error":{"message":"no"}}')
  }
  const chat = { ...CHAT, messages: [{ role: 'user', content: PROMPT }] }
  const post = (headers: Record<string, string>, who = bot) =>
    stage.call(who, 'POST', '/v1/chat/completions', { body: chat, headers })
  t.equal((await post({ traceparent: traceparent(PARENT), tracestate: 'vendor=1' })).status, 200)
  t.equal((await post({})).status, 400)
  t.equal((await post({ traceparent: 'not one', tracestate: 'vendor=1' }, other)).status, 403)
  const read = await stage.callTool(
    bot,
    'files.read',
    { path: PROMPT },
    { headers: { traceparent: traceparent(OTHER) } },
  )
  t.match(read.json, { result: { content: [{ type: 'text' }] } })
  await stage.callTool(
    bot,
    'web.search',
    {},
    {
      modern: true,
      params: { _meta: { traceparent: traceparent(PARENT) } },
      headers: { traceparent: traceparent(OTHER) },
    },
  )
  await stage.rpc(bot, 'tools/list')
  const unsampled = await post({ traceparent: traceparent(PARENT, '00') })
  t.equal(unsampled.status, 400)

  await stage.close()
  const spans = collector.spans()
  const servers = kindOf(spans, SERVER)
  const [first, refused, denied, legacyCall, modernCall, list] = servers
  t.equal(servers.length, 6, 'a call whose trace is not sampled has none')

  await t.test('a model is called', async (t) => {
    t.match(first, { name: `chat ${CHAT.model}`, traceId: TRACE, parentSpanId: PARENT })
    const own = kindOf(spans, CLIENT).filter(({ parentSpanId }) => parentSpanId === first.spanId)
    t.equal(own.length, 1)
    t.equal(
      upstream.seen[0]?.headers.traceparent,
      `00-${TRACE}-${own[0].spanId}-01`,
      'the provider is told of it',
    )
    t.equal(upstream.seen[0]?.headers.tracestate, 'vendor=1')
    const [row] = (await stage.rows()).filter(({ action }) => action === 'egress_llm_chat')
    t.match(attributesOf(first), {
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'openai',
      'gen_ai.request.model': CHAT.model,
      'gen_ai.response.model': 'gpt-other',
      'gen_ai.usage.input_tokens': 7,
      'gen_ai.usage.output_tokens': 3,
      'http.response.status_code': 200,
      'enduser.id': bot.id,
      'sallyport.ledger.stream': row?.stream,
      'sallyport.ledger.seq': row?.seq,
      'sallyport.request_id': row?.request_id,
      'sallyport.decision': 'allowed',
      'sallyport.capability': 'llm.chat',
      'sallyport.bound': 'certificate',
    })
    t.match(attributesOf(own[0]), { 'server.address': '127.0.0.1', 'http.response.status_code': 200 })
    t.equal(attributesOf(refused)['error.type'], '400')
    t.match(refused.status, { code: 2 })
    t.equal(refused.parentSpanId, undefined, 'without a parent it is the first of its trace')
    t.match(denied, { name: 'chat', status: { code: 2 } })
    t.match(attributesOf(denied), {
      'sallyport.decision': 'denied',
      'sallyport.reason': 'capability_missing',
      'sallyport.refused_by': 'capability',
      'enduser.id': other.id,
    })
    t.not(denied.traceId, TRACE)
    const last = upstream.seen.at(-1)?.headers.traceparent
    t.match(last, new RegExp(`^00-${TRACE}-[0-9a-f]{16}-00$`), 'an unsampled trace stays one')
  })

  t.test('a tool is called', (t) => {
    t.match(legacyCall, { name: 'tools/call files.read', traceId: TRACE, parentSpanId: OTHER })
    t.match(attributesOf(legacyCall), {
      'mcp.method.name': 'tools/call',
      'gen_ai.operation.name': 'execute_tool',
      'gen_ai.tool.name': 'files.read',
      'jsonrpc.request.id': '1',
      'sallyport.upstream': 'files',
    })
    t.match(modernCall, { traceId: TRACE, parentSpanId: PARENT, links: [{ traceId: TRACE, spanId: OTHER }] })
    t.match(attributesOf(modernCall), { 'mcp.protocol.version': '2026-07-28', 'error.type': 'tool_error' })
    const [sent] = modernServer.of('tools/call')
    const [attempt] = kindOf(spans, CLIENT).filter(({ parentSpanId }) => parentSpanId === modernCall.spanId)
    t.match(attempt, { name: 'tools/call search' })
    t.equal(sent?.headers.traceparent, `00-${TRACE}-${attempt.spanId}-01`)
    t.equal(sent?.headers.tracestate, undefined)
    t.match(list, { name: 'tools/list' })
    t.end()
  })

  t.test('metrics and logs are there, and everything says whose it is', (t) => {
    const names = new Set(
      collector.received.flatMap(({ json }) =>
        (json.resourceMetrics?.[0].scopeMetrics[0].metrics ?? []).map(({ name }: Json) => name),
      ),
    )
    for (const name of [
      ...['sallyport_requests_total', 'sallyport_request_seconds', 'sallyport_build_info'],
      ...['gen_ai.client.operation.duration', 'gen_ai.client.token.usage', 'mcp.server.operation.duration'],
    ])
      t.ok(names.has(name), name)
    const logs = collector.received.flatMap(
      ({ json }) => json.resourceLogs?.[0].scopeLogs[0].logRecords ?? [],
    )
    t.ok(
      logs.some(({ spanId, traceId }) => spanId === first.spanId && traceId === TRACE),
      'a line names the span of its call',
    )
    const [line] = stage.log.filter(({ reqId }) => reqId === attributesOf(first)['sallyport.request_id'])
    t.equal(line.trace_id, TRACE, 'and so does the log of the gateway')
    for (const { headers, json } of collector.received) {
      t.equal(headers['x-key'], 'of-the-collector')
      const [whole] = Object.values<Json>(json)
      t.match(attributesOf(whole[0].resource), {
        'service.name': 'sallyport',
        'deployment.environment.name': 'test',
      })
    }
    t.end()
  })

  t.test('nothing of content, no key and no address of a caller leaves', (t) => {
    const all = collector.received.map(({ text }) => text).join('\n')
    for (const word of [PROMPT, SAID, 'sk-upstream-openai', 'remote_address', 'not one'])
      t.notOk(all.includes(word), word)
    t.end()
  })

  await t.test('the official definitions parse every message', { skip }, async (t) => {
    t.ok(new Set(collector.received.map(({ signal }) => signal)).size === 3)
    t.same(await parseStrictly(collector.received), [`${collector.received.length} parsed`])
  })
})
