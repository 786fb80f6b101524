import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { type Answered, CHAT, type Identity } from '../support/gateway.ts'
import { mcpStage, type Stage, tool, toolServer } from '../support/mcp/stage.ts'

const EXAMPLE = join(import.meta.dirname, '../../plugins/config/examples/policy')

// A policy that refuses gpt-5.5, a module that refuses all, two that break, one that passes.
const WATCHING = {
  '35-policy.yaml': `plugin: policy\nshadow: true\nengine: opa-wasm\nbundle: ${EXAMPLE}/policy.wasm\ndata: ${EXAMPLE}/data.json\ndeadline_ms: 10000\n`,
  '36-refuse.yaml': 'plugin: ./own.ts\nshadow: true\ndoes: refuse\n',
  '37-break.yaml': 'plugin: ./own.ts\nshadow: true\ndoes: break\n',
  '38-break-too.yaml': 'plugin: ./own.ts\nshadow: true\ndoes: break_too\n',
  '38-pass.yaml': 'plugin: ./own.ts\nshadow: true\ndoes: pass\n',
}
const OWN = `export const plugin = ({ does }, { Refusal }) => ({
  name: does,
  needs: ['principal', 'call', 'granted'],
  admit: (facts) => {
    facts.principal.capabilities.length = 0
    if (does === 'refuse') throw new Refusal('policy_denied', { message: 'canary' })
    if (does.startsWith('break')) throw new Error('canary of ' + does)
  },
  settled: (_, { status }) => {
    if (does === 'pass') globalThis.settledInShadow = [...(globalThis.settledInShadow ?? []), status]
    if (does === 'refuse') globalThis.settledInShadow = ['never']
  },
})
`

const POST = 'POST'
const MESSAGES = { model: 'claude-test', max_tokens: 8, messages: [{ role: 'user', content: 'hi' }] }

/** Calls of every door, allowed and refused, each with its answer. */
async function callAll(stage: Stage, bot: Identity, guest: Identity): Promise<readonly Answered[]> {
  const calls: readonly (() => Promise<Answered>)[] = [
    () => stage.call(bot, POST, '/v1/chat/completions', { body: { ...CHAT, model: 'gpt-5.5' } }),
    () => stage.call(bot, POST, '/v1/chat/completions', { body: { ...CHAT, stream: true } }),
    () => stage.call(bot, POST, '/v1/messages', { body: MESSAGES }),
    () => stage.call(bot, POST, '/v1/chat/completions', { body: { ...CHAT, model: 'nobody-serves-this' } }),
    () => stage.call(guest, POST, '/v1/chat/completions', { body: CHAT }),
    () => stage.rpc(bot, 'tools/list'),
    () => stage.rpc(bot, 'tools/list', { modern: true }),
    () => stage.callTool(bot, 'files.read', { path: 'a' }),
    () => stage.callTool(bot, 'files.read', { path: 'a' }, { modern: true, at: '/files' }),
    () => stage.callTool(bot, 'files.write'),
    () => stage.callTool(guest, 'files.read'),
    () => stage.callTool(bot, 'files.none'),
  ]
  const answers: Answered[] = []
  for (const call of calls) answers.push(await call())
  return answers
}

/** What is another one each time. */
const ONCE = /^(?:date|(?:x-)?request-id|audit-receipt|mcp-session-id|dpop-nonce)$/
const told = ({ status, headers, text }: Answered) => ({
  status,
  headers: Object.entries(headers).filter(([name]) => !ONCE.test(name)),
  text: text.replaceAll(/req_[\w-]+/g, 'req_'),
})

