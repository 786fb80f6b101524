import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { text } from 'node:stream/consumers'
import t from 'tap'
import { cannotListen } from '../../proxy/http/listeners.ts'
import { ANOTHER_USER, mayBeOthers } from '../support/another-user.ts'
import { type HeldCall, heldCall } from '../support/cluster/held-call.ts'
import { callOnce, load, type Made, tally } from '../support/cluster/load.ts'
import { broken, openCalls } from '../support/cluster/oracle.ts'
import { type Door, onePortStage, type Stage } from '../support/cluster/stage.ts'
import { cluster } from '../support/db/postgres/cluster.ts'
import { agentOf, type Identity, scratch } from '../support/gateway.ts'
import { environment, startProcess } from '../support/process.ts'
import { eventually } from '../support/settled.ts'

/** So many new connections that one of three gateways would get none of them once in a million runs. */
const CONNECTIONS = 40

/** Makes calls, each on a connection of its own. */
async function callAnew(stage: Stage<Door>, bot: Identity): Promise<readonly Made[]> {
  const made: Made[] = []
  while (made.length < CONNECTIONS) {
    const agent = agentOf(stage.ca, bot)
    made.push(await callOnce(stage.door.url, bot, agent))
    agent.destroy()
  }
  return made
}

/** The streams of the ledger that the calls are in: each gateway writes one of its own. */
const streamsOf = (made: readonly Made[]): ReadonlySet<string> =>
  new Set(made.flatMap(({ receipt }) => (receipt ? [receipt.stream] : [])))

interface Placed {
  readonly model: string
  readonly stream: string
}

const DECISIONS = `select model, stream from audit_log
  where status = 'allowed' and leaf::json ->> 'model' = any($1)`

/** Begins calls that wait for their answers until each gateway has some. Returns them, and the stream of each. */
async function callsAtEach(t: Parameters<typeof onePortStage>[0], stage: Stage<Door>, bot: Identity) {
  const calls: HeldCall[] = []
  let placed: readonly Placed[] = []
  while (new Set(placed.map(({ stream }) => stream)).size < stage.replicas.length) {
    calls.push(await heldCall(t, stage, bot, 'wait', { name: 'any', url: stage.door.url }))
    placed = (await stage.ledger(DECISIONS, [calls.map(({ model }) => model)])).rows
  }
  return { calls, placed }
}

const OUTCOMES = `select model, stream from audit_log where status = 'unknown'`

