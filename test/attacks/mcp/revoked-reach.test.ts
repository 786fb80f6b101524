import t from 'tap'
import { agentOf, type Identity, type Json } from '../../support/gateway.ts'
import { openStream } from '../../support/mcp/open-stream.ts'
import { type Act, rawMcp, sse } from '../../support/mcp/raw-upstream.ts'
import { legacyWith, mcpStage, type Stage, tool, toolServer } from '../../support/mcp/stage.ts'
import { eventually } from '../../support/settled.ts'

const TICK = { jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: 'tick' } }
const ticking: Act = (res) => {
  sse(res)(TICK)
}

interface Ground {
  readonly stage: Stage
  readonly bot: Identity
  readonly resource: Json
}

const patch = ({ stage, resource }: Ground, fields: Json) =>
  stage.admin('PATCH', `/v1/admin/mcp-resources/${resource.resource_id}`, fields)

/** What an operator does to a resource that ends what a principal may do there. */
const CHANGES: readonly (readonly [what: string, change: (ground: Ground) => Promise<unknown>])[] = [
  ['resource is disabled', (ground) => patch(ground, { enabled: false })],
  ['resource demands another capability', (ground) => patch(ground, { required_capability: 'other.use' })],
  [
    'tool demands another capability',
    (ground) => patch(ground, { tool_capabilities: { slow: 'other.use' } }),
  ],
  [
    'resource is deleted',
    ({ stage, resource }) => stage.admin('DELETE', `/v1/admin/mcp-resources/${resource.resource_id}`),
  ],
  [
    'method is demanded of every caller, and was taken from this one',
    ({ stage, bot }) => stage.grant(bot, ['slow.use']),
  ],
]

for (const [what, change] of CHANGES) {
  await t.test(`M-06: an answer that is streaming when the ${what} is cut`, async (t) => {
    const files = { '60-mcp.yaml': 'plugin: mcp\nenforce_tools_call: true\n' }
    const stage = await mcpStage(t, { files })
    const server = await toolServer(t, [tool('slow')], ticking)
    const resource = await stage.register('slow', server, { required_capability: 'slow.use' })
    const bot = await stage.enroll('bot', ['slow.use', 'mcp.tools.call'])
    await stage.bind(bot, resource)
    const stream = await openStream(stage, bot, 'tools/call', { params: { name: 'slow' } })
    t.match(await stream.next(), { method: 'notifications/message' })
    await change({ stage, bot, resource })
    t.notOk(await stream.clean, 'it did not end as if it were whole')
    const rows = await eventually(
      () => stage.rows({ action: 'mcp_tools_call', status: 'truncated' }),
      (found) => found.length === 1,
    )
    t.match(rows, [{ detail: { ending: 'revoked' } }])
    stream.hangUp()
  })
}

await t.test('M-06: a change that leaves the caller what it needs cuts nothing', async (t) => {
  const stage = await mcpStage(t)
  const open: ((message: Json) => void)[] = []
  const server = await toolServer(t, [tool('slow')], (res) => {
    const send = sse(res)
    open.push(send)
    send(TICK)
  })
  const resource = await stage.register('slow', server, { required_capability: 'slow.use' })
  const [bot, eve] = [await stage.enroll('bot', ['slow.use']), await stage.enroll('eve', ['slow.use'])]
  await stage.bind(bot, resource)
  const { binding_id: evesOwn } = await stage.bind(eve, resource)
  const stream = await openStream(stage, bot, 'tools/call', { params: { name: 'slow' } })
  const evesStream = await openStream(stage, eve, 'tools/call', { params: { name: 'slow' } })
  await Promise.all([stream.next(), evesStream.next()])
  await patch(
    { stage, bot, resource },
    { name: 'renamed', description: 'x', tool_capabilities: { other: 'x.y' } },
  )
  await stage.admin('DELETE', `/v1/admin/mcp-resources/bindings/${evesOwn}`)
  t.notOk(await evesStream.clean, 'all that are open have been asked about')
  for (const send of open) send(TICK)
  t.match(await stream.next(), TICK)
  stream.hangUp()
  evesStream.hangUp()
})

async function asked(t: Parameters<typeof mcpStage>[0], capabilities: Json) {
  const stage = await mcpStage(t)
  const server = await rawMcp(t)
  const answers: Json[] = []
  const plain = legacyWith([tool('slow')], (res) => {
    sse(res)({ jsonrpc: '2.0', id: 0, method: 'elicitation/create', params: {} })
  })
  server.act = (res, told) => {
    if (told.message.method !== undefined || told.method === 'DELETE') return plain(res, told)
    answers.push(told.message)
    res.writeHead(202).end()
  }
  const resource = await stage.register('slow', server, { required_capability: 'slow.use' })
  const bot = await stage.enroll('bot', ['slow.use'])
  const { binding_id } = await stage.bind(bot, resource)
  const params = { protocolVersion: '2025-11-25', capabilities, clientInfo: { name: 'x', version: '1' } }
  const { headers: given } = await stage.rpc(bot, 'initialize', { params })
  const headers = { 'mcp-session-id': String(given['mcp-session-id']) }
  const stream = await openStream(stage, bot, 'tools/call', { headers, params: { name: 'slow' } })
  const answer = (id: string, agent = agentOf(stage.ca, bot)) =>
    stage.call(bot, 'POST', '/v1/mcp', { headers, agent, body: { jsonrpc: '2.0', id, result: {} } })
  return { stage, resource, bot, binding_id, stream, answer, answers }
}

await t.test(
  'threat 6: an answer passes the same gate as the call, as it stands when it comes',
  async (t) => {
    for (const [what, code, change] of [
      [
        'binding',
        -32000,
        ({ stage }: Ground, id: string) => stage.admin('DELETE', `/v1/admin/mcp-resources/bindings/${id}`),
      ],
      ['resource', -32000, (ground: Ground) => patch(ground, { enabled: false })],
      ['capability', -32005, (ground: Ground) => patch(ground, { required_capability: 'other.use' })],
    ] as const) {
      const { stream, answer, answers, binding_id, ...ground } = await asked(t, { elicitation: {} })
      const { id } = await stream.next()
      await change(ground, binding_id)
      const { json } = await answer(id)
      // Where the stream was cut first, there is no such question any more.
      t.ok([code, -32600].includes(json.error?.code), `${what}: ${JSON.stringify(json)}`)
      t.same(answers, [], what)
      stream.hangUp()
    }
  },
)

await t.test('threat 6: of many answers at once to one question, one reaches the server', async (t) => {
  const { stage, bot, stream, answer, answers } = await asked(t, { elicitation: {} })
  const { id } = await stream.next()
  // Connections that stand, so that the answers come in one moment.
  const agents = Array.from({ length: 10 }, () => agentOf(stage.ca, bot, true))
  await Promise.all(agents.map((agent) => stage.call(bot, 'GET', '/v1/models', { agent })))
  const given = await Promise.all(agents.map((agent) => answer(id, agent)))
  t.equal(given.filter(({ status }) => status === 202).length, 1)
  t.equal(answers.length, 1)
  for (const agent of agents) agent.destroy()
  stream.hangUp()
})

await t.test('nobody is asked what he has not said that he can be asked', async (t) => {
  const { stream, answers } = await asked(t, { sampling: {} })
  const declined = await eventually(
    async () => answers,
    (found) => found.length > 0,
  )
  t.match(declined, [{ id: 0, error: { code: -32601 } }])
  stream.hangUp()
})
