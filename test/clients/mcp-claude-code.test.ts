import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { FixtureResponse, LLMock } from '@copilotkit/aimock'
import t, { type Test } from 'tap'
import { readIdentity } from '../../scripts/client/identity/identity.ts'
import { startSidecar } from '../../scripts/client/sidecar.ts'
import { clientSession } from '../../scripts/client/signing/session.ts'
import { shellExports } from '../../scripts/verbs/env.ts'
import { homeOf, installed, sectionOf } from '../support/clients/alone.ts'
import { type McpThrough, mcpThrough } from '../support/clients/mcp-through.ts'
import { mockProvider } from '../support/clients/sdk.ts'
import { type Json, scratch } from '../support/gateway.ts'
import { startFilesystem, startMemory } from '../support/mcp/servers.ts'

const { entry, skip } = installed('@anthropic-ai/claude-code', 'cli-wrapper.cjs')

const HELD = ['llm.chat', 'mcp.tools.list', 'memory.use', 'files.use', 'vault.use']

/** What the model says: which tool to call next, with what, or that it is done. */
type Said = { readonly call: string; readonly with: Json } | 'done'

interface Asked {
  /** The lines that point Claude Code at the gateway. */
  readonly lines: string
  /** The MCP servers it is told of: their URLs by name. */
  readonly servers: Readonly<Record<string, string>>
  /** What the model says after so many tools have answered. */
  readonly says: (answered: number) => Said | Promise<Said>
}

interface Heard {
  readonly tools: readonly string[]
  /** The state of each MCP server by its name. */
  readonly servers: Readonly<Record<string, string>>
  /** What the model was told by each tool, in turn. */
  readonly answers: readonly string[]
}

/** Runs Claude Code for one prompt, whose model is a mock that calls tools. */
async function ask(t: Test, mock: LLMock, { lines, servers, says }: Asked): Promise<Heard> {
  let answers: readonly string[] = []
  mock.prependFixture({
    match: { userMessage: /do as you are told/ },
    response: async ({ messages }): Promise<FixtureResponse> => {
      answers = messages.filter(({ role }) => role === 'tool').map(({ content }) => JSON.stringify(content))
      const said = await says(answers.length)
      if (said === 'done') return { content: 'All done.' }
      return { toolCalls: [{ name: said.call, arguments: JSON.stringify(said.with) }] }
    },
  })
  const home = await homeOf(t, lines)
  const mcpServers = Object.fromEntries(
    Object.entries(servers).map(([name, url]) => [name, { type: 'http', url }]),
  )
  await home.put('', 'mcp.json', JSON.stringify({ mcpServers }))
  const { code, out, err } = await home.run(
    entry,
    [
      ...[
        '-p',
        'do as you are told',
        '--model',
        'claude-test',
        '--output-format',
        'stream-json',
        '--verbose',
      ],
      ...['--mcp-config', 'mcp.json', '--strict-mcp-config'],
      ...[
        '--allowedTools',
        Object.keys(servers)
          .map((name) => `mcp__${name}`)
          .join(','),
      ],
    ],
    ['CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1'],
  )
  t.equal(code, 0, err)
  const events: Json[] = out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  const { tools, mcp_servers } = events.find(({ subtype }) => subtype === 'init')
  return {
    tools: tools.filter((name: string) => name.startsWith('mcp__')),
    servers: Object.fromEntries(mcp_servers.map(({ name, status }: Json) => [name, status])),
    answers,
  }
}

async function stageOf(t: Test, proven: boolean): Promise<{ way: McpThrough; mock: LLMock; note: string }> {
  const { mock, files } = await mockProvider(t)
  const directory = await scratch(t)
  const note = join(directory, 'note.txt')
  await writeFile(note, 'A note that only files may read.')
  const [memory, filesystem] = await Promise.all([startMemory(t), startFilesystem(t, directory)])
  const way = await mcpThrough(t, HELD, { proven, files })
  await way.behind('memory', memory)
  await way.behind('files', filesystem)
  await way.behind('vault', memory, { bound: false })
  return { way, mock, note }
}

await t.test(
  'Claude Code with a client certificate lists and calls the tools of two servers, and not those of a third',
  { skip },
  async (t) => {
    const { way, mock, note } = await stageOf(t, false)
    const { stage, directory } = way
    const lines = shellExports({ port: 1, identity: { directory, url: stage.url }, direct: true })
    const entity = { name: 'Ada', entityType: 'person', observations: ['counts'] }
    // It writes an underscore for the dot; what it sends is the name as it was listed.
    const read = { call: 'mcp__sallyport__files_read_text_file', with: { path: note } }
    const { tools, servers, answers } = await ask(t, mock, {
      lines: sectionOf(lines, 'Claude Code with the certificate'),
      servers: { sallyport: `${stage.url}/v1/mcp` },
      says: async (answered) => {
        if (answered === 0) {
          return { call: 'mcp__sallyport__memory_create_entities', with: { entities: [entity] } }
        }
        if (answered === 1) return read
        if (answered === 2) return { call: 'mcp__sallyport__vault_read_graph', with: {} }
        if (answered > 3) return 'done'
        await way.unbind('files')
        return read
      },
    })
    t.same(servers, { sallyport: 'connected' })
    t.ok(tools.includes('mcp__sallyport__memory_read_graph') && tools.includes(read.call))
    t.same(
      tools.filter((name) => !/^mcp__sallyport__(memory|files)_/.test(name)),
      [],
      'no third',
    )
    const [created, text, unseen, unbound] = answers
    t.match(created, /Ada/)
    t.match(text, /A note that only files may read/)
    t.match(unseen, /No such tool/, 'what it does not see it cannot call')
    t.match(unbound, /no binding/, 'nor what it saw a moment ago')
    const decisions = await way.decisions('2026-07-28')
    t.ok(decisions.includes('mcp_tools_list allowed'))
    t.same(
      decisions.filter((decision) => !decision.startsWith('mcp_')),
      ['memory.create_entities allowed', 'files.read_text_file allowed', 'files.read_text_file denied'],
    )
  },
)

await t.test(
  'Claude Code through the sidecar proves every message, and a door that it is not bound to stays shut',
  { skip },
  async (t) => {
    const { way, mock } = await stageOf(t, true)
    const { directory } = way
    const session = clientSession(readIdentity(directory))
    const sidecar = await startSidecar(session, '127.0.0.1', 0)
    t.teardown(() => sidecar.close(0))
    const lines = shellExports({ port: Number(new URL(sidecar.url).port), identity: null, direct: false })
    const { tools, servers, answers } = await ask(t, mock, {
      lines,
      servers: { memory: `${sidecar.url}/v1/mcp/memory`, vault: `${sidecar.url}/v1/mcp/vault` },
      says: (answered) => (answered > 0 ? 'done' : { call: 'mcp__memory__read_graph', with: {} }),
    })
    t.same(servers, { memory: 'connected', vault: 'failed' })
    t.ok(tools.includes('mcp__memory__read_graph'))
    t.same(
      tools.filter((name) => !name.startsWith('mcp__memory__')),
      [],
    )
    t.match(answers, [/entities/])
    const decisions = await way.decisions('2026-07-28')
    t.ok(decisions.includes('memory.read_graph allowed'))
    t.ok(decisions.includes('mcp_request denied'), 'knocking at the other door')
  },
)
