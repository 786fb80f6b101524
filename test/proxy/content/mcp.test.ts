import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { sampleSecret } from '../../support/content/secrets.ts'
import { result, sendJson } from '../../support/mcp/raw-upstream.ts'
import { echo, mcpStage, tool, toolServer } from '../../support/mcp/stage.ts'

const SECRET = sampleSecret('GITHUB_TOKEN')
const ERROR = {
  code: -31011,
  data: { reason: 'content_refused', content: [{ rule: 'GITHUB_TOKEN', count: 1 }] },
}

await t.test('arguments, results and definitions of tools are judged, in both eras', async (t) => {
  const stage = await mcpStage(t, { files: { '37-content.yaml': 'plugin: content\n' } })
  const server = await toolServer(
    t,
    [
      tool('say'),
      tool('leak'),
      tool('stream'),
      tool('odd', { description: `Use ${sampleSecret('GOOGLE_API_KEY')}.` }),
    ],
    (res, told) => {
      const { name } = told.message.params as { name: string }
      const text = name === 'say' ? 'hello' : `it is ${SECRET}`
      if (name === 'say') return echo(res, told)
      const answer = result(told, { content: [{ type: 'text', text }] })
      if (name !== 'stream') return sendJson(res, answer)
      res.setHeader('content-type', 'text/event-stream').end(`data: ${JSON.stringify(answer)}\n\n`)
      return undefined
    },
  )
  const files = await stage.register('files', server, {})
  const bot = await stage.enroll('bot', ['mcp.tools.call', 'mcp.tools.list'])
  await stage.bind(bot, files)
  const { tools } = await stage.resource(files)
  const odd = tools.find(({ name }: { name: string }) => name === 'odd')
  t.same(odd.flags, ['secret:GOOGLE_API_KEY'])

  for (const modern of [false, true]) {
    const call = (name: string, args = {}) => stage.callTool(bot, `files.${name}`, args, { modern })
    t.match((await call('say', { text: 'hi' })).text, /hi/)
    const before = server.of('tools/call').length
    t.match((await call('say', { text: SECRET })).json, { error: ERROR })
    t.equal(server.of('tools/call').length, before, 'nothing was sent')
    t.match((await call('leak')).json, { error: ERROR })
    const streamed = await call('stream').catch((error: unknown) => error)
    t.notOk(JSON.stringify(streamed).includes(SECRET))
  }
  t.equal((await stage.rpc(bot, 'tools/list')).json.error, undefined, 'our own list is approved')
  const metrics = (await stage.admin('GET', '/metrics')).text
  t.match(metrics, /content_findings_total\{rule="GITHUB_TOKEN",place="tool_result",verdict="refuse"\} [2-9]/)
  t.match(metrics, /content_findings_total\{rule="GITHUB_TOKEN",place="tool_arguments",verdict="refuse"\} 2/)
  await stage.close(0)
  const rows = await stage.rows()
  t.match(
    rows.filter(({ status }) => status === 'denied').map(({ detail }) => detail.content),
    [1, 2].map(() => ({
      verdict: 'refuse',
      findings: [{ rule: 'GITHUB_TOKEN', where: 'params.arguments' }],
    })),
  )
  const refused = rows.filter(({ detail }) => detail.reason === 'content_refused' && !detail.refused_by)
  t.equal(refused.length, 4, 'results, whole and streamed')
  t.match(refused[0], { status: 'error', provider: 'files', detail: { content: { verdict: 'refuse' } } })
  const { dataDir } = stage.settings
  for (const name of readdirSync(dataDir, { recursive: true, withFileTypes: true }))
    if (name.isFile())
      t.notOk(readFileSync(join(name.parentPath, name.name)).includes(SECRET.slice(4)), name.name)
})
