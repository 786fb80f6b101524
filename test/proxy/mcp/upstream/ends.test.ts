import t from 'tap'
import { CallHangup } from '../../../../proxy/http/open-calls.ts'
import type { McpResponseBody } from '../../../../proxy/mcp/upstream/exchange.ts'
import { readMcpAnswer } from '../../../../proxy/mcp/upstream/request.ts'
import {
  type Act,
  legacy,
  rawMcp,
  resourceAt,
  result,
  sendJson,
  sse,
  upstreamFor,
} from '../../../support/mcp/raw-upstream.ts'
import { all, callOf } from '../../../support/mcp/upstream-calls.ts'
import { eventually } from '../../../support/settled.ts'

const LATER = 660_000

const ENDS: Record<string, Act> = {
  'without an answer': (res) => void res.socket?.destroy(),
  'with a head that is none': (res) => void res.socket?.end('SSH-2.0\r\n\r\n'),
  'with a head and rubbish in one piece': (res) => {
    const head = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n'
    res.socket?.end(`${head}ZZ\r\n`)
  },
  'with half an answer': (res) => {
    res.writeHead(200, { 'content-type': 'application/json', 'content-length': '9' })
    res.write('{')
    res.socket?.end()
  },
  'with a status that is no answer': (res) => void res.writeHead(204).end(),
  'with a page': (res) => void res.writeHead(500, { 'content-type': 'text/html' }).end('<html>'),
  'with refused credentials': (res) => void res.writeHead(401).end('x'.repeat(100_000)),
  'with too much': (res, told) => sendJson(res, result(told, { a: 'x'.repeat(200_000) })),
  'with a response to another request': (res, told) => sendJson(res, result({ ...told, id: 0 })),
  'with an answer': (res, told) => sendJson(res, result(told)),
  'with an answer as an event': (res, told) => {
    sse(res)(result(told))
    res.end()
  },
  'without an answer on a stream': (res) => {
    sse(res)
    res.end()
  },
}

await t.test('however a request ends, its session is idle again', async (t) => {
  for (const [how, act] of Object.entries(ENDS)) {
    await t.test(how, async (t) => {
      let at = 0
      const raw = await rawMcp(t, legacy({ act }))
      const upstream = upstreamFor(t, { clock: () => at })
      const call = callOf(raw.url, { resource: resourceAt(raw.url, { era: 'legacy' }) })
      const whole = async () => all(await upstream.call(call))
      await whole().catch(() => {})
      raw.act = legacy({ sessionId: () => `other-${at}` })
      const owner = { principalId: 'acme::other', sessionId: null }
      // Another one's call shows what is idle. Its last bytes may still be on their way, so more than one may
      // be needed.
      const ended = async () => {
        at += LATER
        await all(await upstream.call({ ...call, owner, method: 'ping' }))
        return raw.of('DELETE').some(({ session }) => session === 's1')
      }
      t.ok(await eventually(ended, Boolean))
    })
  }
})

await t.test('so it is where the body broke before anybody could look at it', async (t) => {
  const body: McpResponseBody = {
    complete: false,
    read: () => {
      throw new Error('it broke')
    },
    async *[Symbol.asyncIterator]() {},
    onceOver: (told) => told(),
    destroy: () => {},
  }
  const settled: boolean[] = []
  const answer = readMcpAnswer(
    { status: 500, headers: {}, body },
    {
      requestId: 1,
      era: 'legacy',
      credentials: { headers: {}, tls: null, traces: [] },
      limits: { maxMessageBytes: 1, maxAnswerBytes: 1 },
      session: 'named',
      held: null,
      resource: resourceAt('https://mcp.example/mcp'),
      hangup: new CallHangup(),
      settled: (answered) => settled.push(answered),
    },
  )
  await t.rejects(answer)
  t.same(settled, [true])
})
