import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { totalmem } from 'node:os'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t, { type Test } from 'tap'
import { attachRequestListener } from '../../proxy/http/framing.ts'
import { memoryLimits } from '../../proxy/wiring/services.ts'
import {
  ADMIN_SECRET,
  CHAT,
  type Identity,
  type Json,
  type TestGateway,
  testGateway,
} from '../support/gateway.ts'
import { result, sendJson, sse, type Told } from '../support/mcp/raw-upstream.ts'
import { mcpStage, tool, toolServer } from '../support/mcp/stage.ts'
import { type RawConnection, rawConnect, requestBytes, statuses } from '../support/raw.ts'
import { eventually, settledCalls } from '../support/settled.ts'
import { completion } from '../support/upstream.ts'

setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')

const MIB = 1024 * 1024
const PATH = '/v1/chat/completions'
const FILLER = Buffer.alloc(MIB, 'x')
/** 64 MiB in all, 16 for one principal, 8 for one that holds no capability, and for all strangers. */
const SMALL = { MCP_PROXY_HELD_MIB: '64' }

/** What is in use: objects, and the bytes behind buffers. */
function used(): number {
  collectGarbage()
  collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

type Measured = Pick<TestGateway, 'call'>

/** Reads a figure as operators do. */
async function figure(gateway: Measured, name: string): Promise<number> {
  const { text } = await gateway.call(null, 'GET', '/metrics', {
    headers: { 'x-admin-secret': ADMIN_SECRET },
  })
  return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1])
}

const held = (gateway: Measured): Promise<number> => figure(gateway, 'sallyport_held_bytes')

/** The bytes that are held once it has come to that. */
const heldSoon = (gateway: Measured, wanted: (bytes: number) => boolean): Promise<number> =>
  eventually(() => held(gateway), wanted)

/** Begins a request on a connection of its own, and sends `mebibytes` of its body. */
async function upload(
  t: Test,
  gateway: TestGateway,
  who: Identity | null,
  headers: readonly string[],
  mebibytes: number,
  path = PATH,
): Promise<RawConnection> {
  const connection = await rawConnect(t, gateway, who)
  const isChunked = headers.includes('transfer-encoding: chunked')
  connection.send(requestBytes('POST', path, headers))
  for (let sent = 0; sent < mebibytes; sent += 1) {
    if (isChunked) connection.send(`${MIB.toString(16)}\r\n`)
    connection.send(FILLER)
    if (isChunked) connection.send('\r\n')
  }
  return connection
}

const honest = (gateway: TestGateway, who: Identity, mebibytes = 0) => {
  const content = 'x'.repeat(mebibytes * MIB)
  return gateway.call(who, 'POST', PATH, { body: { ...CHAT, messages: [{ role: 'user', content }] } })
}

for (const [framing, headers] of [
  ['announced', [`content-length: ${32 * MIB}`]],
  ['in chunks', ['transfer-encoding: chunked']],
] as const) {
  await t.test(
    `A4: 48 unfinished bodies of 32 MiB, ${framing}, of an agent with an empty set are refused before they are kept`,
    async (t) => {
      const gateway = await testGateway(t)
      const empty = await gateway.enroll('empty', [])
      const bot = await gateway.enroll('bot', ['llm.chat'])
      t.equal((await honest(gateway, bot)).status, 200)
      const before = used()
      const uploads = Array.from({ length: 48 }, () => upload(t, gateway, empty, headers, 1))
      const connections = await Promise.all(uploads)
      for (const { until } of connections) t.match(await until('capability_missing'), 'llm.chat')
      for (const { received } of connections) t.strictSame(statuses(received()), [403])
      const grown = used() - before
      t.comment(`${(grown / MIB).toFixed(1)} MiB more`)
      t.ok(grown < 24 * MIB, `${grown} bytes more are in use`)
      t.equal((await honest(gateway, bot)).status, 200, 'an honest caller is served beside them')
      t.equal(await heldSoon(gateway, (bytes) => bytes === 0), 0)
      const { denied } = await settledCalls(gateway)
      t.equal(denied.length, 48)
      const [row] = denied
      t.match(row?.detail, {
        reason: 'capability_missing',
        refused_by: 'capability',
        required_capability: 'llm.chat',
      })
      t.notOk(row?.detail.body_sha256, 'the body was not read')
    },
  )
}

