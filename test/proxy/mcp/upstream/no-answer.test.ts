import t from 'tap'
import {
  type Act,
  error,
  rawHead,
  rawMcp,
  result,
  sendJson,
  sse,
  type Told,
  upstreamFor,
} from '../../../support/mcp/raw-upstream.ts'
import { drip, endSse, fails, JSON_TYPE, SSE_TYPE, text } from '../../../support/mcp/upstream-broken.ts'
import { all, callOf, failure } from '../../../support/mcp/upstream-calls.ts'

await t.test('what is no answer is refused', async (t) => {
  const plain =
    (headers: Record<string, string>, body: (told: Told) => string | Buffer = text, status = 200): Act =>
    (res, told) => {
      res.writeHead(status, headers)
      res.end(body(told))
    }
  const type = { 'content-type': 'application/json' }
  const cases: Record<string, Act> = {
    'no content type': plain({}),
    'a page': plain({ 'content-type': 'text/html' }),
    'two content types': (res, told) => {
      rawHead(res, [JSON_TYPE, SSE_TYPE, 'connection: close'])
      res.socket?.end(text(told))
    },
    'a status of success that answers no request': plain(type, text, 202),
    'a part of an answer': plain(type, text, 206),
    'no content': plain(type, () => '', 204),
    'a batch': plain(type, (told) => `[${text(told)}]`),
    'two responses in one body': plain(type, (told) => text(told) + text(told)),
    'the id of another request': plain(type, () => text({ id: 999_999 } as Told)),
    'our id as a text': plain(type, (told) => text({ ...told, id: String(told.id) })),
    'no id, with a status of success': plain(type, () => JSON.stringify(error(null, -1, 'x'))),
    'a name twice': plain(
      type,
      (told) => `{"jsonrpc":"2.0","id":${Number(told.id)},"id":${Number(told.id)},"result":{}}`,
    ),
    'a notification as JSON': plain(type, () => '{"jsonrpc":"2.0","method":"x"}'),
    'a request as JSON': plain(type, (told) => `{"jsonrpc":"2.0","id":${Number(told.id)},"method":"ping"}`),
    'another protocol': (res) => void res.socket?.end('SSH-2.0-OpenSSH_9.9\r\n\r\n'),
    'a head without end': (res) => {
      res.socket?.write('HTTP/1.1 200 OK\r\n')
      const line = `x-filler: ${'x'.repeat(1_000)}\r\n`
      drip(res, () => void res.socket?.write(line.repeat(20)))
    },
    'an event that is no message': (res) => endSse(res, 'data: hello\n\n'),
    'an event that is a batch': (res, told) => endSse(res, `data: [${text(told)}]\n\n`),
    'an event with the id of another request': (res, told) => {
      const event = sse(res)
      event(result({ ...told, id: 999_999 }))
      event(result(told))
      res.end()
    },
    'an event that is not UTF-8': (res, told) => {
      sse(res)
      res.end(Buffer.from(`data: ${JSON.stringify(result(told, { a: '\xff' }))}\n\n`, 'latin1'))
    },
  }
  for (const [name, act] of Object.entries(cases)) await t.test(name, (t) => fails(t, act, 'failed'))
})

await t.test('threat 19 a redirect is not followed', async (t) => {
  const elsewhere = await rawMcp(t, (res, told) => sendJson(res, result(told)))
  for (const status of [301, 302, 303, 307, 308]) {
    await t.test(String(status), (t) =>
      fails(t, (res) => void res.writeHead(status, { location: elsewhere.url }).end(), 'failed'),
    )
  }
  t.equal(elsewhere.told.length, 0)
})

await t.test('what follows the response on a stream is never passed on', async (t) => {
  const raw = await rawMcp(t, (res, told) => {
    const event = sse(res)
    event(result(told, { first: true }))
    event(result(told, { second: true }))
    event({ jsonrpc: '2.0', method: 'notifications/message' })
    res.end()
  })
  const messages = await all(await upstreamFor(t).call(callOf(raw.url)))
  t.match(
    messages.map(({ value }) => value.result),
    [{ first: true }],
  )
  t.equal(messages.length, 1)
})

await t.test('threat 13 a message that holds the secret of our credentials is refused', async (t) => {
  const secret = 'sk/secret+"quoted"/value'
  const written = [secret.replaceAll('"', '\\"'), secret.replaceAll('"', '\\"').replaceAll('/', '\\/')]
  for (const echo of written) {
    const acts: Act[] = [
      (res, told) =>
        sendJson(res, `{"jsonrpc":"2.0","id":${Number(told.id)},"result":{"a":"Bearer ${echo}"}}`),
      (res) => {
        sse(res)(`{"jsonrpc":"2.0","method":"notifications/message","params":{"a":"${echo}"}}`)
      },
      (res, told) =>
        sendJson(
          res,
          `{"jsonrpc":"2.0","id":${Number(told.id)},"error":{"code":1,"message":"${echo}"}}`,
          400,
        ),
    ]
    for (const act of acts) {
      const raw = await rawMcp(t, act)
      const upstream = upstreamFor(t, { secret: async () => secret })
      const { resource, ...call } = callOf(raw.url)
      const keyed = {
        ...call,
        resource: { ...resource, auth_type: 'bearer', auth_secret_ref: 'env:X' } as const,
      }
      const whole = async () => all(await upstream.call(keyed))
      await t.rejects(whole(), failure('failed', { message: /secret of our credentials/ }))
      t.equal(raw.told[0]?.headers.authorization, `Bearer ${secret}`)
    }
  }
})
