import { copyFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { CHAT, testGateway } from '../../support/gateway.ts'
import { data, policyServer } from '../../support/plugins/policy-server.ts'

const PATH = '/v1/chat/completions'
const EXAMPLE = join(import.meta.dirname, '../../../plugins/config/examples/policy')
const FIXTURE = join(import.meta.dirname, '../../support/plugins/policy-fixture/fixture.wasm')
const COMPILED = `plugin: policy
engine: opa-wasm
bundle: ${EXAMPLE}/policy.wasm
data: ${EXAMPLE}/data.json
deadline_ms: 10000
`

await t.test('§2.2 an operator-defined capability grants and refuses by the example policy', async (t) => {
  const gateway = await testGateway(t, { files: { '35-policy.yaml': COMPILED } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const call = (model: string) => gateway.call(bot, 'POST', PATH, { body: { ...CHAT, model } })
  t.equal((await call('gpt-4o-mini')).status, 200)
  t.match(await call('gpt-5.5'), {
    status: 403,
    headers: { 'x-should-retry': 'false' },
    json: {
      message: 'This model takes the capability acme.models.all.',
      reason: 'policy_denied',
      detail: { policy: 'This model takes the capability acme.models.all.' },
    },
  })
  t.equal((await call('openai/gpt-5.5')).status, 403, 'by any of its names')
  t.equal(gateway.upstream.seen.length, 1, 'nothing of a refused call is sent')
  const capabilities = ['llm.chat', 'acme.models.all']
  await gateway.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities })
  t.equal((await call('gpt-5.5')).status, 200)
  await gateway.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, {
    capabilities: ['acme.models.all'],
  })
  t.match(await call('gpt-5.5'), { status: 403, json: { reason: 'capability_missing' } })
  await gateway.close(0)
  const denied = (await gateway.rows()).filter(({ status }) => status === 'denied')
  t.match(
    denied.map(({ detail }) => detail),
    [
      { reason: 'policy_denied', refused_by: 'policy' },
      { reason: 'policy_denied', refused_by: 'policy' },
      { reason: 'capability_missing', refused_by: 'capability' },
    ],
  )
})

await t.test('§2.3 a policy is not asked about what the gate refuses, and cannot allow it', async (t) => {
  const agent = await policyServer(t)
  const policy = `plugin: policy\nengine: opa-http\nurl: ${agent.url}\ndeadline_ms: 10000\n`
  const gateway = await testGateway(t, { files: { '35-policy.yaml': policy } })
  const nobody = await gateway.enroll('nobody', [])
  t.match(await gateway.call(nobody, 'POST', PATH, { body: CHAT }), {
    status: 403,
    json: { reason: 'capability_missing' },
  })
  t.same(agent.asked, [])
  const bot = await gateway.enroll('bot', ['llm.chat', 'acme.special'])
  t.equal((await gateway.call(bot, 'POST', PATH, { body: CHAT })).status, 200)
  t.match(JSON.parse(agent.asked[0]?.body ?? ''), {
    input: {
      version: 1,
      principal: { id: bot.id, type: 'agent', capabilities: ['llm.chat', 'acme.special'] },
      action: 'egress_llm_chat',
      required_capability: 'llm.chat',
      model: CHAT.model,
      tool: null,
      proof: null,
      remote_address: '127.0.0.1',
    },
  })
})

await t.test(
  'F-28 a policy agent that fails refuses the call, tells the log why and sends nothing',
  async (t) => {
    const agent = await policyServer(t)
    const policy = `plugin: policy\nengine: opa-http\nurl: ${agent.url}\ndeadline_ms: 10000\ntoken: canary-token\n`
    const gateway = await testGateway(t, { files: { '35-policy.yaml': policy } })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    agent.answer = (res) => {
      res.writeHead(500)
      res.end('canary-answer')
    }
    const { status, json, text } = await gateway.call(bot, 'POST', PATH, { body: CHAT })
    t.match({ status, json }, { status: 500, json: { reason: 'plugin_failed' } })
    t.notMatch(text, /policy agent|canary/)
    agent.answer = data({ result: true })
    t.equal((await gateway.call(bot, 'POST', PATH, { body: CHAT })).status, 200)
    t.equal(gateway.upstream.seen.length, 1)
    await gateway.close(0)
    const lines = JSON.stringify(gateway.log)
    t.match(lines, /no decision from the policy agent: the policy agent answered 500/)
    t.notMatch(lines, /canary/)
  },
)

await t.test('F-31 a reload puts a new policy in force, and a broken one leaves the old', async (t) => {
  const policy =
    'plugin: policy\nengine: opa-wasm\nbundle: policy.wasm\ndata: data.json\nentrypoint: fixture/reads_data\n'
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const status = async () => (await gateway.call(bot, 'POST', PATH, { body: CHAT })).status
  const put = (name: string, text: string) => writeFile(join(gateway.pluginsDir, name), text)
  const wasm = join(gateway.pluginsDir, 'policy.wasm')
  t.equal(await status(), 200, 'without a policy')
  await copyFile(FIXTURE, wasm)
  await put('data.json', '{"acme":{"verdict":false}}')
  await put('35-policy.yaml', `${policy}deadline_ms: 10000\n`)
  t.equal(await gateway.reload(), true)
  t.equal(await status(), 403)
  await put('data.json', '{"acme":{"verdict":true}}')
  t.equal(await status(), 403, 'not before it is reloaded')
  t.equal(await gateway.reload(), true)
  t.equal(await status(), 200)
  const { digest } = gateway.configuration()
  await put('data.json', '{"acme":{"verdict":fal')
  t.equal(await gateway.reload(), false)
  await put('data.json', '{"acme":{"verdict":false}}')
  await writeFile(wasm, '\0asm broken')
  t.equal(await gateway.reload(), false)
  t.equal(gateway.configuration().digest, digest)
  t.equal(await status(), 200, 'the policy that was in force still is')
  await copyFile(FIXTURE, wasm)
  t.equal(await gateway.reload(), true)
  t.equal(await status(), 403)
})
