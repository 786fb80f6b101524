import t from 'tap'
import { type Act, rawHead, sse } from '../../../support/mcp/raw-upstream.ts'
import {
  after,
  CHUNKED,
  chunk,
  cut,
  drip,
  endSse,
  fails,
  JSON_TYPE,
  reset,
  text,
} from '../../../support/mcp/upstream-broken.ts'

await t.test('an upstream that dies before it answers is unreachable', async (t) => {
  await t.test('at once', (t) => fails(t, cut, 'unreachable'))
  await t.test('with a reset', (t) => fails(t, reset, 'unreachable'))
  await t.test('inside the head', (t) =>
    fails(
      t,
      (res) => {
        res.socket?.write('HTTP/1.1 200 OK\r\ncontent-ty')
        after(res, cut)
      },
      'unreachable',
    ),
  )
})

await t.test('an upstream that dies inside its answer has failed', async (t) => {
  await t.test('after the head', (t) =>
    fails(
      t,
      (res) => {
        rawHead(res, [JSON_TYPE, CHUNKED])
        after(res, cut)
      },
      'failed',
    ),
  )
  await t.test('inside JSON of a known length', (t) =>
    fails(
      t,
      (res, told) => {
        rawHead(res, [JSON_TYPE, `content-length: ${text(told).length}`])
        res.socket?.write(text(told).slice(0, -1))
        after(res, cut)
      },
      'failed',
    ),
  )
  await t.test('inside JSON in chunks', (t) =>
    fails(
      t,
      (res, told) => {
        rawHead(res, [JSON_TYPE, CHUNKED])
        chunk(res, text(told))
        after(res, cut)
      },
      'failed',
    ),
  )
  await t.test('inside JSON that ends with the connection', (t) =>
    fails(
      t,
      (res, told) => {
        rawHead(res, [JSON_TYPE, 'connection: close'])
        res.socket?.end(text(told).slice(0, -1))
      },
      'failed',
    ),
  )
  await t.test('between two events', (t) =>
    fails(
      t,
      (res) => {
        sse(res)({ jsonrpc: '2.0', method: 'notifications/message' })
        after(res, cut)
      },
      'failed',
    ),
  )
  await t.test('inside an event', (t) =>
    fails(
      t,
      (res, told) => {
        sse(res)({ jsonrpc: '2.0', method: 'notifications/message' })
        res.write(`data: ${text(told)}`)
        after(res, cut)
      },
      'failed',
    ),
  )
})

await t.test('an event stream that ends before the response has failed, however cleanly', async (t) => {
  await t.test('with nothing', (t) => fails(t, (res) => endSse(res, ''), 'failed'))
  await t.test('after an event', (t) =>
    fails(t, (res) => endSse(res, 'data: {"jsonrpc":"2.0","method":"x"}\n\n'), 'failed'),
  )
  await t.test('before the line that finishes the response', (t) =>
    fails(t, (res, told) => endSse(res, `data: ${text(told)}\n`), 'failed'),
  )
})

await t.test('threat 38 an answer that does not come in time is a timeout', async (t) => {
  const silent = { answerMs: 50 }
  const slow = { totalMs: 500 }
  await t.test('no head', (t) => fails(t, () => {}, 'timeout', silent))
  await t.test('half a head', (t) =>
    fails(t, (res) => void res.socket?.write('HTTP/1.1 200 OK\r\ncontent-ty'), 'timeout', silent),
  )
  await t.test('no JSON', (t) => fails(t, (res) => rawHead(res, [JSON_TYPE, CHUNKED]), 'timeout', silent))
  await t.test('no event', (t) => fails(t, (res) => void sse(res), 'timeout', silent))
  await t.test('announcements for ever', (t) =>
    fails(t, (res) => drip(res, () => res.writeProcessing()), 'timeout', slow),
  )
  await t.test('a head, byte by byte', (t) => {
    let first = true
    const act: Act = (res) =>
      drip(res, () => {
        res.socket?.write(first ? 'HTTP/1.1 200 OK\r\n' : 'x')
        first = false
      })
    return fails(t, act, 'timeout', slow)
  })
  await t.test('JSON, byte by byte', (t) => {
    const act: Act = (res) => {
      rawHead(res, [JSON_TYPE, CHUNKED])
      drip(res, () => chunk(res, ' '))
    }
    return fails(t, act, 'timeout', slow)
  })
  await t.test('comments for ever', (t) => {
    const act: Act = (res) => {
      sse(res)
      drip(res, () => void res.write(': still there\n\n'))
    }
    return fails(t, act, 'timeout', slow)
  })
  await t.test('notifications for ever', (t) => {
    const act: Act = (res) => {
      const event = sse(res)
      drip(res, () => event({ jsonrpc: '2.0', method: 'notifications/progress' }))
    }
    return fails(t, act, 'timeout', slow)
  })
})
