import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import { Refusal } from '../../../plugins/refusal.ts'
import { CallHangup } from '../../../proxy/http/open-calls.ts'
import { llmHandler } from '../../../proxy/llm/handler.ts'
import { ProviderBreakers } from '../../../proxy/llm/health/breaker.ts'
import { openUpstream } from '../../../proxy/llm/upstream/client.ts'
import { anthropic, facts, openai, options, receive, servicesWith } from '../../support/llm/facts.ts'
import { answer, chunk, chunkedHead, nobody, rawUpstream } from '../../support/llm/upstreams.ts'

// Two providers of one model, of which the first fails: who is asked, how often, and what the row says of it.

const upstream = openUpstream()
t.teardown(() => upstream.close())

type Loose = Readonly<Record<string, unknown>>
type Answering = (socket: Socket) => unknown

const CHAT = { model: 'gpt-4o', messages: [] }
const FAST = { backoff_ms: 1, most_ms: 50 }
const ok: Answering = (socket) => socket.write(answer(200, '{"ok":true}'))
const failing =
  (status: number, headers = {}, body = '{}'): Answering =>
  (socket) =>
    socket.write(answer(status, body, headers))
const silent: Answering = () => {}
const reset: Answering = (socket) =>
  socket.write('HTTP/1.1 200 OK\r\ncontent-', () => socket.resetAndDestroy())

/** Answers each request as the list says, and all later ones as its last. */
const inTurn =
  (...answers: Answering[]): Answering =>
  (socket) =>
    (answers.length > 1 ? answers.shift() : answers[0])?.(socket)

/** Two providers, and a clock for their breakers. */
async function pair(t: Test, first: Answering, more: Loose = {}, second: Answering = ok, other: Loose = {}) {
  const one = await rawUpstream(t, first)
  const two = await rawUpstream(t, second)
  const clock = { ms: 0 }
  const breakers = new ProviderBreakers({ now: () => clock.ms, clock: () => clock.ms })
  const providers = options([
    openai(one.url, { name: 'one', ...more }),
    openai(two.url, { name: 'two', ...other }),
  ])
  const handle = llmHandler(providers, { ...servicesWith(upstream), breakers })
  const call = async (request: Parameters<typeof facts>[0] = {}) =>
    handle(await facts({ body: CHAT, ...request }))
  /** Calls, and tells what the row says of those that were asked. */
  const attempts = async (request: Parameters<typeof facts>[0] = {}): Promise<unknown> => {
    try {
      return (await call(request)).report?.().detail.attempts
    } catch (error) {
      if (error instanceof Refusal) return error.report.attempts
      throw error
    }
  }
  const [provider] = providers.providers
  if (!provider) throw new Error('there is no provider')
  return { one, two, clock, handle, call, attempts, state: () => breakers.state(provider) }
}

const { message: GONE } = new Refusal('client_gone')

const failed = (reason: string, status: number | null = null) => ({ provider: 'one', status, reason })
const TWO = { provider: 'two', status: 200 }
const SKIPPED = { provider: 'one', skipped: 'open' }

await t.test('without retry each provider is asked once', async (t) => {
  const { one, two, attempts } = await pair(t, failing(503))
  t.strictSame(await attempts(), [failed('provider_failed', 503), TWO])
  t.equal(one.seen.length, 1)
  t.equal(two.seen.length, 1)
})

for (const [what, answering, on, reason, status] of [
  ['a reset in the middle of its head', reset, ['reset'], 'provider_failed', null],
  ['a 500', failing(500), [500], 'provider_failed', 500],
  ['a 503 with a short retry-after', failing(503, { 'retry-after': '0' }), [503], 'provider_failed', 503],
  ['a 529', failing(529), [529], 'provider_overloaded', 529],
  ['a 429', failing(429), [429], 'provider_rate_limited', 429],
] as const)
  await t.test(`with retry the same provider is asked again after ${what}, and then the next`, async (t) => {
    const { one, two, attempts } = await pair(t, answering, { retry: { ...FAST, attempts: 3, on } })
    const each = failed(reason, status)
    t.strictSame(await attempts(), [each, each, each, TWO])
    t.equal(one.seen.length, 3)
    t.equal(two.seen.length, 1)
  })

