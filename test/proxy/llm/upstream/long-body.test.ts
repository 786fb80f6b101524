import { createHash, randomBytes } from 'node:crypto'
import { createServer, type RequestListener } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { CallHangup } from '../../../../proxy/http/open-calls.ts'
import { abandonAnswer, readWholeBody, type UpstreamRequest } from '../../../../proxy/llm/upstream/answer.ts'
import { openUpstream } from '../../../../proxy/llm/upstream/client.ts'
import { trusted } from '../../../support/llm/trusted.ts'
import { holdOf } from '../../../support/loop-hold.ts'
import { CATALOGUE } from '../../../support/permit.ts'

const MIB = 1024 * 1024
const PARTS = [randomBytes(3 * MIB), Buffer.from('"gpt"'), randomBytes(5 * MIB + 1)]
const WHOLE = Buffer.concat(PARTS)
const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex')

const upstream = openUpstream()
t.teardown(() => upstream.close())

async function provider(t: Test, listener: RequestListener): Promise<string> {
  const server = createServer(listener)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
}

const post = (url: string, fields: Partial<UpstreamRequest> = {}): UpstreamRequest => ({
  permit: CATALOGUE,
  method: 'POST',
  url: new URL(url),
  headers: ['host', new URL(url).host, 'content-length', String(WHOLE.length)],
  body: PARTS,
  timeouts: { connectMs: 5_000, firstByteMs: 20_000, idleMs: 20_000 },
  hangup: new CallHangup(),
  ...fields,
})

await t.test('A5: a long body in parts reaches the provider whole, on one connection again', async (t) => {
  const seen: string[] = []
  const url = await provider(t, (req, res) => {
    void buffer(req).then((body) => {
      seen.push(sha256(body))
      res.end('{}')
    })
  })
  for (let call = 0; call < 3; call += 1) {
    const answer = await upstream.call(post(url))
    t.equal(answer.status, 200)
    t.equal(String(await readWholeBody(answer, 100)), '{}')
  }
  t.strictSame(seen, [WHOLE, WHOLE, WHOLE].map(sha256))
})

await t.test('A5: a provider that answers before it has taken the body is heard', async (t) => {
  const url = await provider(t, (_req, res) => {
    res.writeHead(413, { connection: 'close', 'content-type': 'application/json' }).end('{"error":{}}')
  })
  const answer = await upstream.call(post(url))
  t.equal(answer.status, 413)
  abandonAnswer(answer)
})

await t.test('A5: a provider that breaks off in the middle of a body is an error', async (t) => {
  const url = await provider(t, (req) => {
    req.once('data', () => req.socket.destroy())
  })
  await t.rejects(upstream.call(post(url)), { message: /^upstream reset:/ })
})

await t.test('A5: a caller who hangs up while the provider takes nothing is let go', async (t) => {
  const hangup = new CallHangup()
  const url = await provider(t, (req) => {
    req.pause()
    setImmediate(() => hangup.hangUp(new Error('hung up')))
  })
  await t.rejects(upstream.call(post(url, { hangup })), { message: 'hung up' })
})

await t.test('A5: a long body is encrypted without holding up the loop', async (t) => {
  const server = createTlsServer(await trusted(t), (req, res) => {
    const digest = createHash('sha256')
    req.on('data', (chunk: Buffer) => digest.update(chunk))
    req.on('end', () => res.end(digest.digest('hex')))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const body = [PARTS[0] ?? WHOLE, randomBytes(29 * MIB)]
  const length = body.reduce((sum, part) => sum + part.length, 0)
  const { port } = server.address() as AddressInfo
  const url = `https://127.0.0.1:${port}/`
  const headers = ['host', new URL(url).host, 'content-length', String(length)]
  const send = async (): Promise<string> =>
    String(await readWholeBody(await upstream.call(post(url, { headers, body })), 1000))
  const least = { ownMs: Number.POSITIVE_INFINITY }
  for (let tried = 0; tried < 4 && least.ownMs > 20; tried += 1) {
    const { value, ownMs } = await holdOf(send)
    t.equal(value, sha256(Buffer.concat(body)))
    least.ownMs = Math.min(least.ownMs, ownMs)
  }
  t.ok(least.ownMs <= 20, `held up for ${least.ownMs.toFixed(1)} ms, the taking included`)
})
