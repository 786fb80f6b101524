import t, { type Test } from 'tap'
import { CallHangup } from '../../../../proxy/http/open-calls.ts'
import type { UpstreamCall } from '../../../../proxy/mcp/upstream/client.ts'
import {
  type Act,
  legacy,
  type RawMcp,
  rawHead,
  rawMcp,
  resourceAt,
  result,
  sse,
  upstreamFor,
} from '../../../support/mcp/raw-upstream.ts'
import { all, callOf, failure, messagesOf } from '../../../support/mcp/upstream-calls.ts'
import { eventually } from '../../../support/settled.ts'

const noHead: Act = () => {}
const onlyHead: Act = (res) => rawHead(res, ['content-type: application/json', 'transfer-encoding: chunked'])
const onlyStream: Act = (res) =>
  rawHead(res, ['content-type: text/event-stream', 'transfer-encoding: chunked'])
const inStream: Act = (res) => {
  sse(res)({ jsonrpc: '2.0', method: 'notifications/progress' })
}
const STAGES = { 'before the head': noHead, 'after the head': onlyHead, 'inside a stream': inStream }

interface Watched {
  readonly raw: RawMcp
  readonly arrived: Promise<void>
  readonly hungUp: Promise<void>
}

/** An upstream that tells when a call has come, and when its connection has gone. */
async function watched(t: Test, act: Act, wrap: (act: Act) => Act = (same) => same): Promise<Watched> {
  const arrived = Promise.withResolvers<void>()
  const hungUp = Promise.withResolvers<void>()
  const watching: Act = (res, told) => {
    res.socket?.once('close', () => hungUp.resolve())
    arrived.resolve()
    return act(res, told)
  }
  return { raw: await rawMcp(t, wrap(watching)), arrived: arrived.promise, hungUp: hungUp.promise }
}

const legacyCall = ({ url }: RawMcp, fields: Partial<UpstreamCall> = {}): UpstreamCall =>
  callOf(url, { resource: resourceAt(url, { era: 'legacy' }), ...fields })

const cancelled = (raw: RawMcp) => raw.of('notifications/cancelled')

await t.test('F-19 a caller who hangs up ends the request at once, at whatever stage it is', async (t) => {
  for (const [stage, act] of Object.entries(STAGES)) {
    await t.test(stage, async (t) => {
      const { raw, arrived, hungUp } = await watched(t, act)
      const caller = new CallHangup()
      const upstream = upstreamFor(t)
      const whole = async () => all(await upstream.call(callOf(raw.url, { hangup: caller })))
      const gone = t.rejects(whole(), { name: 'Error', message: 'gone' })
      await arrived
      caller.hangUp(new Error('gone'))
      await gone
      await hungUp
      t.equal(raw.told.length, 1, 'a modern upstream is told by the connection')
    })
  }
})

await t.test('2025-11-25 an upstream with sessions is told that the request is cancelled', async (t) => {
  for (const [stage, act] of Object.entries(STAGES)) {
    await t.test(stage, async (t) => {
      const { raw, arrived, hungUp } = await watched(t, act, (call) => legacy({ act: call }))
      const caller = new CallHangup()
      const upstream = upstreamFor(t)
      const whole = async () => all(await upstream.call(legacyCall(raw, { hangup: caller })))
      const gone = t.rejects(whole(), { message: 'gone' })
      await arrived
      caller.hangUp(new Error('gone'))
      await gone
      await hungUp
      await eventually(() => cancelled(raw).length, Boolean)
      const [request] = raw.of('tools/call')
      t.match(cancelled(raw), [{ session: 's1', id: null, message: { params: { requestId: request?.id } } }])
    })
  }
})

await t.test('2025-11-25 so is one that took too long', async (t) => {
  const { raw } = await watched(
    t,
    () => {},
    (call) => legacy({ act: call }),
  )
  await t.rejects(upstreamFor(t, { answerMs: 50 }).call(legacyCall(raw)), failure('timeout'))
  await eventually(() => cancelled(raw).length, Boolean)
  t.match(cancelled(raw), [{ message: { params: { requestId: raw.of('tools/call')[0]?.id } } }])
})

