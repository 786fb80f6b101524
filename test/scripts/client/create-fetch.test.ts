import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import t from 'tap'
import { createFetch, type Fetch } from '../../../scripts/client/client.ts'
import { pacedConnector, ReconnectPace } from '../../../scripts/client/signing/reconnect.ts'
import {
  type Arrived,
  arrivals,
  clock,
  identityDirectory,
  tokenRequests,
} from '../../support/clients/identity.ts'
import { caught, mockProvider, SAID } from '../../support/clients/sdk.ts'
import { CHAT, sharedGateway, type TestGateway, testGateway } from '../../support/gateway.ts'
import { eventually } from '../../support/settled.ts'
import { completion } from '../../support/upstream.ts'

const POST = {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify(CHAT),
} as const

const chat = (fetch: Fetch, { url }: TestGateway, init: RequestInit = {}) =>
  fetch(`${url}/v1/chat/completions`, { ...POST, ...init })

const jtis = (seen: readonly Arrived[]): Set<string> => new Set(seen.map(({ proof }) => proof.jti))

await t.test(
  'docs/protocol.md#proofs many calls at once share one token, and no two attempts share a proof',
  async (t) => {
    const gateway = await sharedGateway(t)
    const directory = await identityDirectory(t, gateway)
    const seen = arrivals(t, gateway)
    const fetches = [createFetch(directory), createFetch(directory)]
    const answers = await Promise.all(
      [...fetches, ...fetches, ...fetches].map((fetch) => chat(fetch, gateway)),
    )
    t.same(
      answers.map(({ status }) => status),
      [200, 200, 200, 200, 200, 200],
    )
    t.equal(tokenRequests(seen).length, 2, 'one without a nonce, one with it')
    t.equal(jtis(seen).size, seen.length)
    const tokens = new Set(seen.flatMap(({ headers }) => headers.authorization ?? []))
    t.equal(tokens.size, 1)
    t.match([...tokens][0], /^DPoP eyJ/)
  },
)

await t.test(
  'RFC 9449 §8.2 a nonce is learned once for each kind of door, and anew when it is stale',
  async (t) => {
    const time = clock()
    const gateway = await testGateway(t, { clock: time.now })
    const fetch = createFetch(await identityDirectory(t, gateway), { now: time.now })
    const seen = arrivals(t, gateway)
    const refused = () => seen.filter(({ proof }) => proof.nonce === undefined).map(({ path }) => path)
    t.equal((await chat(fetch, gateway)).status, 200)
    t.same(refused(), ['/v1/auth/token', '/v1/chat/completions'])
    t.equal(seen.length, 4)
    t.equal((await chat(fetch, gateway)).status, 200)
    t.equal(seen.length, 5, 'what is known is used')
    t.not(seen[1]?.proof.nonce, seen[3]?.proof.nonce, 'the two doors have nonces of their own')
    time.move(800)
    t.equal((await chat(fetch, gateway)).status, 200)
    t.equal(seen.length, 7, 'one refusal, one new signature')
    t.not(seen[5]?.proof.nonce, seen[6]?.proof.nonce)
    t.equal(jtis(seen).size, seen.length)
  },
)

await t.test('a token is replaced half a minute before it ends', async (t) => {
  const time = clock()
  const gateway = await testGateway(t, { clock: time.now })
  const fetch = createFetch(await identityDirectory(t, gateway), { now: time.now })
  const seen = arrivals(t, gateway)
  await chat(fetch, gateway)
  const asked = tokenRequests(seen).length
  time.move(869)
  t.equal((await chat(fetch, gateway)).status, 200)
  t.equal(tokenRequests(seen).length, asked)
  time.move(2)
  t.equal((await chat(fetch, gateway)).status, 200)
  t.ok(tokenRequests(seen).length > asked)
  const tokens = new Set(seen.flatMap(({ headers }) => headers.authorization ?? []))
  t.equal(tokens.size, 2)
})

