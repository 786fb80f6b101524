import t from 'tap'
import type { Identity } from '../../../support/gateway.ts'
import { mcpStage, tool, toolServer } from '../../../support/mcp/stage.ts'
import { signedInBySecret } from '../../../support/oidc/jar.ts'
import { eventually } from '../../../support/settled.ts'

const FILES = {
  '50-llm.yaml': `plugin: llm
providers:
  - { name: openai, dialect: openai, base_url: UPSTREAM/v1, api_key: sk-1, models: ["gpt-*"] }
  - { name: keyless, dialect: openai, base_url: UPSTREAM/v1, models: ["dear-*"] }
`,
}

const SETS = [
  [],
  ['llm.chat'],
  ['files.use'],
  ['files.write'],
  ['http.get'],
  ['llm.chat', 'files.use', 'files.write', 'http.get'],
] as const

const CALLS = [
  { model: 'gpt-test' },
  { model: 'openai/any' },
  { model: 'dear-1' },
  { model: 'nobody-has' },
  { model: 'a,b' },
  { tool: 'files.read' },
  { tool: 'files.write' },
  { tool: 'files.strict' },
  { tool: 'files.none' },
  { tool: 'shut.read' },
  { tool: 'off.read' },
  { tool: 'nowhere' },
  { tool: 'http.get' },
] as const

/** The arguments that the schemas of these tools demand. */
const ARGUMENTS: Readonly<Record<string, object>> = {
  'files.strict': { path: '/' },
  'http.get': { url: 'https://192.0.2.1/' },
}

await t.test('a call that is not made is judged as the same call is, over the whole grid', async (t) => {
  const stage = await mcpStage(t, { files: FILES })
  const strict = { inputSchema: { type: 'object', required: ['path'] } }
  const server = await toolServer(t, [tool('read'), tool('write'), tool('strict', strict)])
  const files = await stage.register('files', server, {
    required_capability: 'files.use',
    tool_capabilities: { write: 'files.write' },
  })
  await stage.register('shut', server)
  const off = await stage.register('off', server)
  const callers: Identity[] = []
  for (const [index, set] of SETS.entries()) callers.push(await stage.enroll(`bot-${index}`, set))
  for (const caller of callers) for (const to of [files, off]) await stage.bind(caller, to)
  // One more without a binding, and one that is not active.
  callers.push(await stage.enroll('unbound', ['files.use']))
  const gone = await stage.enroll('gone', ['llm.chat'])
  await stage.admin('DELETE', `/v1/admin/agents/${encodeURIComponent(gone.id)}`)
  callers.push(gone)
  await stage.admin('PATCH', `/v1/admin/mcp-resources/${off.resource_id}`, { enabled: false })

  const ifCalled = async (who: Identity, call: Record<string, string>) =>
    stage.admin(
      'GET',
      `/v1/admin/agents/${encodeURIComponent(who.id)}/what-if?${new URLSearchParams(call).toString()}`,
    )
  const asked = []
  const before = (await stage.rows()).length
  for (const who of callers)
    for (const call of CALLS) asked.push({ who, call, told: (await ifCalled(who, call)).json })
  t.equal((await stage.rows()).length, before, 'no question has a row')
  t.equal(stage.upstream.seen.length, 0, 'and none is sent')

  const made = []
  for (const { who, call, told } of asked) {
    const { headers, json } =
      'model' in call
        ? await stage.call(who, 'POST', '/v1/chat/completions', { body: { ...call, messages: [] } })
        : await stage.callTool(who, call.tool, ARGUMENTS[call.tool] ?? {})
    made.push({
      id: String(headers['x-request-id']),
      reason: json?.reason,
      what: `${who.id} ${JSON.stringify(call)}`,
      told,
    })
  }
  const rows = await eventually(
    async () => {
      const [models, tools] = await Promise.all(
        ['egress_llm_chat', 'mcp_tools_call'].map((action) => stage.rows({ action, limit: 1000 })),
      )
      return [...(models ?? []), ...(tools ?? [])]
    },
    (all) =>
      all.filter(({ status }) => status === 'allowed').length * 2 <=
      all.filter(({ status }) => status !== 'denied' && status !== 'invalid').length,
  )
  const REFUSED = ['denied', 'invalid']
  const denied = rows.filter(({ status }) => REFUSED.includes(status))
  const ended = rows.filter(({ status }) => ![...REFUSED, 'allowed'].includes(status))
  for (const { id, what, told, reason } of made) {
    const refused = denied.find(({ request_id: of }) => of === id)
    const end = ended.find(({ request_id: of }) => of === id)
    const failed = end?.status === 'error' && !what.includes('http.get') ? end.detail.reason : null
    // A call without a row was refused to a caller that is nobody any more.
    const real = refused?.detail.reason ?? failed ?? (end ? null : reason)
    t.equal(told.refusal?.reason ?? null, real, what)
    t.equal(told.allowed, real === null, what)
    if (refused) t.match(told.gates.at(-1), { gate: refused.detail.refused_by, verdict: 'refuse' }, what)
    else if (told.allowed) t.notOk(told.gates.some((gate: { verdict: string }) => gate.verdict === 'refuse'))
  }

  const all = callers[5] as Identity
  t.match((await ifCalled(all, { model: 'gpt-test' })).json, {
    allowed: true,
    demanded: ['llm.chat'],
    providers: ['openai'],
    gates: [{ gate: 'demand' }, { gate: 'pin', verdict: 'pass' }, { gate: 'dpop', verdict: 'presumed' }],
  })
  t.equal((await ifCalled(all, {})).status, 422)
  t.equal((await ifCalled(all, { model: 'gpt-test', tool: 'files.read' })).status, 422)
  t.equal((await ifCalled({ ...all, id: 'nobody' }, { model: 'gpt-test' })).status, 404)

  const jar = await signedInBySecret(stage)
  const page = `/proxy/agents/${encodeURIComponent(String(callers[0]?.id))}`
  t.match((await jar.ask('GET', page)).text, 'May it call this now?')
  const no = (await jar.ask('GET', `${page}/what-if?model=gpt-test`)).text
  t.match(no, /may not call/)
  t.match(no, /✗ capability/)
  t.match((await jar.ask('GET', `${page}/what-if?tool=%3Cb%3E`)).text, /&lt;b&gt;/)
})
