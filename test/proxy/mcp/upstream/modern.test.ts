import t from 'tap'
import {
  error,
  rawMcp,
  resourceAt,
  result,
  sendJson,
  sse,
  upstreamFor,
} from '../../../support/mcp/raw-upstream.ts'
import { all, callOf, failure, messagesOf, values } from '../../../support/mcp/upstream-calls.ts'

await t.test(
  '2026-07-28 a request carries what its revision demands, and its params as they are given',
  async (t) => {
    const raw = await rawMcp(t, (res, told) => sendJson(res, result(told, { resultType: 'complete' })))
    const upstream = upstreamFor(t)
    const params = '{ "name":"echo", "arguments":{"n":12345678901234567890}, "_meta":{} }'
    const headers = { 'Mcp-Name': 'echo', 'mcp-param-Region': 'eu' }
    const answer = await upstream.call(callOf(`${raw.url}?tenant=7`, { params, headers }))
    const [message] = await values(answer)
    const [told] = raw.told
    t.match(message, { id: answer.requestId, result: { resultType: 'complete' } })
    t.equal(answer.status, 200)
    t.equal(answer.streamed, false)
    t.equal(told?.url, '/mcp?tenant=7')
    t.equal(
      told?.body.toString(),
      `{"jsonrpc":"2.0","id":${answer.requestId},"method":"tools/call","params":${params}}`,
    )
    t.match(told?.headers, {
      host: new URL(raw.url).host,
      accept: 'application/json, text/event-stream',
      'accept-encoding': 'identity',
      'content-type': 'application/json',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'tools/call',
      'mcp-name': 'echo',
      'mcp-param-region': 'eu',
    })
    t.notHas(told?.headers, { 'mcp-session-id': '' })
  },
)

await t.test('T3 no other header goes upstream, whoever asks for it', async (t) => {
  const raw = await rawMcp(t, (res, told) => sendJson(res, result(told)))
  const headers = {
    authorization: 'Bearer of-the-caller',
    cookie: 'a=b',
    dpop: 'proof',
    'X-Admin-Secret': 'x',
    'mcp-session-id': 'stolen',
    'mcp-method': 'tools/list',
    'Mcp-Protocol-Version': '2025-03-26',
    host: 'elsewhere',
    'content-length': '1',
  }
  await all(await upstreamFor(t).call(callOf(raw.url, { headers })))
  const names = Object.keys(raw.told[0]?.headers ?? {}).sort()
  t.same(names, [
    'accept',
    'accept-encoding',
    'connection',
    'content-length',
    'content-type',
    'host',
    'mcp-method',
    'mcp-protocol-version',
    'user-agent',
  ])
  t.match(raw.told[0]?.headers, { 'mcp-method': 'tools/call', 'mcp-protocol-version': '2026-07-28' })
})

await t.test('a header value that could end its line is refused before anything is sent', async (t) => {
  const raw = await rawMcp(t, (res, told) => sendJson(res, result(told)))
  const headers = { 'mcp-name': 'a\r\nauthorization: x' }
  await t.rejects(upstreamFor(t).call(callOf(raw.url, { headers })), failure('failed'))
  t.equal(raw.told.length, 0)
})

await t.test('every request has an id of its own', async (t) => {
  const raw = await rawMcp(t, (res, told) => sendJson(res, result(told)))
  const upstream = upstreamFor(t)
  const calls = await Promise.all([1, 2, 3].map(() => upstream.call(callOf(raw.url))))
  await Promise.all(calls.map(all))
  t.equal(new Set(raw.told.map(({ id }) => id)).size, 3)
})

await t.test('an event stream is passed on as it comes, up to the response', async (t) => {
  const raw = await rawMcp(t, async (res, told) => {
    const event = sse(res)
    res.write(': keep-alive\n\n')
    res.write('id: 1\ndata:\n\n')
    res.write('event: ping\ndata: {"not":"ours"}\n\n')
    event({ jsonrpc: '2.0', method: 'notifications/progress', params: { progress: 1 } })
    res.write(`data: {"jsonrpc":"2.0",\r\ndata: "method":"notifications/message"}\r\n\r\n`)
    event(result(told, { done: true }))
    res.end()
  })
  const answer = await upstreamFor(t).call(callOf(raw.url))
  t.equal(answer.streamed, true)
  t.match(await values(answer), [
    { method: 'notifications/progress' },
    { method: 'notifications/message' },
    { id: answer.requestId, result: { done: true } },
  ])
})