await t.test('a token that the gateway takes no longer is asked for again, once', async (t) => {
  const [ours, theirs] = [clock(), clock()]
  const gateway = await testGateway(t, { clock: theirs.now })
  const fetch = createFetch(await identityDirectory(t, gateway), { now: ours.now })
  const seen = arrivals(t, gateway)
  await chat(fetch, gateway)
  const before = seen.length
  // Our clock has fallen behind: the token looks fresh here and has ended there.
  ours.move(860)
  theirs.move(905)
  t.equal((await chat(fetch, gateway)).status, 200)
  const calls = seen.slice(before).filter(({ path }) => path !== '/v1/auth/token')
  t.not(calls[0]?.headers.authorization, calls.at(-1)?.headers.authorization)
  t.equal(jtis(seen).size, seen.length)
})

await t.test('what a new signature cannot cure is not tried again', async (t) => {
  const gateway = await testGateway(t)
  let at = Date.now()
  // Another hour each time that it is read: no proof is of any time that was learnt.
  const fetch = createFetch(await identityDirectory(t, gateway), { now: () => (at += 3_600_000) })
  const seen = arrivals(t, gateway)
  const answer = await chat(fetch, gateway)
  t.match(await answer.json(), {
    reason: 'proof_invalid',
    message: / s ahead of the clock of this gateway .*Set the clock of the client/,
  })
  t.equal(answer.status, 401)
  t.equal(seen.length, 3, 'the token endpoint, and once more for its time and once for its nonce')
})

await t.test(
  'RFC 9449 §11.1 whatever this machine’s clock says, its proofs are of the gateway’s time',
  async (t) => {
    const [ours, theirs] = [clock(), clock()]
    const gateway = await testGateway(t, { clock: theirs.now })
    const directory = await identityDirectory(t, gateway)
    for (const seconds of [11, 59, 3_600, -61, -7_200]) {
      const skewed = clock()
      skewed.move(seconds)
      const fetch = createFetch(directory, { now: skewed.now })
      t.equal((await chat(fetch, gateway)).status, 200, `a clock ${seconds} s off`)
      const seen = arrivals(t, gateway)
      t.equal((await chat(fetch, gateway)).status, 200, `a clock ${seconds} s off, again`)
      t.equal(seen.length, 1, 'and what was learnt is used')
    }
    const fetch = createFetch(directory, { now: ours.now })
    t.equal((await chat(fetch, gateway)).status, 200)
    // So far behind that no proof of ours is believed any more.
    theirs.move(3_600)
    t.equal((await chat(fetch, gateway)).status, 200, 'a clock that is set while we run')
  },
)

await t.test('nothing is sent to another origin', async (t) => {
  const [gateway, other] = [await sharedGateway(t), await testGateway(t, { ownCa: true })]
  const fetch = createFetch(await identityDirectory(t, gateway))
  const seen = arrivals(t, other)
  for (const url of [other.url, gateway.url.replace('https:', 'http:'), 'not a URL']) {
    await t.rejects(
      fetch(`${url}/v1/models`),
      { message: /^this fetch is for https:.* only, and was asked for / },
      url,
    )
  }
  t.equal(seen.length, 0)
})

await t.test("the caller's own credentials are replaced, whatever form its headers have", async (t) => {
  const gateway = await sharedGateway(t)
  const fetch = createFetch(await identityDirectory(t, gateway))
  const seen = arrivals(t, gateway)
  const theirs = { Authorization: 'Bearer sk-mine', 'X-Api-Key': 'sk-mine', DPoP: 'mine', 'x-kept': 'yes' }
  for (const headers of [theirs, Object.entries(theirs), new Headers(theirs)]) {
    await fetch(`${gateway.url}/v1/models`, { headers })
  }
  await fetch(new Request(`${gateway.url}/v1/models`, { headers: theirs }))
  t.notMatch(JSON.stringify(seen), /mine/)
  const calls = seen.filter(({ path }) => path === '/v1/models')
  t.ok(calls.every(({ headers }) => headers['x-kept'] === 'yes' && headers['x-api-key'] === undefined))
  t.equal(calls.length, 5, 'one of them twice, for the nonce')
})

