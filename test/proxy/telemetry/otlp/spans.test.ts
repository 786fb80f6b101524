import t from 'tap'
import type { JsonObject } from '../../../../db/support/json.ts'
import type { TracedCall } from '../../../../plugins/call-trace.ts'
import { callSpan, errorTypeOf } from '../../../../proxy/telemetry/otlp/spans.ts'
import { attributesOf } from '../../../support/telemetry/collector.ts'

const IDS = {
  traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
  spanId: '00f067aa0ba902b7',
  parentId: null,
  link: null,
}

const callOf = (more: Partial<TracedCall> = {}): TracedCall => ({
  facts: { id: 'req_1', method: 'POST', call: { model: 'gpt-5', tool: null } },
  route: '/v1/chat/completions',
  session: null,
  status: 200,
  allowed: true,
  result: 'success',
  reason: null,
  by: null,
  receipt: null,
  upstream: null,
  tool: null,
  rpcCode: null,
  detail: {},
  line: () => ({}),
  ...more,
})

const spanOf = (call: TracedCall) =>
  JSON.parse(callSpan({ call, surface: 'llm', beganMs: 1_000, endedMs: 1_001.5, attempts: [] }, IDS))

const verdict = (said: string, findings: readonly JsonObject[] = []): JsonObject => ({
  content: { rules_digest: 'd', verdict: said, findings },
})

t.test('a span tells the verdict on content, and never what was found', (t) => {
  const passed = spanOf(
    callOf({ facts: { ...callOf().facts, content: { verdict: 'pass' } }, detail: verdict('refuse') }),
  )
  t.match(attributesOf(passed), { 'sallyport.content.request': 'pass', 'sallyport.content.answer': 'refuse' })
  const found = verdict('refuse', [{ rule: 'GITHUB_TOKEN', where: 'messages[0]', count: 1 }])
  const refused = spanOf(
    callOf({ allowed: false, by: 'content', reason: 'content_refused', status: 403, detail: found }),
  )
  t.match(attributesOf(refused), { 'sallyport.content.request': 'refuse', 'error.type': 'content_refused' })
  t.equal(attributesOf(refused)['sallyport.content.answer'], undefined)
  t.notMatch(JSON.stringify(refused), /GITHUB_TOKEN|messages/)
  t.match(refused, { name: 'chat', startTimeUnixNano: '1000000000', endTimeUnixNano: '1001500000' })
  t.end()
})

t.test('texts of callers are bounded, and an id that is more than an id is left out', (t) => {
  const model = 'x'.repeat(10_000)
  const message = { method: 'tools/call', version: '2025-11-25', meta: {}, id: '"a sentence of a prompt"' }
  const facts = { ...callOf().facts, call: { model, tool: 'files.read' }, message }
  const span = JSON.parse(
    callSpan({ call: callOf({ facts }), surface: 'mcp', beganMs: 1, endedMs: 0, attempts: [] }, IDS),
  )
  t.equal(attributesOf(span)['jsonrpc.request.id'], undefined)
  t.equal(span.endTimeUnixNano, span.startTimeUnixNano, 'a clock that was set back makes no negative time')
  t.equal(attributesOf(spanOf(callOf({ facts })))['gen_ai.request.model'].length, 256)
  t.end()
})

t.test('error.type is the reason, else the tool, the code or the status', (t) => {
  t.equal(errorTypeOf(callOf()), null)
  t.equal(errorTypeOf(callOf({ reason: 'provider_timeout', status: 504 })), 'provider_timeout')
  t.equal(errorTypeOf(callOf({ detail: { isError: true } })), 'tool_error')
  t.equal(errorTypeOf(callOf({ detail: { error_code: -32602 } })), '-32602')
  t.equal(errorTypeOf(callOf({ rpcCode: -32004 })), '-32004')
  t.equal(errorTypeOf(callOf({ status: 400 })), '400')
  t.equal(errorTypeOf(callOf({ result: 'truncated' })), 'truncated')
  t.end()
})
