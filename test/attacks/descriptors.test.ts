import { Agent } from 'node:https'
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import { connectionShares } from '../../proxy/http/descriptors.ts'
import { ADMIN_SECRET, agentOf, ask, CHAT, type Identity, testGateway } from '../support/gateway.ts'
import { environment, startProcess } from '../support/process.ts'
import { rawConnect, requestBytes, statuses } from '../support/raw.ts'
import { eventually } from '../support/settled.ts'
import { completion, testUpstream } from '../support/upstream.ts'

const PATH = '/v1/chat/completions'

/** Opens connections that say nothing, and resolves with how many of them still stand. */
async function strangers(t: Test, url: string, count: number) {
  const { hostname, port } = new URL(url)
  const sockets = Array.from({ length: count }, () => {
    const socket = connect(Number(port), hostname)
    socket.on('error', () => {})
    t.teardown(() => socket.destroy())
    return socket
  })
  await Promise.all(
    sockets.map((socket) => new Promise((done) => socket.once('connect', done).once('close', done))),
  )
  return sockets
}

await t.test('H2 F-34: with 256 descriptors strangers take none that a call needs', async (t) => {
  const upstream = await testUpstream(t)
  upstream.answer = (res, seen) => {
    res.setHeader('connection', 'close')
    return completion(res, seen)
  }
  const env = await environment(t.testdir({}), upstream.url)
  const process = startProcess(t, env, [], undefined, 'ulimit -n 256;')
  const url = await process.ready
  const said = { descriptors: 256, connections: connectionShares(256, false).runtime.maxConnections }

  const { text: ca } = await ask(`${url}/pki/ca.crt`, 'GET', {
    agent: new Agent({ rejectUnauthorized: false }),
  })
  const admin = {
    agent: new Agent({ ca, keepAlive: true, maxSockets: 1 }),
    headers: { 'x-admin-secret': ADMIN_SECRET },
  }
  t.teardown(() => admin.agent.destroy())
  const enrolled = await ask(`${url}/v1/admin/agents`, 'POST', {
    ...admin,
    body: { agent_name: 'bot', capabilities: ['llm.chat'] },
  })
  const bot: Identity = {
    id: enrolled.json.agent_id,
    cert: enrolled.json.cert_chain_pem,
    key: enrolled.json.private_key_pem,
  }
  const kept = agentOf(ca, bot, true)
  t.teardown(() => kept.destroy())
  const call = () => ask(url + PATH, 'POST', { agent: kept, body: CHAT })
  // Those who are in.
  const callers = 20
  const within = async (why: string): Promise<void> => {
    const answers = await Promise.all(Array.from({ length: callers }, call))
    t.same(new Set(answers.map(({ status }) => status)), new Set([200]), why)
  }
  await within('before')
  for (let round = 0; round < 2; round += 1) {
    const open = await strangers(t, url, 250)
    await within('while strangers hold all the connections that there are')
    for (const socket of open) socket.destroy()
  }
  const { text } = await ask(`${url}/metrics`, 'GET', admin)
  t.match(text, /^sallyport_descriptors_limit 256$/m)
  t.match(text, /^sallyport_descriptors_open \d+$/m)
  t.match(text, new RegExp(`^sallyport_connections_limit ${said.connections}$`, 'm'))
  t.match(
    process.output(),
    JSON.stringify(said).slice(1, -1),
    'the start says how many connections it serves',
  )
  t.notMatch(process.output(), /EMFILE|ENFILE/)
})

await t.test('H2: who comes when all places are taken', async (t) => {
  const gateway = await testGateway(t, { descriptorLimit: 132 })
  const { maxConnections } = connectionShares(132, false).runtime
  t.equal(maxConnections, 16)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const figures = async () => {
    const { text } = await gateway.admin('GET', '/metrics')
    const of = (name: string) => Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1] ?? 0)
    return {
      open: of('sallyport_connections_open'),
      ended: of('sallyport_connections_full_total{outcome="idle_ended"}'),
      refused: of('sallyport_connections_full_total{outcome="refused"}'),
    }
  }
  t.match((await gateway.call(null, 'GET', '/ready')).json.checks, { descriptors: undefined })

  const idle = []
  for (let one = 0; one < maxConnections; one += 1) idle.push(await rawConnect(t, gateway, bot))
  // An idle one ends for a newcomer, the oldest, and only that.
  t.equal((await gateway.call(bot, 'POST', PATH, { body: CHAT })).status, 200)
  await idle[0]?.closed
  t.equal(idle.filter(({ socket }) => socket.destroyed || socket.readableEnded).length, 1)
  const ready = await gateway.call(null, 'GET', '/ready')
  t.match(ready, { status: 200, json: { status: 'ready', checks: { descriptors: 'low' } } })

  // Answers that anybody may have, and that nobody reads, keep nobody out.
  for (let one = 0; one < maxConnections; one += 1) {
    const unread = await rawConnect(t, gateway, null)
    unread.socket.pause()
    unread.send(requestBytes('GET', '/openapi.json').repeat(20))
  }
  for (let one = 0; one < 3; one += 1)
    t.equal((await gateway.call(bot, 'POST', PATH, { body: CHAT })).status, 200)

  // Calls are under way on all of them.
  const over = Promise.withResolvers<void>()
  gateway.upstream.answer = async (res, seen) => {
    await over.promise
    await completion(res, seen)
  }
  const begun = gateway.upstream.seen.length
  const body = JSON.stringify(CHAT)
  const busy = []
  for (let one = 0; one < maxConnections; one += 1) busy.push(await rawConnect(t, gateway, bot))
  for (const { send } of busy) send(requestBytes('POST', PATH, ['content-type: application/json'], body))
  await eventually(
    () => Promise.resolve(gateway.upstream.seen.length - begun),
    (seen) => seen === maxConnections,
  )
  await t.rejects(rawConnect(t, gateway, bot), 'a newcomer is turned away')
  over.resolve()
  for (const { until } of busy) t.same(statuses(await until('"usage"')), [200], 'and nobody who was in')
  const { open, ended, refused } = await figures()
  t.ok(open <= maxConnections, `${open} of ${maxConnections} connections`)
  t.ok(ended >= 1)
  t.equal(refused, 1)
})

await t.test('H2: descriptors are shared out so that each call has one', (t) => {
  for (const limit of [128, 256, 1_024, 20_000, 1_048_576])
    for (const hasAdminListener of [false, true]) {
      const { runtime, admin } = connectionShares(limit, hasAdminListener)
      const administering = hasAdminListener ? 2 * admin.maxConnections : 0
      t.ok(runtime.maxConnections >= 16)
      if (runtime.maxConnections > 16)
        t.ok(2 * runtime.maxConnections + runtime.maxPipelined + administering + 96 <= limit, `${limit}`)
    }
  t.equal(connectionShares(null, false).runtime.maxConnections, Number.POSITIVE_INFINITY)
  t.end()
})
