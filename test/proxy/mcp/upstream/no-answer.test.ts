import t from 'tap'
import {
  type Act,
  error,
  legacy,
  rawHead,
  rawMcp,
  resourceAt,
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
    'events with the ids of other requests alone': (res, told) =>
      endSse(res, `data: ${text({ ...told, id: 999_999 })}\n\ndata: ${text({ ...told, id: null })}\n\n`),
    ...Object.fromEntries(
      [
        ['no object for its result', '"result":[]'],
        ['a result and an error', '"result":{},"error":{"code":1,"message":"x"}'],
        ['a name twice', '"result":{},"result":{}'],
        ['half of its result', '"result":{"a":'],
        ['a large one that is broken', `"result":{"a":"${'x'.repeat(40_000)}"`],
        ['a name in another case', '"Result":{}'],
      ].map(([what, members]): [string, Act] => [
        `an event with our id and ${what}, though the true one follows`,
        (res, told) =>
          endSse(
            res,
            `data: {"jsonrpc":"2.0", "id" : ${String(told.id)},${String(members)}}\n\ndata: ${text(told)}\n\n`,
          ),
      ]),
    ),
    'events without end that are no messages': (res, told) =>
      endSse(res, `${'data: x\n\n'.repeat(10_001)}data: ${text(told)}\n\n`),
    'an event that is not UTF-8': (res, told) => {
      sse(res)
      res.end(Buffer.from(`data: ${JSON.stringify(result(told, { a: '\xff' }))}\n\n`, 'latin1'))
    },
  }
  for (const [name, act] of Object.entries(cases)) await t.test(name, (t) => fails(t, act, 'failed'))
})

/** Events that belong to no call of ours, as data. */
const UNASKED: Readonly<Record<string, string>> = {
  'a response to another request': '{"jsonrpc":"2.0","id":999999,"result":{"a":[{"id":1}]}}',
  'a large response to another request': `{"jsonrpc":"2.0","id":999999,"result":{"a":"${'x'.repeat(40_000)}"}}`,
  'a large one that is broken': `{"jsonrpc":"2.0","id":999999,"result":{"a":"${'x'.repeat(40_000)}"}`,
  'a response with a fraction as its id': '{"jsonrpc":"2.0","id":1.5,"result":{}}',
  'a response without an id': '{"jsonrpc":"2.0","result":{}}',
  'a response whose id is null': '{"jsonrpc":"2.0","id":null,"result":{}}',
  'an error whose id is null': '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}',
  'a question with a fraction as its id': '{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
  'a question whose id is null': '{"jsonrpc":"2.0","id":null,"method":"ping"}',
  'a question whose id is too large': '{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}',
  'a notification with a list of parameters': '{"jsonrpc":"2.0","method":"notifications/x","params":[1]}',
  'a notification without a version': '{"method":"notifications/x"}',
  'a notification that can be read in two ways': '{"jsonrpc":"2.0","method":"notifications/x","Method":"y"}',
  'an empty object': '{}',
  'a batch': '[{"jsonrpc":"2.0","method":"notifications/x"}]',
  'a heartbeat that is a word': 'ping',
  'a heartbeat that is no JSON': '{heartbeat}',
  'a heartbeat that is a number': '1',
  'a heartbeat of blanks': '  ',
  'what other APIs end with': '[DONE]',
}

await t.test('what nobody asked for does not end an answer: it is passed over', async (t) => {
  const others = [
    ': a comment\n\n',
    ':\r\n\r\n',
    'event: ping\ndata: \n\n',
    'event: ping\ndata: {\n\n',
    'data:\n\n',
    'retry: 9\n\n',
  ].map((event) => [event, event] as const)
  const events = [
    ...Object.entries(UNASKED).map(([what, data]) => [what, `data: ${data}\n\n`] as const),
    ...others,
  ]
  const cases = [...events, ['all of them', events.map(([, event]) => event).join('')] as const]
  for (const era of ['legacy', 'modern'] as const) {
    for (const [what, event] of cases) {
      const act: Act = (res, told) => endSse(res, `${event}data: ${text(told)}\n\n`)
      const raw = await rawMcp(t, era === 'legacy' ? legacy({ act }) : act)
      const messages = await all(
        await upstreamFor(t, { maxAnswerBytes: 999_999 }).call(
          callOf(raw.url, { resource: resourceAt(raw.url, { era }) }),
        ),
      )
      t.match(messages, [{ value: { result: { filler: /x/ } } }], `${era}: ${what}`)
      t.equal(messages.length, 1)
    }
  }
  const noise = Buffer.concat([Buffer.from('data: \xff\n\n: \xfe\n\n', 'latin1')])
  const raw = await rawMcp(t, (res, told) => {
    sse(res)
    res.write(noise)
    res.end(`data: ${text(told)}\n\n`)
  })
  t.equal((await all(await upstreamFor(t).call(callOf(raw.url)))).length, 1, 'bytes that are not UTF-8')
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
