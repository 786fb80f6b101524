import { text } from 'node:stream/consumers'
import t from 'tap'
import {
  REPLAY_LIMIT_BYTES,
  type ReplayableBody,
  replayableBody,
} from '../../../../scripts/client/signing/replayable.ts'

/** An attempt as undici reads it. */
const read = (body: ReplayableBody) => body.attempt() as AsyncGenerator<Buffer>

async function* pieces(...parts: readonly string[]): AsyncGenerator<Buffer> {
  for (const part of parts) yield Buffer.from(part)
}

await t.test('what is whole already is sent as it is, each time', async (t) => {
  for (const whole of [null, undefined, 'text', Buffer.from('bytes'), new Uint8Array(3), new FormData()]) {
    const body = replayableBody(whole)
    t.equal(body.attempt(), whole)
    t.equal(body.attempt(), whole)
    t.ok(body.canReplay())
    body.close()
  }
})

await t.test('a stream that was read in part is whole again in the next attempt', async (t) => {
  const body = replayableBody(pieces('one ', 'two ', 'three'))
  const first = read(body)
  t.equal(String((await first.next()).value), 'one ')
  // As undici lets go of an attempt that was answered before its end.
  await first.return(undefined)
  t.ok(body.canReplay())
  t.equal(await text(read(body)), 'one two three')
  t.equal(await text(read(body)), 'one two three')
})

await t.test('a piece that an attempt was waiting for as it was given up is not lost', async (t) => {
  const { promise, resolve } = Promise.withResolvers<string>()
  async function* slow(): AsyncGenerator<Buffer> {
    yield Buffer.from('one ')
    yield Buffer.from(await promise)
  }
  const body = replayableBody(slow())
  const first = read(body)
  await first.next()
  const waiting = first.next()
  const second = text(read(body))
  resolve('two')
  t.equal(await second, 'one two')
  t.equal((await waiting).done, true, 'the attempt that was given up ends')
})

await t.test('beyond 32 MiB the first attempt is whole, and the only one', async (t) => {
  const piece = Buffer.alloc(REPLAY_LIMIT_BYTES / 4)
  function* many(): Generator<Buffer> {
    for (let i = 0; i < 5; i += 1) yield piece
  }
  const body = replayableBody(many())
  let bytes = 0
  const seen: boolean[] = []
  for await (const chunk of read(body)) {
    bytes += chunk.length
    seen.push(body.canReplay())
  }
  t.equal(bytes, 5 * piece.length)
  t.same(seen, [true, true, true, true, false])
})

await t.test('a source that breaks breaks the attempt', async (t) => {
  async function* broken(): AsyncGenerator<Buffer> {
    yield Buffer.from('one')
    throw new Error('the disk is gone')
  }
  await t.rejects(text(read(replayableBody(broken()))), { message: 'the disk is gone' })
})

await t.test('a body that is let go of lets go of its source', async (t) => {
  let released = false
  async function* source(): AsyncGenerator<Buffer> {
    try {
      yield Buffer.from('one')
      yield Buffer.from('two')
    } finally {
      released = true
    }
  }
  const body = replayableBody(source())
  const attempt = read(body)
  await attempt.next()
  body.close()
  t.equal((await attempt.next()).done, true)
  t.ok(released)
})