await t.test('a streamed body is sent whole, also on the second attempt', async (t) => {
  const gateway = await sharedGateway(t)
  const fetch = createFetch(await identityDirectory(t, gateway))
  const content = 'x'.repeat(300_000)
  const body = JSON.stringify({ ...CHAT, messages: [{ role: 'user', content }] })
  const parts = new ReadableStream<Uint8Array>({
    start(controller) {
      for (let i = 0; i < body.length; i += 50_000) {
        controller.enqueue(new TextEncoder().encode(body.slice(i, i + 50_000)))
      }
      controller.close()
    },
  })
  const answer = await chat(fetch, gateway, { body: parts, duplex: 'half' } as RequestInit)
  t.equal(answer.status, 200)
  t.equal(gateway.upstream.seen.length, 1)
  t.equal(gateway.upstream.seen[0]?.body.toString(), body)
})

await t.test('an SDK that tries again by itself signs anew each time', async (t) => {
  const gateway = await sharedGateway(t)
  let calls = 0
  gateway.upstream.answer = (res, seen) => {
    calls += 1
    if (calls > 2) return completion(res, seen)
    res.writeHead(500, { 'retry-after-ms': '1' }).end()
  }
  const fetch = createFetch(await identityDirectory(t, gateway))
  const seen = arrivals(t, gateway)
  const openai = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'unused', fetch })
  const { choices } = await openai.chat.completions.create({
    model: 'gpt-test',
    messages: [{ role: 'user', content: 'hi' }],
  })
  t.equal(choices[0]?.message.content, 'hello')
  t.equal(calls, 3)
  t.equal(jtis(seen).size, seen.length)
})

await t.test('the OpenAI and Anthropic SDKs stream through it, with a proof required', async (t) => {
  const { files } = await mockProvider(t)
  const settings = { MCP_PROXY_EGRESS_DPOP_MODE: 'required' }
  const gateway = await testGateway(t, { files, settings })
  const fetch = createFetch(await identityDirectory(t, gateway))
  const openai = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'unused', fetch })
  const messages = [{ role: 'user', content: 'hi' }] as const
  let said = ''
  const stream = await openai.chat.completions.create({
    model: 'gpt-test',
    messages: [...messages],
    stream: true,
  })
  for await (const { choices } of stream) said += choices[0]?.delta.content ?? ''
  t.equal(said, SAID)
  const anthropic = new Anthropic({ baseURL: gateway.url, apiKey: 'unused', fetch })
  const whole = await anthropic.messages
    .stream({ model: 'claude-test', max_tokens: 99, messages: [...messages] })
    .finalText()
  t.equal(whole, SAID)
  const rows = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed', order: 'asc' })
  t.equal(rows.length, 2)
  for (const row of rows) t.match(row.dpop_jkt, /^[\w-]{43}$/)
})

await t.test('a refusal by the token endpoint is the answer, and an SDK shows its sentence', async (t) => {
  const gateway = await testGateway(t)
  const directory = await identityDirectory(t, gateway)
  await gateway.admin('DELETE', '/v1/admin/agents/acme::bot')
  const openai = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'unused', fetch: createFetch(directory) })
  const error = await caught(openai.models.list(), OpenAI.AuthenticationError)
  t.equal(error.message, '401 This principal has been deactivated. Ask an operator to activate it.')
  t.equal(error.code, 'principal_deactivated')
  const answer = await createFetch(directory)(`${gateway.url}/v1/models`)
  t.equal(answer.headers.get('x-should-retry'), 'false')
  const id = String(answer.headers.get('x-request-id'))
  t.match(await answer.json(), { request_id: id, detail: { request_id: id } })
  t.match(error.requestID, /^req_/)
  const lines = await eventually(
    () => gateway.log.filter(({ reqId }) => reqId === error.requestID || reqId === id),
    (found) => found.length === 2,
  )
  for (const line of lines) t.match(line, { reason: 'principal_deactivated', path: '/v1/auth/token' })
})

await t.test('a capability that is not held cannot be asked for', async (t) => {
  const gateway = await sharedGateway(t)
  const directory = await identityDirectory(t, gateway)
  const answer = await chat(createFetch(directory, { scope: 'mcp.tools.call' }), gateway)
  t.equal(answer.status, 401)
  t.match(await answer.json(), { reason: 'scope_invalid', error: { type: 'authentication_error' } })
})