t.test('three gateways on one PostgreSQL share a port', async (t) => {
  const stage = await onePortStage(t)
  const bot = await stage.enroll('bot')
  const all: Made[] = []
  let streams: ReadonlySet<string> = new Set()

  await t.test('each of them serves some of the connections', async (t) => {
    const made = await callAnew(stage, bot)
    all.push(...made)
    streams = streamsOf(made)
    t.equal(tally(made), JSON.stringify({ 200: CONNECTIONS }))
    t.equal(streams.size, 3)
  })

  await t.test('one is killed while calls run: new connections go to the others', async (t) => {
    const { calls, placed } = await callsAtEach(t, stage, bot)
    const running = load(stage, bot, { callers: 4 })
    await running.until((made) => made.length >= CONNECTIONS)
    const [victim] = stage.replicas
    if (!victim) throw new Error('there are three')
    await victim.kill()

    const made = await callAnew(stage, bot)
    all.push(...made)
    t.equal(tally(made), JSON.stringify({ 200: CONNECTIONS }))
    const living = streamsOf(made)
    t.equal(living.size, 2)
    const [died = ''] = streams.difference(living)
    const ofVictim = new Set(placed.flatMap(({ stream, model }) => (stream === died ? [model] : [])))
    t.ok(ofVictim.size > 0, 'calls waited for their answers at the one that died')
    for (const call of calls) if (ofVictim.has(call.model)) t.match(await call.lost, { status: 0 })

    await victim.start()
    const again = await eventually(
      () => callAnew(stage, bot),
      (calls) => streamsOf(calls).size === 3,
    )
    t.equal(streamsOf(again).size, 3, 'it has its share again once it is started')
    all.push(...again)
    await running.stop()
    all.push(...running.made)
    for (const call of calls) call.hangUp()
    t.same(await openCalls(stage, 60_000), [], 'each call has its outcome')
    const { rows } = await stage.ledger(OUTCOMES)
    const unknown = new Set((rows as Placed[]).map(({ model }) => model))
    t.ok(ofVictim.isSubsetOf(unknown), 'those that died have the outcome unknown')
  })

  await t.test('a gateway without MCP_PROXY_REUSE_PORT is refused at that port', async (t) => {
    const address = `127.0.0.1:${new URL(stage.door.url).port}`
    const env = { ...(await environment(await scratch(t), stage.provider.url)), MCP_PROXY_LISTEN: address }
    const { code, output } = await startProcess(t, env).ended
    t.equal(code, 1)
    t.match(output, `cannot listen on ${address} (MCP_PROXY_LISTEN): another process listens there; take`)
  })

  await t.test(
    'a process of another user cannot take a share of the connections',
    { skip: mayBeOthers ? false : 'skipped: only root can start a process of another user' },
    async (t) => {
      const port = new URL(stage.door.url).port
      t.equal(await listenAs({ uid: ANOTHER_USER, gid: ANOTHER_USER }, port), 'EADDRINUSE')
      t.equal(await listenAs({}, port), 'listening', 'one of the same user can')
    },
  )

  await t.test('every call is recorded and the chain verifies', async (t) => {
    t.same(await broken(stage, all), [])
    t.match((await stage.admin('POST', '/v1/admin/audit/verify')).json, { ok: true })
  })
})

const LISTENS = `require('node:net').createServer()
  .once('error', ({ code }) => console.log(code))
  .listen({ host: '127.0.0.1', port: Number(process.argv[1]), reusePort: true }, function () {
    console.log('listening')
    this.close()
  })`

/** Has a process listen at a port that is shared, and resolves with how that ends. */
async function listenAs(user: { readonly uid?: number; readonly gid?: number }, port: string) {
  const child = spawn(process.execPath, ['-e', LISTENS, port], {
    stdio: ['ignore', 'pipe', 'inherit'],
    ...user,
  })
  return (await text(child.stdout)).trim()
}

t.test('a port that somebody holds alone is not shared', async (t) => {
  const holder = createServer()
  await once(holder.listen(0, '127.0.0.1'), 'listening')
  t.teardown(() => holder.close())
  // Listening on TCP, as asked the line above.
  const address = `127.0.0.1:${(holder.address() as AddressInfo).port}`
  const env = {
    ...(await environment(await scratch(t), 'http://127.0.0.1:9')),
    MCP_PROXY_DATABASE_URL: await (await cluster()).migrated(),
    MCP_PROXY_KEY_PASSPHRASE: 'the passphrase of all replicas',
    MCP_PROXY_LISTEN: address,
    MCP_PROXY_REUSE_PORT: 'true',
  }
  const { code, output } = await startProcess(t, env).ended
  t.equal(code, 1)
  const why = 'another process listens there without MCP_PROXY_REUSE_PORT=true, or as another user'
  t.match(output, `cannot listen on ${address} (MCP_PROXY_LISTEN): ${why}; stop it first`)
})

t.test('a system on which processes cannot share a port is named as the reason', (t) => {
  const error = Object.assign(new Error('listen ENOTSUP'), { code: 'ENOTSUP' })
  const options = { host: '::1', port: 9443, reusePort: true, variable: 'MCP_PROXY_LISTEN' }
  const { message } = cannotListen(error, options)
  const why = 'this system cannot share a port between processes; remove MCP_PROXY_REUSE_PORT'
  t.equal(message, `cannot listen on ::1:9443 (MCP_PROXY_LISTEN): ${why}`)
  t.end()
})