await t.test('returning early from the messages ends the request', async (t) => {
  await t.test('after one of them', async (t) => {
    const { raw, hungUp } = await watched(t, inStream, (call) => legacy({ act: call }))
    for await (const { value } of messagesOf(await upstreamFor(t).call(legacyCall(raw)))) {
      t.equal(value.method, 'notifications/progress')
      break
    }
    await hungUp
    await eventually(() => cancelled(raw).length, Boolean)
  })
  await t.test('before the first', async (t) => {
    const { raw, hungUp } = await watched(t, onlyStream)
    // No limit of time may do it instead.
    const answer = await upstreamFor(t, { answerMs: 600_000, totalMs: 600_000 }).call(callOf(raw.url))
    if (!answer.streamed) throw new Error('it is not streamed')
    answer.messages.close()
    await hungUp
  })
})

await t.test('an answer that nobody reads is given up in time', async (t) => {
  const { raw, hungUp } = await watched(t, inStream)
  await upstreamFor(t, { totalMs: 100 }).call(callOf(raw.url))
  await hungUp
})

await t.test('what was answered is not cancelled, and its connection serves again', async (t) => {
  const sockets = new Set<unknown>()
  const raw = await rawMcp(
    t,
    legacy({
      act: (res, told) => {
        sockets.add(res.socket)
        const event = sse(res)
        event({ jsonrpc: '2.0', method: 'notifications/progress' })
        event(result(told))
        res.end()
      },
    }),
  )
  const upstream = upstreamFor(t)
  for (let count = 0; count < 10; count += 1) {
    // As a caller does who stops at the response.
    for await (const { value } of messagesOf(await upstream.call(legacyCall(raw))))
      if ('result' in value) break
    // A turn for the connection to be given back.
    await new Promise((resolve) => setImmediate(resolve))
  }
  t.ok(sockets.size < 10, `${sockets.size} connections`)
  t.equal(cancelled(raw).length, 0)
})

await t.test(
  'a stream that goes on after the response is cut off, and that is no cancellation',
  async (t) => {
    const { raw, hungUp } = await watched(
      t,
      (res, told) => sse(res)(result(told)),
      (call) => legacy({ act: call }),
    )
    const upstream = upstreamFor(t)
    t.equal((await all(await upstream.call(legacyCall(raw)))).length, 1)
    await hungUp
    t.equal((await all(await upstream.call(legacyCall(raw)))).length, 1)
    t.equal(cancelled(raw).length, 0)
  },
)

await t.test('who hangs up while a session is opened for others as well, ends his call alone', async (t) => {
  const go = Promise.withResolvers<void>()
  const serve = legacy()
  const raw = await rawMcp(t, async (res, told) => {
    if (told.rpc === 'initialize') await go.promise
    await serve(res, told)
  })
  const upstream = upstreamFor(t)
  const caller = new CallHangup()
  const first = upstream.call(legacyCall(raw, { hangup: caller }))
  const second = upstream.call(legacyCall(raw))
  const gone = t.rejects(first, { message: 'gone' })
  await eventually(() => raw.of('initialize').length, Boolean)
  caller.hangUp(new Error('gone'))
  await gone
  go.resolve()
  await all(await second)
  t.equal(raw.of('initialize').length, 1)
  t.equal(raw.of('tools/call').length, 1)
})

await t.test('who has hung up already is not served', async (t) => {
  const raw = await rawMcp(t)
  const hangup = new CallHangup()
  hangup.hangUp(new Error('gone'))
  await t.rejects(upstreamFor(t).call(callOf(raw.url, { hangup })), { message: 'gone' })
  await t.rejects(upstreamFor(t).call(legacyCall(raw, { hangup })), { message: 'gone' })
  t.equal(raw.of('tools/call').length, 0)
})