await t.test('a connection that cannot be made is tried again likewise', async (t) => {
  const url = await nobody()
  const { one, attempts } = await pair(t, ok, { base_url: url, retry: FAST })
  t.strictSame(await attempts(), [failed('provider_unreachable'), failed('provider_unreachable'), TWO])
  t.equal(one.seen.length, 0)
})

await t.test('a second request is the first one again, its idempotency key included', async (t) => {
  const { one, two, attempts } = await pair(t, inTurn(failing(500), ok), { retry: FAST })
  const headers = { 'idempotency-key': 'k-1' }
  t.strictSame(await attempts({ headers }), [
    failed('provider_failed', 500),
    { provider: 'one', status: 200 },
  ])
  t.equal(one.seen[1]?.head, one.seen[0]?.head)
  t.match(one.seen[0]?.head, /\r\nidempotency-key: [\w-]{43}\r\n/)
  t.same(one.seen[1]?.body, one.seen[0]?.body)
  t.equal(two.seen.length, 0)
})

await t.test('a 409 of a call with an idempotency key is asked again there, and nowhere else', async (t) => {
  const { one, two, call } = await pair(t, failing(409), { retry: { ...FAST, on: [409] } })
  t.equal((await call({ headers: { 'idempotency-key': 'k-1' } })).status, 409)
  t.equal(one.seen.length, 2)
  t.equal(two.seen.length, 0)
})

await t.test('a request that timed out goes to the next provider, never to the same again', async (t) => {
  const retry = { ...FAST, attempts: 5, on: ['connect', 'reset', 500, 504] }
  const { one, attempts } = await pair(t, silent, { retry, first_byte_timeout_ms: 20 })
  t.strictSame(await attempts(), [failed('provider_timeout'), TWO])
  t.equal(one.seen.length, 1)
})

for (const [what, answering, reason] of [
  ['has timed out', silent, 'provider_timeout'],
  ['has broken off in the middle of its head', reset, 'provider_failed'],
] as const)
  await t.test(`under a strict limit nobody is asked again after a provider ${what}`, async (t) => {
    const retry = { ...FAST, attempts: 3, on: ['reset'] }
    const { one, two, handle } = await pair(t, answering, { retry, first_byte_timeout_ms: 20 })
    const terms = {
      for: {},
      each: false,
      measure: 'tokens',
      amount: 1_000,
      per: 'day',
      on: 'refuse',
    } as const
    const limit = {
      ...terms,
      id: 'lim_1',
      name: 'day',
      strict: true,
      show: true,
      revision: 1,
      override: null,
    }
    const reservation = { limit: 'lim_1', who: '', span: 'now', took: 9, most: 1_000, refuses: true }
    const call = { ...(await facts({ body: CHAT })), limits: { claims: [{ limit, reservation }] } }
    const refusal: unknown = await handle(call).catch((error: unknown) => error)
    t.match(refusal, { reason })
    t.same([one.seen.length, two.seen.length], [1, 0])
    const loose = { ...call, limits: { claims: [{ limit: { ...limit, strict: false }, reservation }] } }
    t.equal((await handle(loose)).status, 200, 'another limit lets it go on')
  })

for (const headers of [{ 'retry-after': '60' }, { 'x-should-retry': 'false' }])
  await t.test(`the next provider is asked at once after ${JSON.stringify(headers)}`, async (t) => {
    const { one, attempts } = await pair(t, failing(503, headers), { retry: FAST })
    t.strictSame(await attempts(), [failed('provider_failed', 503), TWO])
    t.equal(one.seen.length, 1)
  })

await t.test('a wait that would outlast the patience with a provider is not begun', async (t) => {
  const more = { retry: { backoff_ms: 60_000, most_ms: 60_000 }, first_byte_timeout_ms: 10_000 }
  const { one, attempts } = await pair(t, failing(503), more)
  t.strictSame(await attempts(), [failed('provider_failed', 503), TWO])
  t.equal(one.seen.length, 1)
})