await t.test('A4: a long body is not even asked for where the capability is missing', async (t) => {
  const gateway = await testGateway(t)
  const empty = await gateway.enroll('empty', [])
  const headers = ['expect: 100-continue', `content-length: ${MIB}`]
  const { closed } = await upload(t, gateway, empty, headers, 0)
  t.match(await closed, /^HTTP\/1\.1 403 /, 'and its connection is closed')
})

await t.test('A4: small bodies are refused in the order of before', async (t) => {
  const gateway = await testGateway(t)
  const empty = await gateway.enroll('empty', [])
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const reason = async (who: Identity, body: string, type = 'application/json') => {
    const { json } = await gateway.call(who, 'POST', PATH, { body, headers: { 'content-type': type } })
    return json.reason
  }
  const long = 'x'.repeat(65_537)
  t.equal(await reason(empty, '{"model":'), 'body_invalid')
  t.equal(await reason(empty, '{}'), 'body_invalid')
  t.equal(await reason(empty, JSON.stringify(CHAT), 'text/plain'), 'body_invalid')
  t.equal(await reason(empty, long.slice(1)), 'body_invalid')
  t.equal(await reason(empty, JSON.stringify(CHAT)), 'capability_missing')
  t.equal(await reason(empty, long), 'capability_missing')
  t.equal(await reason(bot, long), 'body_invalid')
  t.equal(await held(gateway), 0)
})

await t.test(
  'A4: past its share the bodies of a principal wait unread, and another one is served',
  async (t) => {
    const gateway = await testGateway(t, { settings: SMALL })
    const greedy = await gateway.enroll('greedy', ['llm.chat'])
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const before = used()
    const announced = [`content-length: ${8 * MIB}`]
    const begun = await Promise.all([
      ...Array.from({ length: 6 }, () => upload(t, gateway, greedy, announced, 6)),
      ...Array.from({ length: 6 }, () => upload(t, gateway, greedy, ['transfer-encoding: chunked'], 6)),
    ])
    t.ok((await heldSoon(gateway, (bytes) => bytes >= 6 * MIB)) >= 6 * MIB, 'what fits is kept')
    const expecting = await upload(t, gateway, greedy, ['expect: 100-continue', ...announced], 0)
    t.equal((await honest(gateway, bot, 8)).status, 200, 'another principal is served beside it')
    t.equal((await honest(gateway, greedy)).status, 200, 'and so is a short call of its own')
    const most = await held(gateway)
    t.ok(most <= 16 * MIB, `${most} bytes are held`)
    const grown = used() - before
    t.comment(`${(grown / MIB).toFixed(1)} MiB more`)
    t.ok(grown < 16 * MIB * 1.1 + 24 * MIB, `${grown} bytes more are in use`)
    for (const { received } of [...begun, expecting])
      t.equal(received(), '', 'nobody is refused, or asked for more')
    t.ok((await figure(gateway, 'sallyport_held_waits_total')) >= 11)
    for (const { socket } of begun) socket.destroy()
    t.match(await expecting.until('100 Continue'), '100 Continue', 'it is asked for its body in its turn')
    expecting.socket.destroy()
    t.equal(await heldSoon(gateway, (bytes) => bytes === 0), 0)
    t.equal((await honest(gateway, greedy, 8)).status, 200)
  },
)

