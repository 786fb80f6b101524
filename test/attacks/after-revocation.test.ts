import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { Agent } from 'undici'
import type { CallAuthority } from '../../plugins/call-authority.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { egressAgent } from '../../proxy/egress/agent.ts'
import { CallHangup } from '../../proxy/http/open-calls.ts'
import { openUpstream } from '../../proxy/llm/upstream/client.ts'
import { fetchVia } from '../../proxy/mcp/http-get/fetch.ts'
import { parseAllowedHosts } from '../../proxy/mcp/http-get/hop.ts'
import { exchangeHttp } from '../../proxy/mcp/upstream/exchange.ts'
import { agentOf, CHAT, type Identity, type Json, type TestGateway, testGateway } from '../support/gateway.ts'
import { mcpStage, request, tool, toolServer } from '../support/mcp/stage.ts'
import { grantOf } from '../support/permit.ts'

const AT_ONCE = 24
const ROUNDS = 25
const REVOKED = 'authority_revoked'

/** The message that undici publishes as it writes the head of a request. */
interface Sent {
  readonly headers: string
  readonly request: { readonly body: Buffer | null }
}

interface Departure {
  readonly head: string
  readonly body: string
  /** ms of `performance.now()`. */
  readonly at: number
}

/** Notes when each request goes to its connection. */
function departures(t: Test): Departure[] {
  const left: Departure[] = []
  const note = (message: unknown): void => {
    const { headers, request } = message as Sent
    left.push({ head: headers, body: String(request.body), at: performance.now() })
  }
  subscribe('undici:client:sendHeaders', note)
  t.teardown(() => unsubscribe('undici:client:sendHeaders', note))
  return left
}

/** Connections that stand, so that calls come in one moment. */
async function connected(gateway: TestGateway, bot: Identity) {
  const agents = Array.from({ length: AT_ONCE }, () => agentOf(gateway.ca, bot, true))
  await Promise.all(agents.map((agent) => gateway.call(bot, 'GET', '/v1/models', { agent })))
  return agents
}

interface Rounds {
  readonly gateway: TestGateway
  readonly bot: Identity
  /** The capability that the agent must hold for its calls. */
  readonly holds: string
  readonly path: string
  readonly asked: { readonly headers?: Record<string, string>; readonly body: unknown }
  /** Recognises a request that leaves for such a call. One that only takes a call back is none. */
  readonly leavesAs: (departure: Departure) => boolean
  readonly reasonIn: (json: Json) => unknown
}

/**
 * Revokes an agent again and again while it calls, each time at another moment of the calls' way. Nothing of it may
 * leave once the operator has the answer.
 */
async function revokeWhileCalling(t: Test, rounds: Rounds): Promise<void> {
  const { gateway, bot, holds, path, asked, leavesAs, reasonIn } = rounds
  const grant = (capabilities: readonly string[]) =>
    gateway.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities })
  const agents = await connected(gateway, bot)
  const left = departures(t)
  const said = { served: 0, revoked: 0, denied: 0 }
  for (let round = 0; round < ROUNDS; round += 1) {
    const asking = agents.map((agent) => gateway.call(bot, 'POST', path, { ...asked, agent }))
    for (let turns = 0; turns < round; turns += 1) await turn()
    await grant([])
    const answeredAt = performance.now()
    const ends = await Promise.all(asking)
    const late = left.splice(0).filter((departure) => departure.at > answeredAt && leavesAs(departure))
    t.same(late, [], `round ${round}: what left behind the answer`)
    for (const { status, json } of ends) {
      const reason = reasonIn(json)
      if (reason === REVOKED) said.revoked += 1
      else if (status === 200 && reason === undefined) said.served += 1
      else said.denied += 1
    }
    await grant([holds])
  }
  t.comment(JSON.stringify(said))
  for (const agent of agents) agent.destroy()
  await gateway.close()
  const ended = await gateway.rows({ principal: bot.id, status: 'error', limit: 1000 })
  t.equal(ended.length, said.revoked, 'each that was kept here has an outcome row')
  t.ok(ended.every(({ detail }) => detail?.reason === REVOKED))
}

