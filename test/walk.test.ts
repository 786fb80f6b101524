import { readFileSync } from 'node:fs'
import { Agent } from 'node:https'
import { join } from 'node:path'
import t from 'tap'
import { signedInAs } from './support/dashboard/signed-in.ts'
import { ENGINE } from './support/db/engine.ts'
import { judgedFacts } from './support/judged-facts.ts'
import { mcpStage, tool, toolServer } from './support/mcp/stage.ts'
import { ownerOnTheMachine } from './support/operators.ts'
import { walkOf } from './support/walk.ts'

// The way of one call, as docs/architecture.md draws it: a reader who follows it must not get lost.
const MAX_LLM_FILES = 42
const MAX_MCP_FILES = 51
const MAX_CHANGE_FILES = 47
const MAX_PAGE_FILES = 64

/** The files that a section of the page names. */
function namedIn(heading: string): readonly string[] {
  const page = readFileSync(join(import.meta.dirname, '../docs/architecture.md'), 'utf8')
  const section = page.split(/^## /m).find((text) => text.startsWith(heading)) ?? ''
  return [...section.matchAll(/`((?:proxy|plugins|db|certs)\/[\w./-]+\.ts)`/g)].map(([, file = '']) => file)
}

/** The files that construct, and serve no request. */
const WIRING = /^proxy\/(?:wiring\/|pipelines\.ts$|(?:.+\/)?routes\.ts$)/

// The ledger's thread is not measured, and the page names where it begins.
const OF_THE_THREAD = ['db/sqlite/ledger/writer.ts']

const skip = ENGINE === 'sqlite' ? false : 'the page draws the walk of one process on SQLite'

await t.test('a call on a kept connection goes through few files', { skip }, async (t) => {
  const stage = await mcpStage(t)
  const server = await toolServer(t, [tool('read')])
  const files = await stage.register('files', server, { required_capability: 'files.use' })
  const bot = await stage.enroll('bot', ['llm.chat', 'files.use'])
  await stage.bind(bot, files)
  const agent = new Agent({ ca: stage.ca, cert: bot.cert, key: bot.key, keepAlive: true, maxSockets: 1 })
  t.teardown(() => agent.destroy())

  const chat = async () => {
    const body = { model: 'gpt-5-mini', messages: [] }
    const { status } = await stage.call(bot, 'POST', '/v1/chat/completions', { body, agent })
    if (status !== 200) throw new Error(`the call was answered ${status}`)
  }
  const llm = await walkOf(chat)
  t.comment(`LLM: ${llm.files.length} files, ${llm.functions} functions: ${llm.files.join(' ')}`)
  t.ok(llm.files.length <= MAX_LLM_FILES, `${llm.files.length} files for an LLM call`)
  const pageOfLlm = new Set(namedIn('One LLM call'))
  t.same(
    [...pageOfLlm].filter((file) => !OF_THE_THREAD.includes(file)).toSorted(),
    llm.files,
    'the page says so',
  )

  const useTool = async () => {
    const body = {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'files.read', arguments: {} },
    }
    const { json } = await stage.call(bot, 'POST', '/v1/mcp', { body, agent })
    if (json.result === undefined) throw new Error('the tool was not called')
  }
  const mcp = await walkOf(useTool)
  t.comment(`MCP: ${mcp.files.length} files, ${mcp.functions} functions: ${mcp.files.join(' ')}`)
  t.ok(mcp.files.length <= MAX_MCP_FILES, `${mcp.files.length} files for a call of a tool`)
  const pageOfMcp = new Set([...pageOfLlm, ...namedIn('One MCP call')])
  const unnamed = mcp.files.filter((file) => !pageOfMcp.has(file))
  const elsewhere = namedIn('One MCP call').filter((file) => !mcp.files.includes(file))
  t.same({ unnamed, elsewhere }, { unnamed: [], elsewhere: [] }, 'the page says so')

  const wiring = [...llm.files, ...mcp.files].filter((file) => WIRING.test(file))
  t.same(wiring, [], 'what makes pipelines, routes and handlers is not on the way of a call')

  const judged = await judgedFacts(async () => {
    await chat()
    await useTool()
  })
  for (const { names, isFast } of judged)
    t.ok(isFast, `${names.length} facts of a call are members that V8 finds by their place`)
  t.equal(judged.length, 3, 'the message of a call of a tool is read, and then judged')
})

await t.test('so does a change by an operator, and a page of the dashboard', { skip }, async (t) => {
  const stage = await mcpStage(t)
  const files = await stage.register('files', await toolServer(t, [tool('read')]))
  const bot = await stage.enroll('bot', ['llm.chat'])
  await stage.bind(bot, files)
  const alice = await ownerOnTheMachine(stage, 'alice')
  const agent = new Agent({ ca: stage.ca, cert: alice.cert, key: alice.key, keepAlive: true, maxSockets: 1 })
  t.teardown(() => agent.destroy())

  let changes = 0
  const change = await walkOf(async () => {
    changes += 1
    const body = { capabilities: ['llm.chat', `files.use_${changes}`] }
    const path = `/v1/admin/agents/${bot.id}/capabilities`
    const { status } = await stage.call(alice, 'PATCH', path, { body, agent })
    if (status !== 200) throw new Error(`the change was answered ${status}`)
  })
  t.comment(`PATCH: ${change.files.length} files, ${change.functions} functions: ${change.files.join(' ')}`)
  t.ok(change.files.length <= MAX_CHANGE_FILES, `${change.files.length} files for a change of capabilities`)
  const own = namedIn('One administrative change')
  const named = new Set([...namedIn('One LLM call'), ...own])
  const unnamed = change.files.filter((file) => !named.has(file))
  const elsewhere = own.filter((file) => !change.files.includes(file))
  t.same({ unnamed, elsewhere }, { unnamed: [], elsewhere: [] }, 'the page says so')

  const call: typeof stage.call = (who, method, path, asked) =>
    stage.call(who, method, path, { ...asked, agent })
  const browser = await signedInAs({ call }, alice)
  const page = await walkOf(async () => {
    const { status } = await browser.ask('GET', `/proxy/agents/${bot.id}`)
    if (status !== 200) throw new Error(`the page was answered ${status}`)
  })
  t.comment(`page: ${page.files.length} files, ${page.functions} functions: ${page.files.join(' ')}`)
  t.ok(page.files.length <= MAX_PAGE_FILES, `${page.files.length} files for the page of an agent`)

  const wiring = [...change.files, ...page.files].filter((file) => WIRING.test(file))
  t.same(wiring, [], 'what makes pipelines, routes and handlers is not on the way')
})
