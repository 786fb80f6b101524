import { join } from 'node:path'
import t from 'tap'
import { jsonLines, printableLines } from '../../../scripts/print.ts'
import { verb } from '../../../scripts/verbs/mcp.ts'
import { scratch } from '../../support/gateway.ts'
import { changingServer, tool } from '../../support/mcp/admin-server.ts'
import { sallyport } from '../../support/run.ts'
import { operator } from '../../support/scripts/operator.ts'

await t.test('arguments that say nothing are refused before anything is opened', async (t) => {
  const add = ['add', 'files', 'https://mcp.example.com/mcp']
  const cases: readonly (readonly [RegExp, readonly string[]])[] = [
    [/^choose what to do: add, list, .* remove; make mcp ARGS="--help" explains them$/, []],
    [/^choose what to do: /, ['constructor']],
    [/^give a name and the URL of the server: /, ['add', 'files']],
    [/^give a name and the URL of the server: /, [...add, 'more']],
    [/--wrong/, [...add, '--wrong']],
    [/^--tool-capability must be TOOL=CAPABILITY, got "read"$/, [...add, '--tool-capability', 'read']],
    [/^--tool-capability must be TOOL=CAPABILITY, got "=a"$/, [...add, '--tool-capability', '=a']],
    [/names the tool "r" twice$/, [...add, '--tool-capability', 'r=a', '--tool-capability', 'r=b']],
    [/^name the server: make mcp ARGS="show NAME \[TOOL\]"$/, ['show']],
    [/^name the server: make mcp ARGS="show NAME \[TOOL\]"$/, ['show', 'a', 'b', 'c']],
    [/^name the server: make mcp ARGS="disable NAME"$/, ['disable']],
    [/^name the server: make mcp ARGS="enable NAME"$/, ['enable', 'a', 'b']],
    [/^name the server: make mcp ARGS="refresh NAME"$/, ['refresh', 'a', 'b']],
    [/^name the server: make mcp ARGS="remove NAME"$/, ['remove', '']],
    [/^name the server, and the tool: make mcp ARGS="approve NAME \[TOOL\]"$/, ['approve']],
    [/^name the server, and the tool: make mcp ARGS="approve NAME \[TOOL\]"$/, ['approve', 'a', '']],
    [/^name the server, and the tool: /, ['approve', 'a', 'b', 'c']],
    [/^name the server and the principals: make mcp ARGS="bind NAME ID…"$/, ['bind', 'files']],
    [/^name the server and the principals: make mcp ARGS="unbind NAME ID…"$/, ['unbind', 'files']],
    [/more/, ['list', 'more']],
  ]
  const opened = (): never => {
    throw new Error('opened')
  }
  for (const [message, args] of cases) {
    await t.rejects(verb.perform(args, opened, opened), { message }, args.join(' '))
  }
})

await t.test('nothing that is printed can hide, or tell a terminal what to do', async (t) => {
  t.equal(printableLines(['a\u001b[2J', 'b\u202ec\n\u{e0041}']), 'a\\u{1b}[2J\nb\\u{202e}c\\u{a}\\u{e0041}\n')
  const value = { name: 'a\u202eb\\u{200b}\u{e0041}\u009b2J "c"\n', list: ['é', '\ud800'] }
  const json = jsonLines(value).join('\n')
  t.match(json, /^[\n\x20-\x7eé]+$/)
  t.same(JSON.parse(json), value, 'JSON reads back as it is')
  const { stage, mcp } = await operator(t)
  const server = await changingServer(t, tool('read'))
  await mcp('add', 'files', server.url)
  const { out } = await mcp('list', '--json')
  t.same(JSON.parse(out), (await stage.admin('GET', '/v1/admin/mcp-resources')).json)
})

await t.test('without a gateway the same verbs work on the data directory', async (t) => {
  const server = await changingServer(t, tool('read'))
  const env = {
    MCP_PROXY_DATA_DIR: join(await scratch(t), 'data'),
    MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true',
  }
  const added = await sallyport(['mcp', 'add', 'files', server.url], env)
  t.match(added, { code: 0, err: '', out: /^read files: 1 approved, pinned as they are now$/m })
  t.match(await sallyport(['mcp', 'list'], env), { code: 0, out: /^files +ok +a binding only +0 /m })
  t.match(await sallyport(['mcp', 'show', 'nothing'], env), { code: 1, err: /did you mean files\?/ })
})

await t.test('mcp has a help with every verb in it', async (t) => {
  const { code, out, err } = await sallyport(['mcp', '--help'])
  t.same({ code, err }, { code: 0, err: '' })
  const verbs = ['add', 'list', 'show', 'refresh', 'approve', 'bind', 'unbind', 'disable', 'enable', 'remove']
  for (const verb of verbs) {
    t.match(out, new RegExp(`^  ${verb}\\b`, 'm'))
  }
})

await t.test('env prints the line that gives Claude Code the tools, by either way', async (t) => {
  const directory = t.testdir({ 'gateway.json': JSON.stringify({ url: 'https://gate.example:9443' }) })
  const { out } = await sallyport(['env', '--identity', directory, '--port', '9999'])
  const line = 'claude mcp add --transport http sallyport'
  t.match(out, `#   ${line} http://127.0.0.1:9999/v1/mcp\n`)
  t.match(out, `#   ${line} https://gate.example:9443/v1/mcp\n`)
})