/** Hangs up as soon as somebody waits for it a second time: after the request, for the time until the next. */
class HangupOfWait extends CallHangup {
  #waits = 0

  override onGone(told: () => void): void {
    super.onGone(told)
    this.#waits += 1
    if (this.#waits === 2) queueMicrotask(() => this.hangUp())
  }
}

await t.test('a caller who hangs up ends the wait at once, and nobody is asked any more', async (t) => {
  const { one, two, attempts, state } = await pair(t, failing(503), {
    retry: { backoff_ms: 60_000, most_ms: 60_000 },
  })
  t.strictSame(await attempts({ hangup: new HangupOfWait() }), [failed('provider_failed', 503)])
  t.equal(one.seen.length, 1)
  t.equal(two.seen.length, 0)
  t.equal(state(), 'closed')
})

const EVENTS = 'data: {"model":"gpt-4o","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\ndata: [DONE]\n\n'
const streaming =
  (...pieces: string[]): Answering =>
  (socket) =>
    socket.write(`${chunkedHead()}${pieces.map(chunk).join('')}0\r\n\r\n`)
const SERVER_ERROR = 'data: {"error":{"message":"no","type":"server_error"}}\n\n'
const OVERLOADED =
  'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
const STREAM = { body: { ...CHAT, stream: true } }

await t.test('an error as the first event of a stream counts as its status: the next is asked', async (t) => {
  const { attempts } = await pair(t, streaming(SERVER_ERROR), {}, streaming(EVENTS))
  t.strictSame(await attempts(STREAM), [failed('provider_failed', 200), TWO])
})

await t.test('it is asked again likewise, and opens the breaker as a 5xx does', async (t) => {
  const more = { retry: { ...FAST, attempts: 5, on: [500] }, breaker: { failures: 3 } }
  const { one, attempts, state } = await pair(t, streaming(SERVER_ERROR), more, streaming(EVENTS))
  const each = failed('provider_failed', 200)
  t.strictSame(await attempts(STREAM), [each, each, each, TWO])
  t.equal(one.seen.length, 3)
  t.equal(state(), 'open')
})

await t.test('so it does where the call is translated', async (t) => {
  const one = await rawUpstream(t, streaming(OVERLOADED))
  const two = await rawUpstream(
    t,
    streaming(
      'event: message_start\ndata: {"type":"message_start","message":{"model":"claude-x","usage":{"input_tokens":1,"output_tokens":1}}}\n\n',
      'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ),
  )
  const models = { models: ['gpt-*'] }
  const providers = options([
    anthropic(one.url, { name: 'one', ...models }),
    anthropic(two.url, { name: 'two', ...models }),
  ])
  const body = { model: 'gpt-4o', stream: true, messages: [{ role: 'user', content: 'hi' }] }
  const reply = await llmHandler(providers, servicesWith(upstream))(await facts({ body }))
  t.strictSame(reply.report?.().detail.attempts, [failed('provider_overloaded', 200), TWO])
})

await t.test('the last provider’s stream is passed on as it comes, its error too', async (t) => {
  const { call } = await pair(t, failing(500), {}, streaming(SERVER_ERROR))
  const reply = await call(STREAM)
  t.equal((await receive(reply)).text, SERVER_ERROR)
})

for (const [what, text] of [
  ['that is healthy', EVENTS],
  ['with an error later', EVENTS.replace('data: [DONE]', SERVER_ERROR.trim())],
  ['with a request’s error', 'data: {"error":{"type":"invalid_request_error","message":"no"}}\n\n'],
] as const)
  await t.test(`a stream ${what} is passed on byte for byte, and nobody else is asked`, async (t) => {
    const { two, call } = await pair(t, streaming(...text.split('')))
    t.equal((await receive(await call(STREAM))).text, text)
    t.equal(two.seen.length, 0)
  })

await t.test('a comment is passed on at once: its provider lives', async (t) => {
  const { promise: mayGoOn, resolve: goOn } = Promise.withResolvers<void>()
  const { two, call } = await pair(t, (socket) => {
    socket.write(chunkedHead() + chunk(': working\n\n'))
    void mayGoOn.then(() => socket.write(`${chunk(EVENTS)}0\r\n\r\n`))
  })
  const reply = await call(STREAM)
  goOn()
  t.equal((await receive(reply)).text, `: working\n\n${EVENTS}`)
  t.equal(two.seen.length, 0)
})

await t.test('a stream that breaks before its first event is as a connection that breaks', async (t) => {
  const { attempts } = await pair(
    t,
    (socket) => socket.write(chunkedHead() + chunk('data: {"a"'), () => socket.resetAndDestroy()),
    {},
    streaming(EVENTS),
  )
  t.strictSame(await attempts(STREAM), [failed('provider_failed'), TWO])
})

for (const [what, answering, more] of [
  ['answers 500', failing(500), {}],
  ['breaks off', reset, {}],
  ['is not there', ok, { base_url: await nobody() }],
  ['is silent', silent, { first_byte_timeout_ms: 1, breaker: { failures: 1 } }],
] as const)
  await t.test(`a provider that ${what} is not asked by each call`, async (t) => {
    const { one, attempts, clock, state } = await pair(t, answering, more)
    const { failures = 5 } = 'breaker' in more ? more.breaker : {}
    for (let call = 0; call < failures; call += 1) t.match(await attempts(), [{ provider: 'one' }, TWO])
    t.equal(state(), 'open')
    const asked = one.seen.length
    for (let call = 0; call < 10; call += 1) t.strictSame(await attempts(), [SKIPPED, TWO])
    t.equal(one.seen.length, asked, 'it is left alone')

    clock.ms += 10_000
    const all = await Promise.all(Array.from({ length: 50 }, () => attempts()))
    t.equal(all.filter((one) => JSON.stringify(one) === JSON.stringify([SKIPPED, TWO])).length, 49)
    t.equal(state(), 'open', 'and one call has found out that it still fails')
  })

await t.test('a provider that answers again is asked again', async (t) => {
  const answers = [...Array.from({ length: 5 }, () => failing(500)), ok]
  const { attempts, clock } = await pair(t, inTurn(...answers))
  for (let call = 0; call < 5; call += 1) await attempts()
  clock.ms += 10_000
  for (let call = 0; call < 3; call += 1) t.strictSame(await attempts(), [{ provider: 'one', status: 200 }])
})

await t.test('a probe that hangs keeps others away for one opening, and no longer', async (t) => {
  const { one, call, attempts, clock } = await pair(
    t,
    inTurn(...Array.from({ length: 5 }, () => failing(500)), silent, ok),
  )
  for (let n = 0; n < 5; n += 1) await attempts()
  clock.ms += 10_000
  const hangup = new CallHangup()
  const hanging = call({ hangup })
  t.strictSame(await attempts(), [SKIPPED, TWO])
  clock.ms += 10_000
  t.strictSame(await attempts(), [{ provider: 'one', status: 200 }])
  t.equal(one.seen.length, 7)
  hangup.hangUp()
  await t.rejects(hanging, { message: GONE })
})

await t.test('a principal whose requests are wrong shuts nobody out', async (t) => {
  const error = JSON.stringify({ error: { type: 'invalid_request_error', message: 'no' } })
  const { one, call, state } = await pair(
    t,
    inTurn(...Array.from({ length: 60 }, () => failing(400, {}, error)), ok),
  )
  for (let n = 0; n < 60; n += 1) t.equal((await call()).status, 400)
  t.equal(state(), 'closed')
  t.equal((await call()).status, 200)
  t.equal(one.seen.length, 61)
})

await t.test('nor do callers who hang up, before the answer or in the middle of it', async (t) => {
  const hangups: CallHangup[] = []
  const hangUp = (): void => hangups.at(-1)?.hangUp()
  const { call, state } = await pair(
    t,
    inTurn(...Array.from({ length: 30 }, () => () => hangUp()), (socket: Socket) =>
      socket.write(chunkedHead() + chunk(EVENTS)),
    ),
    { breaker: { failures: 1 } },
  )
  for (let n = 0; n < 30; n += 1) {
    const hangup = new CallHangup()
    hangups.push(hangup)
    await t.rejects(call({ hangup }), { message: GONE })
  }
  for (let n = 0; n < 10; n += 1) {
    const hangup = new CallHangup()
    hangups.push(hangup)
    const { body } = await call({ ...STREAM, hangup })
    if (!body || typeof body === 'string' || Buffer.isBuffer(body)) throw new Error('it is no stream')
    const closed = new Promise((resolve) => body.source.once('close', resolve))
    hangUp()
    await closed
  }
  t.equal(state(), 'closed')
})

await t.test('an answer that breaks off in the middle is a failure of its provider', async (t) => {
  const broken: Answering = (socket) =>
    socket.write(chunkedHead() + chunk(EVENTS.slice(0, -20)), () =>
      setImmediate(() => socket.resetAndDestroy()),
    )
  const { call, state } = await pair(t, broken, { breaker: { of: 4 } })
  for (let n = 0; n < 4; n += 1) await receive(await call(STREAM))
  t.equal(state(), 'open')
})

await t.test('if all are left alone, the first is asked nevertheless, once', async (t) => {
  const rule = { breaker: { failures: 1 }, retry: FAST }
  const { one, two, attempts } = await pair(t, failing(500), rule, failing(502), rule)
  await attempts()
  const [first, second] = [one.seen.length, two.seen.length]
  t.strictSame(await attempts(), [{ provider: 'two', skipped: 'open' }, failed('provider_failed', 500)])
  t.equal(one.seen.length, first + 1)
  t.equal(two.seen.length, second)
})

await t.test('a call about what one provider keeps goes to no other, though that one fails', async (t) => {
  const answers = inTurn(failing(500), ok)
  const { one, two, handle, attempts, state } = await pair(t, answers, { breaker: { failures: 1 } })
  await attempts()
  t.equal(state(), 'open')
  const asked = two.seen.length
  const reply = await handle({ ...(await facts({ body: CHAT })), stateAt: new Set(['one']) })
  t.strictSame(reply.report?.().detail.attempts, [{ provider: 'one', status: 200 }])
  t.equal(one.seen.length, 2)
  t.equal(two.seen.length, asked)
  t.equal(state(), 'closed')
})

await t.test('a 429 leaves its provider alone for as long as it says', async (t) => {
  const { one, attempts, clock } = await pair(t, inTurn(failing(429, { 'retry-after': '7' }), ok))
  t.strictSame(await attempts(), [failed('provider_rate_limited', 429), TWO])
  t.strictSame(await attempts(), [SKIPPED, TWO])
  clock.ms += 7_000
  t.strictSame(await attempts(), [{ provider: 'one', status: 200 }])
  t.equal(one.seen.length, 2)
})

await t.test('a 429 of a caller’s own key is nobody else’s', async (t) => {
  const { attempts, state } = await pair(t, failing(429, { 'retry-after': '7' }), { auth: 'passthrough' })
  await attempts({ headers: { authorization: 'Bearer sk-own' } })
  t.equal(state(), 'closed')
})

await t.test('breaker: off leaves nobody alone', async (t) => {
  const { one, attempts, state } = await pair(t, failing(500), { breaker: 'off' })
  for (let call = 0; call < 30; call += 1) await attempts()
  t.equal(one.seen.length, 30)
  t.equal(state(), 'off')
})

await t.test('by weight a session stays at its provider, and others are shared out', async (t) => {
  const { one, two, attempts } = await pair(t, ok, { weight: 1 }, ok, { weight: 1 })
  const asked = new Map<string, Set<string>>()
  for (let call = 0; call < 40; call += 1) {
    const session = `s-${call % 10}`
    const row = JSON.stringify(await attempts({ headers: { 'session-id': session } }))
    asked.set(session, (asked.get(session) ?? new Set()).add(row))
  }
  t.ok([...asked.values()].every(({ size }) => size === 1))
  t.ok(one.seen.length > 0 && two.seen.length > 0, `${one.seen.length} and ${two.seen.length}`)
})
