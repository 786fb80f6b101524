import { createServer } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { PassThrough } from 'node:stream'
import t, { type Test } from 'tap'
import type { Reply, ScreenLine } from '../../../proxy/http/reply.ts'
import { type ReplyEnding, sendReply } from '../../../proxy/http/send.ts'
import { eventually } from '../../support/settled.ts'

/** A server that answers each request with `body`, sent whole. */
async function answering(t: Test, body: NonNullable<Reply['body']>) {
  const endings: ReplyEnding[] = []
  const waiting: (() => number)[] = []
  const server = createServer((_req, res) => {
    waiting.push(() => (res.socket?.writableLength ?? 0) + res.writableLength)
    const options = { headers: {}, writeStallMs: 60_000, onStream: () => {} }
    void sendReply(res, { status: 200, body }, options).then((ending) => endings.push(ending))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return { port: (server.address() as AddressInfo).port, endings, waiting }
}

await t.test('A4: an answer of any length comes whole, and none of its characters is cut', async (t) => {
  const crossing = ['', 'x'].map((first) => first + '😀'.repeat(70_000))
  for (const text of ['', 'short', 'ä'.repeat(65_536), 'x'.repeat(200_000), ...crossing]) {
    for (const body of [text, Buffer.from(text)]) {
      const { port, endings } = await answering(t, body)
      const answer = await fetch(`http://127.0.0.1:${port}/`)
      t.ok((await answer.text()) === text)
      t.equal(answer.headers.get('content-length'), String(Buffer.byteLength(text)))
      const bytes = Buffer.byteLength(text)
      await eventually(
        () => endings.length,
        (count) => count === 1,
      )
      t.strictSame(endings, [{ reason: 'complete', status: 200, bytes }])
    }
  }
})

await t.test('A4: of a long answer no more is written than its client reads', async (t) => {
  const { port, endings, waiting } = await answering(t, 'x'.repeat(64 * 1024 * 1024))
  const client = connect(port, '127.0.0.1')
  t.teardown(() => client.destroy())
  client.pause().on('error', () => {})
  client.write('GET / HTTP/1.1\r\nhost: localhost\r\n\r\n')
  const held = (): number => waiting[0]?.() ?? 0
  t.ok((await eventually(held, (bytes) => bytes > 0)) < 1024 * 1024)
  client.destroy()
  await eventually(
    () => endings.length,
    (count) => count === 1,
  )
  t.match(endings, [{ reason: 'client_gone' }])
})

/** A stream whose screen is at hand, and which is whole once `whole` is called. */
function screened() {
  const source = new PassThrough()
  const lines: ScreenLine[] = []
  let [isWhole, stopped] = [false, 0]
  const screen = {
    push: (chunk: Buffer) => chunk,
    flush: () => Buffer.alloc(0),
    begin: (line: ScreenLine) => {
      lines.push(line)
      return () => {
        stopped += 1
      }
    },
  }
  const whole = (): void => {
    isWhole = true
  }
  return { body: { source, screen, isWhole: () => isWhole }, source, lines, whole, stopped: () => stopped }
}

await t.test('a screen writes at a time of its own, and ends an answer whose source does not', async (t) => {
  for (const ends of ['complete', 'upstream_broken'] as const) {
    const { body, source, lines, whole, stopped } = screened()
    const { port, endings } = await answering(t, body)
    const answered = fetch(`http://127.0.0.1:${port}/`).then((answer) => answer.text())
    const [line] = await eventually(
      () => lines,
      ({ length }) => length === 1,
    )
    line?.write(Buffer.from('a'))
    source.write('b')
    await eventually(
      () => source.readableLength + source.writableLength,
      (waiting) => waiting === 0,
    )
    line?.write(Buffer.from('c'))
    if (ends === 'complete') whole()
    line?.end()
    line?.write(Buffer.from('too late'))
    if (ends === 'complete') t.equal(await answered, 'abc')
    else await t.rejects(answered, 'a cut answer is not ended cleanly')
    await eventually(
      () => endings.length,
      (count) => count === 1,
    )
    t.match(endings, [{ reason: ends, bytes: 3 }])
    t.match([source.destroyed, stopped()], [true, 1])
  }
})
