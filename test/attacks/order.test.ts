import fc from 'fast-check'
import t from 'tap'
import { chainOf, uncovered } from '../support/authority.ts'
import {
  type Asked,
  agentOf,
  CHAT,
  type Identity,
  type Json,
  type TestGateway,
  testGateway,
} from '../support/gateway.ts'
import { filesStage, request, type Stage } from '../support/mcp/stage.ts'

const CONNECTIONS = 24
const REVOCATIONS = 25

/** Calls on busy connections, one after the other on each, until told to stop; resolves with the statuses. */
function busy(connections: number, call: (on: number) => Promise<number>) {
  let going = true
  const statuses = new Map<number, number>()
  const work = Array.from({ length: connections }, async (_, on) => {
    while (going) {
      const status = await call(on)
      statuses.set(status, (statuses.get(status) ?? 0) + 1)
    }
  })
  return {
    statuses,
    stop: async () => {
      going = false
      await Promise.all(work)
    },
  }
}

function chatOn(gateway: TestGateway, who: Identity, connections: number) {
  const agents = Array.from({ length: connections }, () => agentOf(gateway.ca, who, true))
  const send = async (on: number, path: string, asked: Asked): Promise<number> => {
    const agent = agents[on]
    if (!agent) throw new Error('there is no such connection')
    return (await gateway.call(who, 'POST', path, { ...asked, agent })).status
  }
  return {
    send,
    call: (on: number) => send(on, '/v1/chat/completions', { body: CHAT }),
    close: () => {
      for (const agent of agents) agent.destroy()
    },
  }
}

const granted = (gateway: TestGateway, { id }: Identity, capabilities: readonly string[]) =>
  gateway.admin('PATCH', `/v1/admin/agents/${id}/capabilities`, { capabilities })

await t.test('B1 no allowed row stands behind the row that took the capability away', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const chat = chatOn(gateway, bot, CONNECTIONS)
  const load = busy(CONNECTIONS, chat.call)
  const seen = () => load.statuses.get(200) ?? 0
  for (let round = 0; round < REVOCATIONS; round += 1) {
    const before = seen()
    // Until every connection is busy with allowed calls again.
    while (seen() < before + CONNECTIONS) await chat.call(0)
    await granted(gateway, bot, [])
    await granted(gateway, bot, ['llm.chat'])
  }
  await load.stop()
  chat.close()
  const rows = await chainOf(gateway)
  t.equal(rows.filter(({ action }) => action === 'agent.capabilities_patched').length, 2 * REVOCATIONS)
  t.equal(uncovered(rows).length, 0, 'allowed rows behind a revocation')
  t.ok(rows.some(({ status }) => status === 'denied'))
})

await t.test(
  'B1 a call that is overtaken by a change that leaves it its capability is answered',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const chat = chatOn(gateway, bot, 8)
    const load = busy(8, chat.call)
    for (let round = 0; round < 10; round += 1) {
      await granted(gateway, bot, round % 2 === 0 ? ['llm.chat', 'files.use'] : ['llm.chat'])
      await chat.call(0)
    }
    await load.stop()
    chat.close()
    t.strictSame([...load.statuses.keys()], [200])
  },
)

const HELD = ['llm.chat', 'files.use', 'files.write', 'mcp.tools.list']

type Step = (stage: Stage) => Promise<unknown>

await t.test(
  'B1 a token that is asked for while its holder changes is given, for what is left to the holder',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const { send, close } = chatOn(gateway, bot, 8)
    const asked = (body: string) => (on: number) =>
      send(on, '/v1/auth/token', { body, headers: { 'content-type': 'application/x-www-form-urlencoded' } })
    const wide = 'grant_type=client_credentials'
    const rounds = async (call: (on: number) => Promise<number>): Promise<readonly number[]> => {
      const statuses: number[] = []
      for (let round = 0; round < 8; round += 1) {
        const all = Array.from({ length: 8 }, (_, on) => call(on))
        const capabilities = round % 2 === 0 ? ['llm.chat', 'files.use'] : ['llm.chat']
        statuses.push(...(await Promise.all([granted(gateway, bot, capabilities).then(() => 0), ...all])))
      }
      return [...new Set(statuses)].filter((status) => status > 0).toSorted((a, b) => a - b)
    }
    t.strictSame(await rounds(asked(wide)), [200])
    t.strictSame(await rounds(asked(`${wide}&scope=files.use`)), [200, 400], 'what is gone is refused')
    close()
  },
)

await t.test(
  'B1 whatever operators do between calls, the ledger alone covers each allowed row',
  async (t) => {
    const { stage, files, bot } = await filesStage(t, HELD)
    const resource = `/v1/admin/mcp-resources/${files.resource_id}`
    let binding: string | null = (await stage.bind(bot, files)).binding_id
    const change: fc.Arbitrary<Step> = fc.oneof(
      fc.subarray(HELD).map((held) => () => granted(stage, bot, held)),
      fc.constant(() => stage.admin('DELETE', `/v1/admin/agents/${bot.id}`)),
      fc.constant(() => stage.admin('POST', `/v1/admin/agents/${bot.id}/reactivate`)),
      fc.constant(async () => {
        if (binding === null) binding = (await stage.bind(bot, files)).binding_id
        else {
          await stage.admin('DELETE', `/v1/admin/mcp-resources/bindings/${binding}`)
          binding = null
        }
      }),
      fc.boolean().map((enabled) => () => stage.admin('PATCH', resource, { enabled })),
      fc
        .constantFrom('files.use', 'files.write', 'files.other')
        .map((required_capability) => () => stage.admin('PATCH', resource, { required_capability })),
      // What gives all of it back: most of what is drawn takes something away.
      fc.constant(async () => {
        await stage.admin('POST', `/v1/admin/agents/${bot.id}/reactivate`)
        await granted(stage, bot, HELD)
        await stage.admin('PATCH', resource, { enabled: true, required_capability: 'files.use' })
        if (binding === null) binding = (await stage.bind(bot, files)).binding_id
      }),
    )
    const [steps = []] = fc.sample(fc.array(change, { minLength: 200, maxLength: 200 }), 1)
    const chat = chatOn(stage, bot, 5)
    const rpc =
      (method: string, params: Json, at = '') =>
      (on: number) =>
        chat.send(on, `/v1/mcp${at}`, request(method, { params }))
    const calls = [
      chat.call,
      rpc('tools/call', { name: 'files.read' }),
      rpc('tools/call', { name: 'read' }, '/files'),
      rpc('tools/call', { name: 'files.write' }),
      rpc('tools/list', {}, '/files'),
    ]
    const load = busy(5, (on) => (calls[on % calls.length] ?? chat.call)(on))
    for (const step of steps) await step(stage)
    await load.stop()
    chat.close()
    const rows = await chainOf(stage)
    t.same(
      uncovered(rows).map(({ seq, action, tool }) => ({ seq, action, tool })),
      [],
    )
    const allowed = new Set(rows.filter(({ status }) => status === 'allowed').map(({ action }) => action))
    t.strictSame([...allowed].toSorted(), ['egress_llm_chat', 'mcp_tools_call', 'mcp_tools_list'])
  },
)