for (const [framing, headers] of [
  ['announced', (bytes: number) => [`content-length: ${bytes}`]],
  ['in chunks', () => ['transfer-encoding: chunked']],
] as const)
  await t.test(`A4: of many long bodies at once, ${framing}, all are served, within the share`, async (t) => {
    const gateway = await testGateway(t, { settings: SMALL })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const content = 'x'.repeat(2 * MIB)
    const body = JSON.stringify({ ...CHAT, messages: [{ role: 'user', content }] })
    const sent = framing === 'announced' ? body : `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`
    let most = 0
    gateway.upstream.answer = async (res, seen) => {
      most = Math.max(most, await held(gateway))
      await completion(res, seen)
    }
    const calls = await Promise.all(
      Array.from({ length: 24 }, async () => {
        const connection = await rawConnect(t, gateway, bot)
        const type = 'content-type: application/json'
        connection.send(requestBytes('POST', PATH, [type, 'connection: close', ...headers(body.length)]))
        connection.send(sent)
        return statuses(await connection.closed)
      }),
    )
    t.strictSame(calls, Array(24).fill([200]))
    t.comment(`${(most / MIB).toFixed(1)} MiB were held`)
    t.ok(most <= 16 * MIB)
    t.equal(await heldSoon(gateway, (bytes) => bytes === 0), 0)
  })

await t.test('A4: a sender that sends nothing on keeps room only for what has come', async (t) => {
  const gateway = await testGateway(t, { settings: SMALL })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const silent = await upload(t, gateway, bot, [`content-length: ${24 * MIB}`], 1)
  await heldSoon(gateway, (bytes) => bytes >= 24 * MIB)
  t.equal((await honest(gateway, bot, 8)).status, 200, 'so another one gets its turn')
  t.equal(silent.received(), '')
  t.equal(await heldSoon(gateway, (bytes) => bytes === MIB), MIB)
})

