import t from 'tap'
import { agentOf, type Json } from '../../support/gateway.ts'
import { openStream } from '../../support/mcp/open-stream.ts'
import { type Act, result, sendJson, sse } from '../../support/mcp/raw-upstream.ts'
import { legacyWith, mcpStage, request, type Stage, tool, toolServer } from '../../support/mcp/stage.ts'
import { eventually } from '../../support/settled.ts'

const TOOLS = [tool('go')]
const NOTE = { jsonrpc: '2.0', method: 'notifications/message', params: {} }

async function behind(t: Parameters<typeof mcpStage>[0]) {
  const stage = await mcpStage(t)
  const server = await toolServer(t, TOOLS)
  const resource = await stage.register('up', server)
  const bot = await stage.enroll('bot', ['mcp.tools.call', 'http.get'])
  await stage.bind(bot, resource)
  const act = (with_: Act): void => {
    server.act = legacyWith(TOOLS, with_)
  }
  return { stage, server, resource, bot, act }
}

/** The lines of MCP calls, once there are so many: they follow their answers. */
const linesOf = ({ log }: Stage, count: number): Promise<readonly Json[]> =>
  eventually(
    () => log.filter(({ path }) => path === '/v1/mcp'),
    (lines) => lines.length >= count,
  )

const metric = async ({ admin }: Stage, line: string): Promise<boolean> =>
  (await admin('GET', '/metrics')).text.split('\n').includes(line)

await t.test(
  'a failed MCP call is told in the log by reason, tool, resource and cause, whenever it failed',
  async (t) => {
    const { stage, bot, act } = await behind(t)
    act((res) => void res.writeHead(500).end('stack trace'))
    const { text } = await stage.callTool(bot, 'up.go')
    t.notMatch(text, /upstream failed|HTTP status/, 'the cause is not for the caller')

    act((res) => {
      sse(res)(NOTE)
      res.write('\n', () => res.destroy())
    })
    const stream = await openStream(stage, bot, 'tools/call', { params: { name: 'up.go' } })
    await stream.next()
    const last = await stream.next()
    t.match(last, { error: { code: -32003 } })
    t.notMatch(JSON.stringify(last), /upstream failed|cut short/)
    t.ok(await stream.clean)
    stream.hangUp()

    act((res, told) => sendJson(res, result(told, { content: [] })))
    await stage.callTool(bot, 'up.go')

    const [before, within, fine] = await linesOf(stage, 3)
    const line = { level: 50, reason: 'mcp_failed', tool: 'up.go', resource: 'up' }
    t.match(before, { ...line, err: { message: /500/ } })
    t.match(within, { ...line, status: 200, ending: 'complete', err: { message: /cut short/ } })
    t.match(fine, { level: 30, tool: 'up.go', resource: 'up' })
    t.notOk('reason' in fine || 'err' in fine)
  },
)

await t.test(
  'what an upstream told before it failed reaches the caller, also where it came in one piece',
  async (t) => {
    const { stage, bot, act } = await behind(t)
    act((res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.end(`data: ${JSON.stringify(NOTE)}\n\ndata: ${JSON.stringify(NOTE)}\n\ndata: {"jsonrpc"\n\n`)
    })
    const stream = await openStream(stage, bot, 'tools/call', { params: { name: 'up.go' } })
    t.same([await stream.next(), await stream.next()], [NOTE, NOTE])
    t.match(await stream.next(), { error: { code: -32003 } })
    t.ok(await stream.clean)
    stream.hangUp()
  },
)

await t.test('a call that failed after it was allowed has its resource in the outcome row', async (t) => {
  const { stage, bot, act } = await behind(t)
  const gone = Promise.withResolvers<void>()
  act((res) => void res.destroy())
  await stage.callTool(bot, 'up.go')
  act((res) => {
    sse(res)(NOTE)
    res.write('\n', () => res.destroy())
  })
  await stage.callTool(bot, 'up.go')
  // Says nothing, so that the caller leaves before there is any answer.
  const asked = Promise.withResolvers<void>()
  act((res) => {
    res.once('close', gone.resolve)
    asked.resolve()
  })
  const agent = agentOf(stage.ca, bot)
  const sent = request('tools/call', { params: { name: 'up.go' } })
  const leaving = stage.call(bot, 'POST', '/v1/mcp', { ...sent, agent })
  await asked.promise
  agent.destroy()
  await t.rejects(leaving)
  await gone.promise
  const rows = await eventually(
    () => stage.rows({ action: 'mcp_tools_call', order: 'asc', limit: 100 }),
    (all) => all.length === 6,
  )
  const ended = rows.filter(({ status }) => status !== 'allowed')
  t.match(ended, [
    { status: 'error', provider: 'up', detail: { reason: 'mcp_unreachable' } },
    { status: 'error', provider: 'up', detail: { reason: 'mcp_failed' } },
    { status: 'truncated', provider: 'up', detail: { reason: 'client_gone' } },
  ])
})

await t.test(
  'docs/protocol.md#metrics MCP calls are counted by resource and by how they ended',
  async (t) => {
    const { stage, bot, act } = await behind(t)
    await stage.callTool(bot, 'up.go')
    await stage.callTool(bot, 'up.go')
    act((res) => void res.destroy())
    await stage.callTool(bot, 'up.go')
    act((res, told) => sendJson(res, result(told, { content: [], isError: true })))
    await stage.callTool(bot, 'up.go')
    await stage.callTool(bot, 'http.get', { url: 'http://127.0.0.1/' })
    act((res) => {
      sse(res)(NOTE)
    })
    const stream = await openStream(stage, bot, 'tools/call', { params: { name: 'up.go' } })
    await stream.next()
    stream.hangUp()
    await linesOf(stage, 6)
    // Refused at the door: these reached nobody.
    await stage.grant(bot, [])
    await stage.callTool(bot, 'up.go')
    await stage.callTool(bot, 'up.other')
    await linesOf(stage, 8)
    const { text } = await stage.admin('GET', '/metrics')
    t.same(
      text
        .split('\n')
        .filter((line) => line.startsWith('sallyport_mcp_calls_total'))
        .toSorted(),
      [
        'sallyport_mcp_calls_total{resource="http.get",result="error"} 1',
        'sallyport_mcp_calls_total{resource="up",result="error"} 2',
        'sallyport_mcp_calls_total{resource="up",result="success"} 2',
        'sallyport_mcp_calls_total{resource="up",result="truncated"} 1',
      ],
    )
  },
)

await t.test(
  'docs/protocol.md#metrics what an operator has to look at is counted at each scrape',
  async (t) => {
    const { stage, server, resource } = await behind(t)
    t.ok(await metric(stage, 'sallyport_mcp_tools_quarantined 0'))
    t.ok(await metric(stage, 'sallyport_mcp_resources_unreadable 0'))
    server.act = legacyWith([tool('go', { description: 'Other.' }), tool('fresh')])
    await stage.refresh(resource)
    t.ok(await metric(stage, 'sallyport_mcp_tools_quarantined 2'))
    server.act = (res) => void res.destroy()
    await stage.refresh(resource)
    t.ok(await metric(stage, 'sallyport_mcp_resources_unreadable 1'))
    await stage.admin('PATCH', `/v1/admin/mcp-resources/${resource.resource_id}`, { enabled: false })
    t.ok(await metric(stage, 'sallyport_mcp_resources_unreadable 0'), 'one that is switched off is not read')
  },
)