await t.test(
  'with checks that only watch, answers and what providers and servers are sent are the same, byte for byte',
  async (t) => {
    const stage = await mcpStage(t)
    const server = await toolServer(t, [tool('read'), tool('write')])
    const more = { required_capability: 'files.use', tool_capabilities: { write: 'files.write' } }
    const files = await stage.register('files', server, more)
    const bot = await stage.enroll('bot', ['llm.chat', 'mcp.tools.list', 'files.use'])
    const guest = await stage.enroll('guest', [])
    await stage.bind(bot, files)
    let from = 0
    const upstream = () => {
      const seen = stage.upstream.seen.slice(from)
      from += seen.length
      return seen.map(({ method, url, body, rawHeaders }) => ({
        ...{ method, url, body: body.toString() },
        headers: rawHeaders.filter((text) => !/^req_/.test(text)),
      }))
    }
    const asked = () => server.of('tools/call').map(({ message }) => message.params)

    const before = (await callAll(stage, bot, guest)).map(told)
    const sent = upstream()
    const calls = asked()
    for (const [name, text] of Object.entries({ ...WATCHING, 'own.ts': OWN }))
      await writeFile(join(stage.pluginsDir, name), text)
    t.equal(await stage.reload(), true)
    const after = (await callAll(stage, bot, guest)).map(told)
    t.strictSame(after, before)
    t.strictSame(upstream(), sent)
    t.strictSame(asked(), [...calls, ...calls])
    t.same(new Set(before.map(({ status }) => status)), new Set([200, 403]), 'of both kinds')

    const { text: metrics } = await stage.admin('GET', '/metrics')
    t.match(metrics, /sallyport_shadow_verdicts_total\{check="policy",verdict="refuse"\} [1-9]/)
    t.match(metrics, /sallyport_shadow_verdicts_total\{check="break",verdict="failed"\} [5-9]/)
    const [, failed] = /verdicts_total\{check="break",verdict="failed"\} (\d+)/.exec(metrics) ?? []
    t.ok(metrics.includes(`sallyport_faults_total{step="shadow"} ${2 * Number(failed)}`), 'each is counted')
    await stage.close(0)
    const faults = stage.log.filter(({ step }) => step === 'shadow').map(({ err }) => err.message)
    for (const name of ['break', 'break_too'])
      t.ok(
        faults.filter((text) => text.startsWith(`the check ${name}, which only watches, failed: `)).length >=
          5,
        `each that failed in a call is logged: ${name}`,
      )
    t.match(JSON.stringify(stage.log), /canary of break_too/)
    const { settledInShadow } = globalThis as { settledInShadow?: readonly string[] }
    t.ok(
      (settledInShadow ?? []).length >= 5 && !settledInShadow?.includes('never'),
      'those that passed it count it',
    )

    const rows = await stage.rows()
    const loaded = rows.findLast(({ action }) => action === 'config.loaded')
    t.match(loaded?.detail.checks, [
      { name: 'policy', shadow: true },
      { name: 'refuse', shadow: true },
      { name: 'break', shadow: true },
      { name: 'break_too', shadow: true },
      { name: 'pass', shadow: true },
    ])
    const decided = rows.filter(({ config_digest: digest }) => digest === loaded?.config_digest)
    const watched = decided.filter(({ status }) => status === 'allowed')
    t.ok(watched.length >= 7)
    for (const { model, detail } of watched)
      t.match((detail.authority as { checks: unknown }).checks, [
        { name: 'policy', verdict: model === 'gpt-5.5' ? 'refuse' : /pass|refuse/, shadow: true },
        { name: 'refuse', verdict: 'refuse', shadow: true },
        { name: 'break', verdict: 'failed', shadow: true },
        { name: 'break_too', verdict: 'failed', shadow: true },
        { name: 'pass', verdict: 'pass', shadow: true },
      ])
    for (const { detail } of decided.filter(({ status }) => status === 'denied'))
      t.notOk(
        (detail.authority as { checks?: unknown } | undefined)?.checks,
        'nobody asks about what is refused',
      )
  },
)

await t.test(
  'a check that judges stands in its row beside those that watch, in the order of their files',
  async (t) => {
    const stage = await mcpStage(t)
    const bot = await stage.enroll('bot', ['llm.chat'])
    const call = (model: string) =>
      stage.call(bot, POST, '/v1/chat/completions', { body: { ...CHAT, model } })
    const files = {
      ...WATCHING,
      '34-policy.yaml': WATCHING['35-policy.yaml'].replace('shadow: true\n', ''),
      '39-pass.yaml': 'plugin: ./own.ts\ndoes: pass\n',
      'own.ts': OWN,
    }
    for (const [name, text] of Object.entries(files)) await writeFile(join(stage.pluginsDir, name), text)
    t.equal(await stage.reload(), true)
    t.equal((await call('gpt-4o-mini')).status, 200)
    t.equal((await call('gpt-5.5')).status, 403, 'by the one that judges')
    await stage.close(0)
    const rows = (await stage.rows()).filter(({ action }) => action === 'egress_llm_chat')
    const checksOf = (status: string) => {
      const { authority } = rows.find((row) => row.status === status)?.detail ?? {}
      return (authority as { checks: object[] }).checks
    }
    t.match(checksOf('allowed'), [
      { name: 'policy', verdict: 'pass', shadow: undefined },
      { name: 'policy', verdict: 'pass', shadow: true },
      { name: 'refuse', verdict: 'refuse', shadow: true },
      { name: 'break', verdict: 'failed', shadow: true },
      { name: 'break_too', verdict: 'failed', shadow: true },
      { name: 'pass', verdict: 'pass', shadow: true },
      { name: 'pass', verdict: 'pass', shadow: undefined },
    ])
    t.same(checksOf('denied').length, 1)
    t.match(checksOf('denied'), [{ name: 'policy', verdict: 'refuse' }])
  },
)