await t.test('A4: a body that finds no room in time is refused, and a row says so', async (t) => {
  const gateway = await testGateway(t, { settings: SMALL, timers: { roomMs: 200 } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  await upload(t, gateway, bot, [`content-length: ${12 * MIB}`], 11)
  await heldSoon(gateway, (bytes) => bytes >= 11 * MIB)
  const { status, headers, json } = await honest(gateway, bot, 4)
  t.match(
    { status, headers, json },
    { status: 503, headers: { 'retry-after': '1' }, json: { reason: 'overloaded' } },
  )
  const { denied } = await settledCalls(gateway)
  t.match(denied, [{ detail: { reason: 'overloaded' } }])
})

await t.test('A4: a body is let go of with its call, though its connection stays', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const connection = await rawConnect(t, gateway, bot)
  const content = 'x'.repeat(16 * MIB)
  const body = Buffer.from(JSON.stringify({ ...CHAT, messages: [{ role: 'user', content }] }))
  const before = used()
  connection.send(
    requestBytes('POST', PATH, ['content-type: application/json', `content-length: ${body.length}`]),
  )
  connection.send(body)
  await connection.until('"hello"')
  gateway.upstream.seen.length = 0
  const grown = await eventually(
    () => used() - before,
    (bytes) => bytes < 8 * MIB,
  )
  t.ok(grown < 8 * MIB, `${grown} bytes more are in use`)
})

await t.test('T9: the time in which a request is not read does not count', async (t) => {
  const timers = { headersMs: 2_000, requestMs: 2_000, checkMs: 50 }
  const gateway = await testGateway(t, { settings: SMALL, timers })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const answering = Promise.withResolvers<void>()
  gateway.upstream.answer = async (res, seen) => {
    await answering.promise
    await completion(res, seen)
  }
  const type = 'content-type: application/json'
  const body = JSON.stringify(CHAT)
  const first = honest(gateway, bot, 9)
  await heldSoon(gateway, (bytes) => bytes >= 9 * MIB)
  const waiting = honest(gateway, bot, 4)
  // Of six requests on one connection four are under way, one waits, and of the last a part has come.
  const pipelined = await rawConnect(t, gateway, bot)
  const last = requestBytes('POST', PATH, [type, `content-length: ${body.length}`])
  pipelined.send(requestBytes('POST', PATH, [type], body).repeat(5) + last.slice(0, 40))
  await eventually(
    () => gateway.upstream.seen.length,
    (count) => count === 5,
  )
  const began = performance.now()
  const stalled = await upload(
    t,
    gateway,
    await gateway.enroll('slow', ['llm.chat']),
    [`content-length: ${MIB}`],
    0,
  )
  t.match(await stalled.closed, 'body_timeout', 'one that is read, and does not come, ends')
  t.ok(performance.now() - began >= 2_000)
  answering.resolve()
  pipelined.send(last.slice(40) + body)
  t.equal((await first).status, 200)
  t.equal((await waiting).status, 200, 'a body that has waited for room is read')
  await pipelined.until('"hello"', 6)
  t.strictSame(statuses(pipelined.received()), Array(6).fill(200))
})

await t.test('A4: who holds no capability has a small share at the doors of MCP', async (t) => {
  const gateway = await testGateway(t, { settings: SMALL })
  const empty = await gateway.enroll('empty', [])
  const announced = [`content-length: ${8 * MIB}`]
  const begun = await Promise.all(
    Array.from({ length: 6 }, () => upload(t, gateway, empty, announced, 6, '/v1/mcp')),
  )
  await heldSoon(gateway, (bytes) => bytes >= 6 * MIB)
  const most = await held(gateway)
  t.ok(most <= 8 * MIB, `${most} bytes are held`)
  const short = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' })
  t.equal((await gateway.call(empty, 'POST', '/v1/mcp', { body: short })).status, 200, 'a short one is read')
  t.ok(
    begun.every(({ received }) => received() === ''),
    'the rest waits',
  )
  for (const { socket } of begun) socket.destroy()
  t.equal(await heldSoon(gateway, (bytes) => bytes === 0), 0)
})

await t.test('A4: an answer that comes whole or in events waits for room too', async (t) => {
  const stage = await mcpStage(t, { settings: SMALL })
  const text = 'x'.repeat(40_000)
  const shapes = { json: sendJson, events: (res: ServerResponse, value: Json) => sse(res)(value) }
  const act = (res: ServerResponse, told: Told) => {
    const { name }: Json = told.message.params
    const shape = name === 'events' ? shapes.events : shapes.json
    shape(res, result(told, { content: [{ type: 'text', text }] }))
  }
  const tools = [tool('json'), tool('events')]
  const files = await stage.register('files', await toolServer(t, tools, act), {
    required_capability: 'files.use',
  })
  const bot = await stage.enroll('bot', ['files.use', 'llm.chat'])
  await stage.bind(bot, files)
  await stage.callTool(bot, 'files.json')
  // A short body has room beside it, and an answer has none.
  const room = 16 * MIB - 1_000
  const greedy = await upload(t, stage, bot, [`content-length: ${room}`], 15)
  t.equal(await heldSoon(stage, (bytes) => bytes >= room), room)
  const waits = () => figure(stage, 'sallyport_held_waits_total')
  const before = await waits()
  const calls = ['json', 'events'].map((name) => stage.callTool(bot, `files.${name}`))
  t.equal(await eventually(waits, (count) => count >= before + 2), before + 2)
  greedy.socket.destroy()
  t.strictSame(
    (await Promise.all(calls)).map(({ status, text: all }) => [status, all.includes(text)]),
    Array(2).fill([200, true]),
  )
  t.equal(await heldSoon(stage, (bytes) => bytes === 0), 0)
})

await t.test(
  'A4: of 95 pipelined calls with unread answers four are under way, and all are answered',
  async (t) => {
    const stage = await mcpStage(t)
    const text = 'x'.repeat(MIB / 2)
    const server = await toolServer(t, [tool('read')], (res, told) =>
      sendJson(res, result(told, { content: [{ type: 'text', text }] })),
    )
    const files = await stage.register('files', server, { required_capability: 'files.use' })
    const bot = await stage.enroll('bot', ['files.use'])
    await stage.bind(bot, files)
    await stage.callTool(bot, 'files.read')
    const before = used()
    const connection = await rawConnect(t, stage, bot)
    const body = (id: number) =>
      JSON.stringify({
        jsonrpc: '2.0',
        id,
        method: 'tools/call',
        params: { name: 'files.read', arguments: {} },
      })
    const type = 'content-type: application/json'
    const calls = Array.from({ length: 95 }, (_, i) => requestBytes('POST', '/v1/mcp', [type], body(i + 1)))
    connection.socket.pause()
    connection.send(calls.join(''))
    const most = await heldSoon(stage, (bytes) => bytes >= 2 * MIB)
    t.ok(most >= 2 * MIB && most < 3 * MIB, `${most} bytes are held`)
    const grown = used() - before
    t.comment(`${(grown / MIB).toFixed(1)} MiB more`)
    t.ok(grown < 20 * MIB, `${grown} bytes more are in use`)
    const called = server.of('tools/call').length
    t.ok(called < 60, `${called} were called: those under way, and what the network took`)
    // From here on the caller reads: nothing was refused, and the order is as it was asked.
    let come = ''
    let length = 0
    connection.socket.removeAllListeners('data')
    const whole = new Promise<void>((resolve) => {
      connection.socket.on('data', (chunk: Buffer) => {
        length += chunk.length
        come += chunk.toString('latin1').replaceAll('x', '')
        if (come.split('"jsonrpc"').length > 95 && length > (95 * MIB) / 2) resolve()
      })
    })
    connection.socket.resume()
    await whole
    t.strictSame(statuses(come), Array(95).fill(200))
    const ids = [...come.matchAll(/"id":(\d+)/g)].map(([, id]) => Number(id))
    t.strictSame(
      ids,
      Array.from({ length: 95 }, (_, i) => i + 1),
    )
    t.equal(await heldSoon(stage, (bytes) => bytes === 0), 0)
  },
)

await t.test('A4: strangers who do not read what anybody may ask for hold little', async (t) => {
  const gateway = await testGateway(t, { settings: { ...SMALL, MCP_PROXY_ADMIN_SECRET: '' } })
  const { text } = await gateway.call(null, 'GET', '/openapi.json')
  t.comment(`${(text.length / 1024).toFixed(0)} KiB`)
  const asked = requestBytes('GET', '/openapi.json').repeat(32)
  const connections = await Promise.all(
    Array.from({ length: 12 }, async () => {
      const connection = await rawConnect(t, gateway, null)
      connection.socket.pause()
      connection.send(asked)
      return connection
    }),
  )
  const refused = () => gateway.log.filter(({ reason }) => reason === 'overloaded').length
  t.ok((await eventually(refused, (count) => count > 0)) > 0, 'past their share they are refused')
  t.equal((await gateway.call(null, 'GET', '/health')).status, 200)
  const body = { setup_code: gateway.setupCode, new_secret: ADMIN_SECRET }
  t.equal(
    (await gateway.call(null, 'POST', '/v1/admin/setup', { body })).status,
    204,
    'setup is open all the same',
  )
  const most = await held(gateway)
  t.ok(most <= 8 * MIB, `${most} bytes are held`)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  t.equal((await honest(gateway, bot, 8)).status, 200)
  for (const { socket } of connections) socket.destroy()
  t.equal(await heldSoon(gateway, (bytes) => bytes === 0), 0)
})

await t.test('A4: whatever ends a call, nothing of it stays counted', async (t) => {
  const gateway = await testGateway(t, {
    settings: SMALL,
    timers: { headersMs: 500, requestMs: 500, checkMs: 50 },
  })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const empty = await gateway.enroll('empty', [])
  const post = (who: Identity, body: unknown, path = PATH) => gateway.call(who, 'POST', path, { body })
  const statusOf = async (who: Identity, body: unknown, path = PATH) => (await post(who, body, path)).status

  t.equal(await statusOf(bot, CHAT), 200, 'an answer')
  t.equal(await statusOf(empty, CHAT), 403, 'a refusal')
  t.equal(await statusOf(bot, '{'), 400, 'JSON that is none')
  t.equal(await statusOf(bot, { ...CHAT, model: 7 }), 400, 'no model')
  t.equal(await statusOf(bot, Buffer.alloc(33 * MIB)), 413, 'a body too large')
  t.equal(await statusOf(bot, 'x'.repeat(MIB), '/v1/mcp'), 400, 'no message')
  gateway.upstream.answer = (res) => void res.writeHead(500).end()
  t.equal(await statusOf(bot, CHAT), 502, 'a provider that fails')
  gateway.upstream.answer = (res) =>
    void res.setHeader('content-type', 'application/json').writeHead(404).end('{}')
  t.equal(await statusOf(bot, CHAT), 404, 'a refusal of the provider itself')
  gateway.upstream.answer = (res) => {
    res.writeHead(200, { 'content-type': 'application/json', 'content-length': '100' })
    res.write('{', () => res.destroy())
  }
  await t.rejects(post(bot, CHAT), 'an answer that breaks off')

  gateway.upstream.answer = () => {}
  const waiting = await rawConnect(t, gateway, bot)
  waiting.send(requestBytes('POST', PATH, [], JSON.stringify(CHAT)))
  await heldSoon(gateway, (bytes) => bytes > 0)
  waiting.socket.destroy()
  const halfway = await upload(t, gateway, bot, ['transfer-encoding: chunked'], 2)
  t.ok((await heldSoon(gateway, (bytes) => bytes >= 2 * MIB)) >= 2 * MIB)
  halfway.socket.destroy()
  const stalled = await upload(t, gateway, bot, [`content-length: ${4 * MIB}`], 2)
  await stalled.closed

  const revoked = await rawConnect(t, gateway, bot)
  revoked.send(requestBytes('POST', PATH, [], JSON.stringify(CHAT)))
  await heldSoon(gateway, (bytes) => bytes > 0)
  await gateway.reload()
  await gateway.admin('DELETE', `/v1/admin/agents/${bot.id}`)
  t.match(await revoked.until('authority_revoked'), /^HTTP\/1\.1 403 /)
  t.equal(await heldSoon(gateway, (bytes) => bytes === 0), 0)
})

await t.test('A4: without settings the budget is a quarter of the memory, within bounds', (t) => {
  const { process, perPrincipal, perAnonymous } = memoryLimits({ heldMib: null, heldPerPrincipalMib: null })
  t.ok(process >= 64 * MIB && process <= 512 * MIB && process <= Math.max(totalmem() / 4, 64 * MIB))
  t.equal(perPrincipal, process / 4)
  t.ok(perAnonymous >= 8 * MIB && perAnonymous <= 32 * MIB)
  const heap = 8 * 1024 * MIB
  t.strictSame(memoryLimits({ heldMib: 1024, heldPerPrincipalMib: 32 }, heap), {
    process: 1024 * MIB,
    perPrincipal: 32 * MIB,
    perAnonymous: 32 * MIB,
  })
  t.end()
})

await t.test('A4: requests wait on few connections at once', async (t) => {
  const server = createServer()
  let served = 0
  attachRequestListener(server, () => {
    served += 1
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  const pipelining = async (requests: number): Promise<Socket> => {
    const socket = connect(port, '127.0.0.1').on('error', () => {})
    t.teardown(() => socket.destroy())
    socket.write(requestBytes('GET', '/').repeat(requests))
    const before = served
    await eventually(
      () => served - before,
      (count) => count === 4,
    )
    return socket
  }
  const waiting: Socket[] = []
  for (let i = 0; i < 64; i += 1) waiting.push(await pipelining(5))
  const oneMore = await pipelining(5)
  if (!oneMore.closed) await once(oneMore, 'close')
  const short = await pipelining(4)
  t.notOk(short.closed, 'one on which none waits stays')
  t.notOk(waiting.some(({ closed }) => closed))
})
