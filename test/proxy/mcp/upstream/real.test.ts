import t from 'tap'
import type { McpResource } from '../../../../db/mcp/resources.ts'
import type { McpUpstream, UpstreamCall } from '../../../../proxy/mcp/upstream/client.ts'
import type { UpstreamReading } from '../../../../proxy/mcp/upstream/reading.ts'
import { startFixture } from '../../../support/mcp/fixture.ts'
import { resourceAt, upstreamFor } from '../../../support/mcp/raw-upstream.ts'
import { startEverything, startMemory } from '../../../support/mcp/servers.ts'
import { callOf, messagesOf, values } from '../../../support/mcp/upstream-calls.ts'
import { READING, TOOL_CALL } from '../../../support/permit.ts'

const LIMITS = { maxMessageBytes: 4_000_000, maxAnswerBytes: 16_000_000 }

const read = (upstream: McpUpstream, url: string): Promise<UpstreamReading> =>
  upstream.read(READING, resourceAt(url, { era: null }), new AbortController().signal)

const names = ({ tools }: UpstreamReading): unknown[] => tools.map(({ name }) => name)

const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {},
  progressToken: 7,
}

/** A call of that tool, in that era. */
function toolCall(url: string, era: McpResource['era'], tool: string, args: object = {}): UpstreamCall {
  return callOf(url, {
    resource: resourceAt(url, { era }),
    params: JSON.stringify({
      name: tool,
      arguments: args,
      _meta: era === 'modern' ? META : { progressToken: 7 },
    }),
    headers: { 'mcp-name': tool },
    client: { capabilities: { elicitation: {} }, clientInfo: { name: 'claude', version: '2' } },
  })
}

await t.test('server-everything, of the legacy era, is read and called', async (t) => {
  const { url } = await startEverything(t)
  const upstream = upstreamFor(t, LIMITS)
  const reading = await read(upstream, url)
  t.match(reading, { era: 'legacy', protocolVersion: '2025-11-25' })
  t.match(reading.facts, { serverInfo: { name: 'mcp-servers/everything' }, capabilities: { prompts: {} } })
  for (const name of ['echo', 'get-tiny-image', 'trigger-sampling-request', 'trigger-elicitation-request']) {
    t.ok(names(reading).includes(name), name)
  }
  t.notOk(names(reading).includes('get-roots-list'), 'no caller could have it called')
  const echo = await upstream.call(toolCall(url, 'legacy', 'echo', { message: 'grüezi' }))
  t.match(await values(echo), [{ result: { content: [{ type: 'text', text: 'Echo: grüezi' }] } }])
  const working = { duration: 0.2, steps: 2 }
  const long = await values(
    await upstream.call(toolCall(url, 'legacy', 'trigger-long-running-operation', working)),
  )
  t.match(long.slice(0, -1), [
    { method: 'notifications/progress', params: { progressToken: 7, progress: 1 } },
  ])
  t.match(long.at(-1), { result: { content: [{ type: 'text' }] } })
})

await t.test(
  'server-memory behind mcp-proxy, which speaks both eras, is read and called in the modern one',
  async (t) => {
    const { url } = await startMemory(t)
    const upstream = upstreamFor(t, LIMITS)
    const reading = await read(upstream, url)
    t.match(reading, { era: 'modern', facts: { serverInfo: { name: 'memory-server' } } })
    t.ok(names(reading).includes('read_graph'))
    const graph = await upstream.call(toolCall(url, 'modern', 'read_graph'))
    t.match((await values(graph)).at(-1), { result: { structuredContent: { entities: [], relations: [] } } })
  },
)

await t.test('a server of the official SDK is called in either era', async (t) => {
  const { url, requests } = await startFixture(t)
  const upstream = upstreamFor(t, LIMITS)
  t.match(await read(upstream, url), { era: 'modern', facts: { serverInfo: { name: 'fixture' } } })
  for (const era of ['modern', 'legacy'] as const) {
    await t.test(era, async (t) => {
      const text = await values(await upstream.call(toolCall(url, era, 'test_simple_text')))
      t.match(text, [{ result: { content: [{ type: 'text' }] } }])
      const progress = await values(await upstream.call(toolCall(url, era, 'test_tool_with_progress')))
      t.match(progress, [
        { method: 'notifications/progress', params: { progressToken: 7 } },
        { method: 'notifications/progress' },
        { method: 'notifications/progress' },
        { result: { content: [{ type: 'text' }] } },
      ])
      const failed = await values(await upstream.call(toolCall(url, era, 'test_error_handling')))
      t.match(failed, [{ result: { isError: true } }])
    })
  }
  t.ok(requests.length > 6)
})

await t.test('what a server of the official SDK asks is answered in its session', async (t) => {
  const { url } = await startFixture(t)
  const upstream = upstreamFor(t, LIMITS)
  const call = toolCall(url, 'legacy', 'test_elicitation', { message: 'Who are you?' })
  const asked: unknown[] = []
  for await (const { value } of messagesOf(await upstream.call(call))) {
    asked.push(value.method ?? value.result)
    if (value.method !== 'elicitation/create') continue
    const response = { jsonrpc: '2.0', id: value.id, result: { action: 'decline' } }
    await upstream.respond(TOOL_CALL, call.resource, call.owner, JSON.stringify(response))
  }
  t.match(asked, ['elicitation/create', { content: [{ type: 'text', text: /decline/ }] }])
})

await t.test('a session that a server of the official SDK has closed is opened anew', async (t) => {
  const { url, requests } = await startFixture(t)
  const upstream = upstreamFor(t, LIMITS)
  const call = toolCall(url, 'legacy', 'test_simple_text')
  await values(await upstream.call(call))
  const session = requests.at(-1)?.session ?? ''
  await fetch(url, { method: 'DELETE', headers: { 'mcp-session-id': session } })
  t.match(await values(await upstream.call(call)), [{ result: { content: [{ type: 'text' }] } }])
})
