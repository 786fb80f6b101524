import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { egressAgent } from '../../../../proxy/egress/agent.ts'
import { ExportLane, MAX_BATCH, MAX_WAITING_RECORDS } from '../../../../proxy/telemetry/otlp/lane.ts'
import { type SendOutcome, telemetrySender } from '../../../../proxy/telemetry/otlp/sender.ts'

/** Makes a sender to a server that answers as told. */
async function sending(t: Test, answer: (res: ServerResponse, req: IncomingMessage) => void) {
  let asked = 0
  const server = createServer((req, res) => {
    asked += 1
    req.resume().once('end', () => answer(res, req))
    req.on('error', () => {})
    res.on('error', () => {})
  })
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  const agent = egressAgent({ allowPrivate: true, connectMs: 10_000, answerMs: 10_000 })
  t.teardown(async () => {
    await agent.destroy()
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  const send = telemetrySender({ endpoint: `http://127.0.0.1:${port}/base/`, headers: {} }, agent)
  return { send, asked: () => asked }
}

const once = (send: Awaited<ReturnType<typeof sending>>['send']): Promise<SendOutcome> =>
  send('traces', '{}', new AbortController().signal)

function counting() {
  const dropped: number[] = []
  const problems: (string | null)[] = []
  return {
    report: {
      dropped: (_: string, count: number) => void dropped.push(count),
      failed: (_: string, problem: string | null) => void problems.push(problem),
    },
    problems,
    count: () => dropped.reduce((sum, count) => sum + count, 0),
  }
}

const AROUND = { head: '[', tail: ']' }

t.test('a collector that hangs costs a bounded queue: what comes then is dropped and counted', async (t) => {
  const { send, asked } = await sending(t, () => {})
  const { report, count } = counting()
  const lane = new ExportLane('traces', AROUND, send, report)
  for (let added = 0; added < MAX_WAITING_RECORDS + 904; added += 1) lane.add('{}')
  t.equal(count(), 904, 'the newest')
  await lane.close(50)
  t.equal(count(), MAX_WAITING_RECORDS + 904, 'at the end the rest is counted too')
  t.ok(asked() <= 1, 'one request was under way')
  lane.add('{}')
  t.equal(count(), MAX_WAITING_RECORDS + 905, 'nothing is kept after the end')
})

t.test('records go in batches, a message at a time', async (t) => {
  const sizes: number[] = []
  const { report, count } = counting()
  let open = 0
  const lane = new ExportLane(
    'logs',
    AROUND,
    async (_, message) => {
      open += 1
      t.equal(open, 1)
      sizes.push(JSON.parse(String(message)).length)
      await new Promise((resolve) => setImmediate(resolve))
      open -= 1
      return { kind: 'taken', rejected: sizes.length === 1 ? 3 : 0 }
    },
    report,
  )
  for (let added = 0; added < 2 * MAX_BATCH + 7; added += 1) lane.add(String(added))
  await lane.close(5_000)
  t.same(sizes, [MAX_BATCH, MAX_BATCH, 7])
  t.equal(count(), 3, 'what a collector took and rejected')
})

t.test('a message that may be taken later stays, one that is refused does not', async (t) => {
  const { report, count, problems } = counting()
  const outcomes: SendOutcome[] = [
    { kind: 'refused', problem: 'it answered 400' },
    { kind: 'later', problem: 'it answered 503', afterMs: 0 },
  ]
  const lane = new ExportLane(
    'traces',
    AROUND,
    async () => outcomes.shift() ?? { kind: 'taken', rejected: 0 },
    report,
  )
  for (let added = 0; added < MAX_BATCH; added += 1) lane.add('{}')
  // Its outcome is there before the next turn of the loop.
  await new Promise((resolve) => setImmediate(resolve))
  t.equal(count(), MAX_BATCH, 'refused: dropped')
  t.same(problems, ['it answered 400'])
  for (let added = 0; added < MAX_BATCH; added += 1) lane.add('{}')
  await new Promise((resolve) => setImmediate(resolve))
  t.equal(outcomes.length, 1, 'it is left alone after a failure')
  await lane.close(0)
})

t.test('an answer of 500, a closed connection and a redirect are failures; nobody follows it', async (t) => {
  const other = await sending(t, (res) => void res.end())
  const failing = await sending(t, (res) => void res.writeHead(500).end('no'))
  t.same(await once(failing.send), { kind: 'refused', problem: 'it answered 500' })
  const busy = await sending(t, (res) => void res.writeHead(503, { 'retry-after': '7' }).end())
  t.same(await once(busy.send), { kind: 'later', problem: 'it answered 503', afterMs: 7_000 })
  const closing = await sending(t, (res) => void res.destroy())
  t.match(await once(closing.send), { kind: 'later', problem: /^it failed \(/ })
  const away = await sending(t, (res) => void res.writeHead(307, { location: 'http://127.0.0.1:1/' }).end())
  t.same(await once(away.send), { kind: 'refused', problem: 'it answered 307' })
  t.equal(other.asked(), 0)
})

t.test('of an answer of a GiB only the beginning is read', async (t) => {
  let written = 0
  const ended = Promise.withResolvers<void>()
  const { send } = await sending(t, (res) => {
    const piece = Buffer.alloc(65_536, 32)
    const more = (): void => {
      while (written < 2 ** 30 && !res.destroyed) {
        written += piece.length
        if (!res.write(piece)) return void res.once('drain', more)
      }
    }
    res.once('close', () => ended.resolve())
    res.writeHead(200)
    more()
  })
  t.same(await once(send), { kind: 'taken', rejected: 0 })
  await ended.promise
  t.ok(written < 2 ** 26, `${written} bytes had been written when the connection was cut`)
})

t.test('what a collector has rejected of what it took is read', async (t) => {
  const { send } = await sending(t, (res) => void res.end('{"partialSuccess":{"rejectedSpans":"4"}}'))
  t.same(await once(send), { kind: 'taken', rejected: 4 })
  const odd = await sending(t, (res) => void res.end('<html>'))
  t.same(await once(odd.send), { kind: 'taken', rejected: 0 })
})
