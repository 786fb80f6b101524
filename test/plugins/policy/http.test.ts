import { gzipSync } from 'node:zlib'
import t from 'tap'
import { opaHttp } from '../../../plugins/policy/opa-http.ts'
import { data, type PolicyServer, policyServer } from '../../support/plugins/policy-server.ts'

/** Long enough that only an answer that never comes is late. */
const AMPLE_MS = 10_000

const ask = (url: string, deadlineMs = AMPLE_MS, token?: string): Promise<unknown> =>
  opaHttp({ url, token, deadlineMs }).evaluate('{"model":"gpt"}')

await t.test('the question is asked as the Data API wants it', async (t) => {
  const agent = await policyServer(t)
  t.equal(await ask(`${agent.url}?strict-builtin-errors=true`), true)
  t.equal(await ask(agent.url, AMPLE_MS, 'canary-token'), true)
  const [first, second] = agent.asked
  t.match(first, {
    url: 'POST /v1/data/sallyport/allow?strict-builtin-errors=true',
    headers: { 'content-type': 'application/json' },
    body: '{"input":{"model":"gpt"}}',
  })
  t.notOk(first?.headers.authorization, 'no token, no header')
  t.equal(second?.headers.authorization, 'Bearer canary-token')
})

await t.test('the result is handed on as it is, and is undefined where there is none', async (t) => {
  const agent = await policyServer(t)
  for (const result of [true, false, null, 1, 'true', [], { allow: false, reason: 'no' }]) {
    agent.answer = data({ result, decision_id: 'x' })
    t.strictSame(await ask(agent.url), result)
  }
  agent.answer = data({ warning: { code: 'api_usage_warning' } })
  t.equal(await ask(agent.url), undefined)
})

const text = (body: string, status = 200): PolicyServer['answer'] => {
  return (res) => {
    res.writeHead(status, { 'content-type': 'application/json' })
    res.end(body)
  }
}

await t.test(
  'H1a an answer that quotes the agent’s own token is none, for its reason is the caller’s',
  async (t) => {
    const agent = await policyServer(t)
    agent.answer = text('{"result":{"allow":false,"reason":"Bearer canary\\u002dtoken"}}')
    await t.rejects(ask(agent.url, AMPLE_MS, 'canary-token'), /quotes its token/)
    t.strictSame(await ask(agent.url), { allow: false, reason: 'Bearer canary-token' })
  },
)

await t.test('whatever is not a plain answer is none', async (t) => {
  const agent = await policyServer(t)
  const wrong: Readonly<Record<string, PolicyServer['answer']>> = {
    'a server error that says true': text('{"result":true}', 500),
    'a 201 that says true': text('{"result":true}', 201),
    'nothing found': text('{}', 404),
    'not signed in': text('{"code":"unauthorized"}', 401),
    'no body': text(''),
    'not JSON': text('<html>true</html>'),
    'JSON that is cut short': text('{"result":true'),
    'two values': text('{"result":true}{"result":true}'),
    'two results': text('{"result":false,"result":true}'),
    'a result whose name is escaped': text('{"r\\u0065sult":true}'),
    'a list': text('[{"result":true}]'),
    'a bare true': text('true'),
    'not UTF-8': (res) => res.end(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])),
    compressed: (res) => {
      res.setHeader('content-encoding', 'gzip')
      res.end(gzipSync('{"result":true}'))
    },
    'larger than 64 KiB': text(JSON.stringify({ result: { allow: true, reason: 'x'.repeat(70_000) } })),
    'larger than 64 KiB, in pieces': (res) => {
      res.write('{"result":true,"x":"')
      for (let piece = 0; piece < 20; piece++) res.write('x'.repeat(5_000))
      res.end('"}')
    },
    'a connection that breaks off at once': (res) => res.destroy(),
    'a connection that breaks off midway': (res) => {
      res.setHeader('content-length', '100')
      res.write('{"result":true}', () => res.destroy())
    },
  }
  for (const [name, answer] of Object.entries(wrong)) {
    agent.answer = answer
    await t.rejects(ask(agent.url), { message: /^no decision from the policy agent: / }, name)
  }
  agent.answer = data({ result: true })
  t.equal(await ask(agent.url), true, 'and the next call works')
})

await t.test('threat 19 a redirect is not followed', async (t) => {
  const agent = await policyServer(t)
  const other = await policyServer(t)
  for (const status of [301, 302, 303, 307, 308]) {
    agent.answer = (res) => {
      res.writeHead(status, { location: other.url })
      res.end('{"result":true}')
    }
    await t.rejects(ask(agent.url), { message: new RegExp(`answered ${status}$`) })
  }
  t.same(other.asked, [])
})

await t.test('an agent that is late is not waited for, whatever it has begun', async (t) => {
  const agent = await policyServer(t)
  const begun: Readonly<Record<string, PolicyServer['answer']>> = {
    nothing: () => {},
    'the head': (res) => res.flushHeaders(),
    'half of the body': (res) => res.write('{"result":true'),
    'a 102': (res) => res.writeProcessing(),
  }
  for (const [name, answer] of Object.entries(begun)) {
    agent.answer = answer
    await t.rejects(ask(agent.url, 100), { message: /^no decision from the policy agent: / }, name)
  }
})

await t.test('an agent that is not there gives no decision', async (t) => {
  const agent = await policyServer(t)
  const nobody = agent.url.replace(/:\d+\//, ':1/')
  await t.rejects(ask(nobody), { message: /ECONNREFUSED/ })
})

await t.test('questions beyond those that may wait are refused at once', async (t) => {
  const agent = await policyServer(t)
  const release = Promise.withResolvers<void>()
  agent.answer = (res) => void release.promise.then(() => data({ result: true })(res))
  const engine = opaHttp({ url: agent.url, token: undefined, deadlineMs: AMPLE_MS })
  const waiting = Array.from({ length: 1024 }, () => engine.evaluate('{}'))
  await t.rejects(engine.evaluate('{}'), { message: /too many questions wait/ })
  release.resolve()
  t.ok((await Promise.all(waiting)).every((answer) => answer === true))
  t.equal(await engine.evaluate('{}'), true)
})

await t.test('a closed engine still answers a call that was under way', async (t) => {
  const agent = await policyServer(t)
  const engine = opaHttp({ url: agent.url, token: undefined, deadlineMs: AMPLE_MS })
  await engine.close()
  t.equal(await engine.evaluate('{}'), true)
})
