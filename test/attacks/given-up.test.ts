import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { BYTES_AT_ONCE } from '../../plugins/turns.ts'
import { CallHangup } from '../../proxy/http/open-calls.ts'
import { type LlmUpstream, openUpstream } from '../../proxy/llm/upstream/client.ts'
import { answer, portOf, rawUpstream } from '../support/llm/upstreams.ts'
import { resourceAt, upstreamFor } from '../support/mcp/raw-upstream.ts'
import { callOf } from '../support/mcp/upstream-calls.ts'
import { CATALOGUE } from '../support/permit.ts'
import { eventually } from '../support/settled.ts'

const CALLS = 32
/** Longer than a test may last. */
const CONNECT_MS = 300_000

/** A server that takes connections and never says its part of TLS: no connection comes to stand. */
async function blackHole(t: Test) {
  const open = new Set<Socket>()
  const server = createServer((socket) => {
    open.add(socket)
    socket.on('error', () => {}).on('close', () => open.delete(socket))
    socket.resume()
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  t.teardown(() => {
    for (const socket of open) socket.destroy()
    server.close()
  })
  return { url: `https://127.0.0.1:${portOf(server.address())}`, open }
}

/** Sends a call, and resolves with its end, whatever it is. */
type Call = (url: string, hangup: CallHangup, bytes: number) => Promise<unknown>

const llm =
  (upstream: LlmUpstream): Call =>
  (base, hangup, bytes) => {
    const url = new URL(`${base}/v1/chat/completions`)
    return upstream.call({
      permit: CATALOGUE,
      method: 'POST',
      url,
      headers: ['host', url.host, 'content-length', String(bytes)],
      body: [Buffer.alloc(bytes, ' ')],
      timeouts: { connectMs: CONNECT_MS, firstByteMs: CONNECT_MS, idleMs: CONNECT_MS },
      hangup,
    })
  }

function mcp(t: Test): Call {
  const upstream = upstreamFor(t, { connectMs: CONNECT_MS, allowPrivate: true })
  return (url, hangup, bytes) =>
    upstream.call(callOf(url, { resource: resourceAt(url), hangup, params: `{"x":"${'x'.repeat(bytes)}"}` }))
}

/** Calls of one caller that gives them up, beside one that goes on waiting. */
async function endsWithItsCall(t: Test, call: Call): Promise<void> {
  const hole = await blackHole(t)
  const standing = async (count: number, why: string) =>
    t.equal(
      await eventually(
        async () => hole.open.size,
        (size) => size === count,
      ),
      count,
      why,
    )
  const patient = new CallHangup()
  const waiting = call(hole.url, patient, 10)
  await standing(1, 'one waits')
  for (const bytes of [10, BYTES_AT_ONCE + 1]) {
    const caller = new CallHangup()
    const calls = Array.from({ length: CALLS }, () => call(hole.url, caller, bytes))
    await standing(1 + CALLS, `calls of ${bytes} bytes have a connection each`)
    caller.hangUp(new Error('gone'))
    const ends = await Promise.allSettled(calls)
    t.same(new Set(ends.map(({ status }) => status)), new Set(['rejected']))
    await standing(1, 'which end with them, and that of the other call stays')
  }
  patient.hangUp(new Error('gone'))
  await t.rejects(waiting)
  await standing(0, 'and ends with it')
}

await t.test('H2: a connection that is being opened to a provider ends with its call', async (t) => {
  const upstream = openUpstream()
  t.teardown(() => upstream.close())
  await endsWithItsCall(t, llm(upstream))
  const healthy = await rawUpstream(t, (socket) => socket.write(answer(200, '{}')))
  t.match(await llm(upstream)(healthy.url, new CallHangup(), 10), { status: 200 }, 'others are served')
})

await t.test('H2: and to an MCP server', (t) => endsWithItsCall(t, mcp(t)))