await t.test('a token that was narrowed holds for no more', async (t) => {
  const gateway = await sharedGateway(t)
  const directory = await identityDirectory(t, gateway, ['llm.chat', 'http.get'])
  t.equal((await chat(createFetch(directory, { scope: 'http.get' }), gateway)).status, 403)
  t.equal((await chat(createFetch(directory, { scope: 'llm.chat' }), gateway)).status, 200)
})

await t.test(
  'hanging up reaches the provider, and a call that was given up before it began is not made',
  async (t) => {
    const gateway = await sharedGateway(t)
    const fetch = createFetch(await identityDirectory(t, gateway))
    await t.rejects(chat(fetch, gateway, { signal: AbortSignal.abort() }), { name: 'AbortError' })
    t.equal(gateway.upstream.seen.length, 0)
    const cancelled = new Promise<void>((resolve) => {
      gateway.upstream.answer = (res) => {
        res.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {"one": true}\n\n')
        res.once('close', resolve)
      }
    })
    const hangUp = new AbortController()
    const body = JSON.stringify({ ...CHAT, stream: true })
    const answer = await chat(fetch, gateway, { body, signal: hangUp.signal })
    hangUp.abort()
    await t.rejects(answer.text(), { name: 'AbortError' })
    await cancelled
  },
)

await t.test('T4 an answer that was cut off rejects, and never ends as if it were whole', async (t) => {
  const gateway = await sharedGateway(t)
  gateway.upstream.answer = (res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write('data: {"one": true}\n\n', () => res.destroy())
  }
  const fetch = createFetch(await identityDirectory(t, gateway))
  const answer = await chat(fetch, gateway, { body: JSON.stringify({ ...CHAT, stream: true }) })
  await t.rejects(answer.text(), { name: 'TypeError', message: 'terminated' })
})

await t.test('a gateway of another CA is not trusted, whatever the environment says', async (t) => {
  const [gateway, other] = [await sharedGateway(t), await testGateway(t, { ownCa: true })]
  const fetch = createFetch(await identityDirectory(t, gateway), { url: other.url })
  const seen = arrivals(t, other)
  const before = process.env.NODE_TLS_REJECT_UNAUTHORIZED
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0'
  await t.rejects(fetch(`${other.url}/v1/models`), { message: 'fetch failed' })
  if (before === undefined) delete process.env.NODE_TLS_REJECT_UNAUTHORIZED
  t.equal(seen.length, 0)
})

await t.test('after an outage each try to connect waits for a random part of a time that doubles', (t) => {
  const pace = new ReconnectPace(() => 0.5)
  t.equal(pace.waitMs, 0, 'the first is made at once')
  const waits = Array.from({ length: 6 }, () => {
    pace.failed(pace.failures)
    return pace.waitMs
  })
  t.same(waits, [500, 1_000, 2_000, 4_000, 4_000, 4_000])
  pace.succeeded()
  t.equal(pace.waitMs, 0)
  for (let i = 0; i < 10; i += 1) pace.failed(0)
  t.equal(pace.waitMs, 500, 'tries side by side fail as one')
  pace.broke()
  t.equal(pace.waitMs, 500)
  const others = new ReconnectPace()
  others.broke()
  t.equal(new Set(Array.from({ length: 20 }, () => others.waitMs)).size, 20, 'no two wait for the same time')
  t.end()
})

await t.test('a try to connect waits if the one before has failed, and not if it has held', async (t) => {
  const gateway = await sharedGateway(t)
  let drawn = 0
  const pace = new ReconnectPace(() => {
    drawn += 1
    return 0
  })
  const connect = pacedConnector(pace, { rejectUnauthorized: false })
  const tried = (port: string): Promise<Error | null> =>
    new Promise((resolve) => {
      const where = { protocol: 'https:', hostname: 'localhost', host: 'localhost', port }
      connect(where, (error, socket) => {
        socket?.destroy()
        resolve(error)
      })
    })
  t.match(await tried('1'), { code: 'ECONNREFUSED' })
  t.equal(drawn, 0)
  const { port } = new URL(gateway.url)
  t.equal(await tried(port), null)
  t.equal(drawn, 1)
  t.equal(await tried(port), null)
  t.equal(drawn, 1)
})