await t.test('a message is passed on before the next one is made', async (t) => {
  const go = Promise.withResolvers<void>()
  const raw = await rawMcp(t, async (res, told) => {
    const event = sse(res)
    event({ jsonrpc: '2.0', method: 'notifications/progress' })
    await go.promise
    event(result(told))
    res.end()
  })
  const answer = await upstreamFor(t).call(callOf(raw.url))
  const kinds: unknown[] = []
  for await (const { value } of messagesOf(answer)) {
    kinds.push(value.method)
    // Until now there is nothing else to be read: the upstream waits for us.
    go.resolve()
  }
  t.same(kinds, ['notifications/progress', undefined])
})

await t.test('2026-07-28 a request of the upstream on the stream is refused', async (t) => {
  const raw = await rawMcp(t, (res, told) => {
    const event = sse(res)
    event({ jsonrpc: '2.0', id: 1, method: 'sampling/createMessage', params: {} })
    event(result(told))
    res.end()
  })
  await t.rejects(all(await upstreamFor(t).call(callOf(raw.url))), failure('failed'))
})

await t.test('an HTTP error with a JSON-RPC error is an answer, and keeps its status', async (t) => {
  const raw = await rawMcp(t)
  const upstream = upstreamFor(t)
  const cases: [number, (id: unknown) => unknown][] = [
    [400, (id) => id],
    [404, (id) => id],
    [400, () => null],
    [500, () => undefined],
  ]
  for (const [status, idOf] of cases) {
    raw.act = (res, told) => sendJson(res, error(idOf(told.id), -32020, 'Header mismatch'), status)
    const answer = await upstream.call(callOf(raw.url))
    t.equal(answer.status, status)
    t.equal(answer.streamed, false)
    t.match(await values(answer), [{ error: { code: -32020 } }])
  }
})

await t.test('an HTTP error with anything else is a failure', async (t) => {
  const raw = await rawMcp(t)
  const upstream = upstreamFor(t)
  const bodies = [
    '',
    'Not found',
    '<html>',
    '{}',
    '{"error":"nope"}',
    '{"jsonrpc":"2.0","id":null,"result":{}}',
    '{"jsonrpc":"2.0","id":"1","error":{"code":1,"message":""}}',
    '{"jsonrpc":"2.0","id":999999,"result":{}}',
    '{"jsonrpc":"2.0","method":"notifications/message"}',
    '[{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}]',
  ]
  for (const body of bodies) {
    raw.act = (res) => sendJson(res, body, 502)
    await t.rejects(upstream.call(callOf(raw.url)), failure('failed', { status: 502 }), body)
  }
  raw.act = (res, { id }) => {
    res.writeHead(500, { 'content-type': 'text/plain' })
    res.end(JSON.stringify(error(id, 1, '')))
  }
  await t.rejects(upstream.call(callOf(raw.url)), failure('failed', { status: 500 }), 'of another type')
})

await t.test(
  'docs/protocol.md#mcp-errors refused credentials are our failure, whatever comes with them',
  async (t) => {
    const raw = await rawMcp(t)
    const upstream = upstreamFor(t)
    for (const status of [401, 403]) {
      raw.act = (res, { id }) => {
        res.setHeader('www-authenticate', 'Bearer resource_metadata="http://127.0.0.1/x"')
        sendJson(res, error(id, -32600, 'no'), status)
      }
      await t.rejects(upstream.call(callOf(raw.url)), failure('failed', { status }))
    }
    t.equal(raw.told.length, 2, 'and nothing that they name is asked')
  },
)

await t.test('an upstream that was never read is not called', async (t) => {
  const raw = await rawMcp(t)
  const resource = resourceAt(raw.url, { era: null })
  await t.rejects(upstreamFor(t).call(callOf(raw.url, { resource })), failure('failed'))
  t.equal(raw.told.length, 0)
})