await t.test('H19: behind the answer to a revocation no call leaves for a provider', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const eve = await gateway.enroll('eve', ['llm.chat'])
  let served = 0
  let over = false
  const eveCalls = (async () => {
    const agent = agentOf(gateway.ca, eve, true)
    const body = { model: 'claude-test', max_tokens: 1, messages: [] }
    while (!over) {
      const { status } = await gateway.call(eve, 'POST', '/v1/messages', { body, agent })
      t.equal(status, 200, 'who was not revoked is served')
      served += 1
    }
    agent.destroy()
  })()
  await revokeWhileCalling(t, {
    ...{ gateway: { ...gateway, close: async () => {} }, bot, holds: 'llm.chat', asked: { body: CHAT } },
    ...{ path: '/v1/chat/completions', leavesAs: ({ head }) => head.startsWith('POST /v1/chat/completions') },
    reasonIn: (json) => json.reason,
  })
  over = true
  await eveCalls
  t.ok(served > ROUNDS, `${served} calls of another agent meanwhile`)
})

for (const modern of [false, true]) {
  const era = modern ? 'modern' : 'legacy'
  await t.test(`H19: behind the answer to a revocation no call leaves for a ${era} MCP server`, async (t) => {
    const stage = await mcpStage(t)
    const server = await toolServer(t, [tool('read')])
    const files = await stage.register('files', server, { required_capability: 'files.use' })
    const bot = await stage.enroll('bot', ['files.use'])
    await stage.bind(bot, files)
    await revokeWhileCalling(t, {
      ...{ gateway: stage, bot, holds: 'files.use', path: '/v1/mcp' },
      asked: request('tools/call', { params: { name: 'files.read', arguments: {} }, modern }),
      leavesAs: ({ body }) => body.includes('"tools/call"'),
      reasonIn: (json) => json?.error?.data?.reason,
    })
  })
}

/** An authority that a test overtakes. `stands`: what an operator would say when asked. */
class TestAuthority implements CallAuthority {
  unchanged = true
  stands = true
  asked = 0

  overtake(stands: boolean): void {
    this.unchanged = false
    this.stands = stands
  }

  async confirm(): Promise<void> {
    this.asked += 1
    await turn()
    if (!this.stands) throw new Refusal(REVOKED)
    this.unchanged = true
  }
}

