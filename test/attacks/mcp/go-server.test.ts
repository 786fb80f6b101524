import t from 'tap'
import type { Json } from '../../support/gateway.ts'
import { built } from '../../support/go/built.ts'
import { conversation } from '../../support/go/conversation.ts'
import { mcpStage } from '../../support/mcp/stage.ts'

// A program is compiled first, on a machine that may be busy.
t.setTimeout(300_000)
const { program, missing } = await built('mcpserver')

const call = (params: string): string => `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${params}}`
const HEADERS = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }

/** The parameters of calls of `read_file` with `/ok`, and what a server on the Go SDK 1.2.0 runs for them. */
const SPELLINGS: readonly (readonly [params: string, ran: Json])[] = [
  ['{"name":"NAME","Name":"delete_file","arguments":{"path":"/ok"}}', { tool: 'delete_file', path: '/ok' }],
  [
    '{"name":"NAME","arguments":{"path":"/ok"},"Arguments":{"path":"/etc/shadow"}}',
    { tool: 'read_file', path: '/etc/shadow' },
  ],
  [
    '{"name":"NAME","arguments":{"path":"/ok"},"argument\u017f":{"path":"/etc/shadow"}}',
    { tool: 'read_file', path: '/etc/shadow' },
  ],
  [
    '{"name":"NAME","arguments":{"path":"/ok","Path":"/etc/shadow"}}',
    { tool: 'read_file', path: '/etc/shadow' },
  ],
]

await t.test(
  'H1: a server on the SDK of Go runs what was judged, and runs something else without the gateway',
  { skip: missing },
  async (t) => {
    const { first } = await conversation(t, program, [])
    const stage = await mcpStage(t)
    const files = await stage.register('files', { url: String(first.url) })
    const bot = await stage.enroll('bot', ['mcp.tools.call'])
    await stage.bind(bot, files)
    const ranBy = (answer: Json): Json => JSON.parse(answer.result.content[0].text)
    const direct = async (body: string): Promise<Json> =>
      (await fetch(first.url, { method: 'POST', headers: HEADERS, body })).json()
    const through = async (body: string): Promise<Json> =>
      (await stage.call(bot, 'POST', '/v1/mcp', { headers: HEADERS, body })).json
    for (const [params, ran] of SPELLINGS) {
      t.same(ranBy(await direct(call(params.replace('NAME', 'read_file')))), ran, `${params} by itself`)
      const refused = await through(call(params.replace('NAME', 'files.read_file')))
      t.equal(refused.error?.code, -32602, params)
    }
    for (const more of ['', ',"vendor":{"Name":"delete_file"}', ',"_meta":{"progressToken":1}']) {
      const honest = `{"name":"files.read_file","arguments":{"path":"/ok"}${more}}`
      t.same(ranBy(await through(call(honest))), { tool: 'read_file', path: '/ok' }, honest)
    }
  },
)
