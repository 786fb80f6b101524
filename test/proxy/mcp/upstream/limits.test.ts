import { gzipSync } from 'node:zlib'
import t from 'tap'
import { type Act, rawMcp, result, sendJson, sse, upstreamFor } from '../../../support/mcp/raw-upstream.ts'
import { fails, flood } from '../../../support/mcp/upstream-broken.ts'
import { callOf, messagesOf } from '../../../support/mcp/upstream-calls.ts'
import { eventually } from '../../../support/settled.ts'

await t.test('threat 38 an answer past the limits is cut off', async (t) => {
  const limits = { maxMessageBytes: 10_000, maxAnswerBytes: 50_000 }
  await t.test('JSON that says how long it is', (t) =>
    fails(t, (res, told) => sendJson(res, result(told, { a: 'x'.repeat(10_000) })), 'too_large', limits),
  )
  await t.test('JSON without end', (t) => {
    const act: Act = (res) => {
      res.writeHead(200, { 'content-type': 'application/json' })
      flood(res, ' '.repeat(1_000))
    }
    return fails(t, act, 'too_large', limits)
  })
  await t.test('an HTTP error without end', (t) => {
    const act: Act = (res) => {
      res.writeHead(500, { 'content-type': 'application/json' })
      flood(res, ' '.repeat(1_000))
    }
    return fails(t, act, 'too_large', limits)
  })
  await t.test('an event in one piece', (t) =>
    fails(t, (res, told) => sse(res)(result(told, { a: 'x'.repeat(10_000) })), 'too_large', limits),
  )
  await t.test('an event of characters that take more bytes', (t) =>
    fails(t, (res, told) => sse(res)(result(told, { a: '€'.repeat(4_000) })), 'too_large', limits),
  )
  await t.test('an event of many lines', (t) => {
    const act: Act = (res) => {
      sse(res)
      flood(res, `data: ${'x'.repeat(1_000)}\n`)
    }
    return fails(t, act, 'too_large', limits)
  })
  await t.test('a line without end', (t) => {
    const act: Act = (res) => {
      sse(res)
      res.write('data: ')
      flood(res, 'x'.repeat(1_000))
    }
    return fails(t, act, 'too_large', limits)
  })
  await t.test('a comment without end', (t) => {
    const act: Act = (res) => {
      sse(res)
      flood(res, `:${'x'.repeat(1_000)}`)
    }
    return fails(t, act, 'too_large', limits)
  })
  await t.test('notifications without end', (t) => {
    const act: Act = (res) => {
      sse(res)
      flood(
        res,
        `data: ${JSON.stringify({ jsonrpc: '2.0', method: 'x', params: { a: 'x'.repeat(900) } })}\n\n`,
      )
    }
    return fails(t, act, 'too_large', limits)
  })
})

await t.test('threat 38 a compressed answer is not unpacked', async (t) => {
  const bomb = gzipSync(Buffer.alloc(50_000_000, ' '), { level: 1 })
  for (const encoding of ['gzip', 'br', 'identity, gzip', 'x']) {
    await t.test(encoding, (t) => {
      const headers = { 'content-type': 'application/json', 'content-encoding': encoding }
      return fails(t, (res) => void res.writeHead(200, headers).end(bomb), 'failed')
    })
  }
})

await t.test('F-20 nothing is read ahead of a reader who takes his time', async (t) => {
  const MOST = 64_000_000
  const event = `data: ${JSON.stringify({ jsonrpc: '2.0', method: 'x', params: { a: 'x'.repeat(9_000) } })}\n\n`
  let written = 0
  let stopped = false
  const raw = await rawMcp(t, (res) => {
    sse(res)
    const more = (): void => {
      stopped = false
      while (written < MOST && !res.destroyed) {
        written += event.length
        if (!res.write(event)) break
      }
      stopped = written < MOST
    }
    res.on('drain', more)
    more()
  })
  const upstream = upstreamFor(t, { maxAnswerBytes: 2 * MOST })
  const answer = await upstream.call(callOf(raw.url))
  let before = -1
  await eventually(
    () => {
      const moved = written !== before
      before = written
      return moved
    },
    (moved) => !moved && stopped,
  )
  // What the two ends' sockets hold, and no more.
  t.ok(written < MOST / 2, `${written} bytes were taken`)
  let count = 0
  for await (const { value } of messagesOf(answer)) {
    t.equal(value.method, 'x')
    count += 1
    if (count === 3) break
  }
})