/** A server that notes what reaches it, and how many bytes of bodies. */
async function witness(t: Test) {
  const seen = { heads: 0, bytes: 0 }
  const server = createServer((req, res) => {
    seen.heads += 1
    req.on('data', (chunk: Buffer) => {
      seen.bytes += chunk.length
    })
    req.on('end', () => res.setHeader('content-type', 'text/plain').end('{}'))
    req.on('error', () => {})
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  return { seen, url: `http://127.0.0.1:${port}`, server }
}

type Witness = Awaited<ReturnType<typeof witness>>
type Leave = (to: Witness, authority: CallAuthority, body: Buffer) => Promise<unknown>

/** The reason of the refusal that a thing ends with; null where it does not. */
const reasonOf = (ending: Promise<unknown>): Promise<string | null> =>
  ending.then(
    () => null,
    (error: unknown) => (error instanceof Refusal ? error.reason : String(error)),
  )

const TIMEOUTS = { connectMs: 5_000, firstByteMs: 5_000, idleMs: 5_000 }

/** The doors by which something of a call leaves. */
const DOORS: Readonly<Record<string, (t: Test) => Leave>> = {
  'an LLM provider': (t) => {
    const upstream = openUpstream()
    t.teardown(() => upstream.close())
    return (to, authority, body) =>
      upstream.call({
        permit: grantOf({ action: 'egress_llm_chat', demanded: ['llm.chat'] }, null, authority),
        ...{ method: 'POST', url: new URL(to.url), headers: [], body: [body], timeouts: TIMEOUTS },
        hangup: new CallHangup(),
      })
  },
  'an MCP server': (t) => {
    const agent = egressAgent({ allowPrivate: true, connectMs: 5_000, answerMs: 5_000 })
    t.teardown(() => agent.destroy())
    return async (to, authority, body) => {
      const credentials = { headers: {}, tls: null, traces: [] }
      const connection = { agent, origin: to.url, path: '/', headers: [], credentials, answerMs: 5_000 }
      const hangup = new CallHangup()
      const head = await exchangeHttp(connection, {
        ...{ method: 'POST', headers: [], body, totalMs: 5_000, hangup, authority },
      })
      for await (const piece of head.body) t.ok(piece)
    }
  },
  'a site of http.get': (t) => {
    const agent = new Agent()
    t.teardown(() => agent.destroy())
    return async (to, authority) => {
      const allowed = parseAllowedHosts([])
      const signal = AbortSignal.timeout(5_000)
      const { outcome } = await fetchVia(agent, new URL(to.url), {
        ...{ headers: {}, maxBytes: 100, allowed, signal, authority },
      })
      if (!('text' in outcome)) throw outcome
    }
  },
}

for (const [door, opened] of Object.entries(DOORS)) {
  await t.test(`H19: what waits for its connection to ${door} is asked about once it stands`, async (t) => {
    const leave = opened(t)
    const to = await witness(t)
    const small = Buffer.from('{}')
    const revoked = new TestAuthority()
    const leaving = leave(to, revoked, small)
    // The connection is only just being opened.
    revoked.overtake(false)
    t.equal(await reasonOf(leaving), REVOKED)
    t.equal(to.seen.heads, 0, 'nothing has left')

    const kept = new TestAuthority()
    const other = await witness(t)
    const staying = leave(other, kept, small)
    kept.overtake(true)
    await staying
    t.same([other.seen.heads, kept.asked], [1, 1], 'what still stands goes out, once')

    const before = new TestAuthority()
    before.overtake(false)
    t.equal(await reasonOf(leave(to, before, small)), REVOKED)
    t.equal(to.seen.heads, 0)

    const untouched = new TestAuthority()
    await leave(to, untouched, small)
    t.same([to.seen.heads, untouched.asked], [1, 0], 'where nothing changed nobody is asked')
  })
}

for (const door of ['an LLM provider', 'an MCP server']) {
  await t.test(`H19: the rest of a long body does not go to ${door} once its call is revoked`, async (t) => {
    const leave = DOORS[door]?.(t)
    const to = await witness(t)
    const authority = new TestAuthority()
    const body = Buffer.alloc(8 * 1_048_576, 'a')
    const begun = once(to.server, 'request')
    const leaving = leave?.(to, authority, body) ?? Promise.resolve()
    const failed = reasonOf(leaving)
    await begun
    authority.overtake(false)
    t.equal(await failed, REVOKED)
    t.ok(to.seen.bytes < body.length, `${to.seen.bytes} bytes had come`)
  })
}

await t.test(
  'H19: a session at a legacy server that a revoked call was opening opens for another',
  async (t) => {
    const stage = await mcpStage(t)
    const server = await toolServer(t, [tool('read'), tool('write')])
    const files = await stage.register('files', server, {
      tool_capabilities: { read: 'files.read', write: 'files.write' },
    })
    const bot = await stage.enroll('bot', ['files.read', 'files.write'])
    await stage.bind(bot, files)
    const writing = stage.callTool(bot, 'files.write')
    const reading = stage.callTool(bot, 'files.read')
    await stage.grant(bot, ['files.read'])
    const [{ json: written }, { json: read }] = await Promise.all([writing, reading])
    t.ok(read.result, `the one that is still allowed is served: ${JSON.stringify(read.error)}`)
    t.comment(`the other one: ${JSON.stringify(written.error ?? 'had left before')}`)
  },
)
