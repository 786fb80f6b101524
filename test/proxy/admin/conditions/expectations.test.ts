import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { PLUGIN_FILES } from '../../../support/gateway.ts'
import { mcpStage, type Stage, tool, toolServer } from '../../../support/mcp/stage.ts'
import { as, operatorNamed } from '../../../support/operators.ts'
import { eventually } from '../../../support/settled.ts'

const SENTENCES = [
  'acme::deploy may call files.write',
  'acme::deploy may use model gpt-*',
  'acme::intern may not call files.write',
  'acme::* may not call pay.*',
]
const yamlOf = (sentences: readonly string[]) =>
  `plugin: expect\nexpect:\n${sentences.map((text) => `  - ${text}\n`).join('')}`

/** Two agents and two servers, where all that is expected holds. */
async function stageOf(t: Test, more: { readonly operators?: string; readonly mcp?: string } = {}) {
  const stage = await mcpStage(t, {
    files: {
      ...PLUGIN_FILES,
      ...(more.operators && { '70-operators.yaml': `plugin: operators\n${more.operators}\n` }),
      ...(more.mcp && { '60-mcp.yaml': `plugin: mcp\n${more.mcp}\n` }),
    },
  })
  const files = await stage.register('files', await toolServer(t, [tool('read'), tool('write')]), {
    required_capability: 'files.use',
  })
  const pay = await stage.register('pay', await toolServer(t, [tool('salaries')]), {
    required_capability: 'pay.read',
  })
  const deploy = await stage.enroll('deploy', ['llm.chat', 'files.use', 'pay.read'])
  const intern = await stage.enroll('intern', ['files.use'])
  const { json: binding } = await stage.admin('POST', '/v1/admin/mcp-resources/bindings', {
    agent_id: deploy.id,
    resource_id: files.resource_id,
  })
  await writeFile(join(stage.pluginsDir, '90-expect.yaml'), yamlOf(SENTENCES))
  t.equal(await stage.reload(), true)
  return { stage, files, pay, deploy, intern, binding }
}

const AGENTS = '/v1/admin/agents'
const BINDINGS = '/v1/admin/mcp-resources/bindings'
const broken = (line: number) => ({
  status: 409,
  json: {
    reason: 'expectation_broken',
    detail: { expectations: [{ line, sentence: SENTENCES[line - 3] }] },
  },
})

const told = (stage: Stage) =>
  stage.log.flatMap(({ msg }) => (/this expectation does not hold/.test(msg) ? [msg] : []))

await t.test(
  '§9 a change that would break what is expected is 409 with the sentences, whichever change it is',
  async (t) => {
    const { stage, files, pay, deploy, intern, binding } = await stageOf(t)
    const { admin } = stage
    t.same(told(stage), [])
    const rows = async () => (await stage.rows({ limit: 1000 })).length
    const before = await rows()
    const set = (who: { id: string }, capabilities: readonly string[], query = '') =>
      admin('PATCH', `${AGENTS}/${who.id}/capabilities${query}`, { capabilities })
    const resource = `/v1/admin/mcp-resources/${files.resource_id}`
    t.match(await set(deploy, ['llm.chat']), broken(3))
    t.match(await set(deploy, ['files.use']), broken(4))
    t.match(await set(deploy, []), {
      status: 409,
      json: { message: /files\.write; acme::deploy may use model gpt-\*/ },
    })
    t.match(await admin('DELETE', `${AGENTS}/${deploy.id}`), { status: 409 })
    t.match(await admin('POST', `${AGENTS}/${deploy.id}/erase`), { status: 409 })
    t.match(await admin('PATCH', resource, { enabled: false }), broken(3))
    t.match(await admin('PATCH', resource, { tool_capabilities: { write: 'files.write' } }), broken(3))
    t.match(await admin('DELETE', resource), broken(3))
    t.match(await admin('DELETE', `${BINDINGS}/${binding.binding_id}`), broken(3))
    const bind = (who: { id: string }, { resource_id }: { resource_id: string }) =>
      admin('POST', BINDINGS, { agent_id: who.id, resource_id })
    t.match(await bind(intern, files), broken(5))
    t.match(await bind(deploy, pay), broken(6))
    t.equal(await rows(), before, 'nothing has changed')
    t.equal((await stage.callTool(deploy, 'files.write')).json.result !== undefined, true)

    // What breaks nothing is made as ever.
    t.equal((await set(deploy, ['llm.chat', 'files.use'])).status, 200)
    t.equal((await set(intern, ['files.use', 'x'])).status, 200)
    t.equal((await set(intern, [])).status, 200)
    t.equal((await bind(intern, files)).status, 201, 'with an empty set it may call nothing')
    t.match(await set(intern, ['files.use']), broken(5))
  },
)

await t.test('forced with a reason it is made, and its row says so', async (t) => {
  const { stage, deploy } = await stageOf(t)
  const path = `${AGENTS}/${deploy.id}/capabilities`
  const asked = (query: string) => stage.admin('PATCH', `${path}?${query}`, { capabilities: [] })
  t.match(await asked('force=true'), { status: 422, json: { detail: { errors: [{ field: 'reason' }] } } })
  t.equal((await asked('force=yes&reason=x')).status, 422)
  t.equal((await asked('force=true&reason=%0a')).status, 422)
  t.equal((await asked('force=false&reason=x')).status, 409)
  t.equal((await asked('force=true&reason=the+key+leaked')).status, 200)
  const [row] = await stage.rows({ action: 'agent.capabilities_patched' })
  t.match(row?.detail, {
    forced: { reason: 'the key leaked', broken: [SENTENCES[0], SENTENCES[1]] },
    capabilities: [],
  })
  const again = await stage.admin('PATCH', path, { capabilities: ['x'] })
  t.equal(again.status, 200, 'what is broken already is not broken by this')
  const [plain] = await stage.rows({ action: 'agent.capabilities_patched' })
  t.match(plain?.detail, { capabilities: ['x'], forced: undefined })
  await stage.admin('PATCH', `${path}?force=true&reason=unneeded`, { capabilities: ['y'] })
  const [needless] = await stage.rows({ action: 'agent.capabilities_patched' })
  t.match(
    needless?.detail,
    { capabilities: ['y'], forced: undefined },
    'where nothing is forced no row says so',
  )
})

await t.test('who comes, or comes back, may break it too', async (t) => {
  const { stage, deploy, intern } = await stageOf(t)
  const { admin } = stage
  const replace = async (...sentences: readonly string[]) => {
    await writeFile(join(stage.pluginsDir, '90-expect.yaml'), yamlOf(sentences))
    return stage.reload()
  }
  t.equal(await replace('acme::user::* may not use model *', 'acme::deploy may not use model *'), true)
  await stage.admin('DELETE', `${AGENTS}/${deploy.id}`)
  t.match(await admin('POST', `${AGENTS}/${deploy.id}/reactivate`), { status: 409 })
  const user = { user_name: 'ada', capabilities: ['llm.chat'] }
  t.match(await admin('POST', '/v1/admin/users', user), { status: 409 })
  t.equal((await admin('POST', '/v1/admin/users', { user_name: 'ada' })).status, 201)
  t.match(
    await admin('PATCH', '/v1/admin/users/acme::user::ada/capabilities', { capabilities: ['llm.chat'] }),
    { status: 409 },
  )
  t.equal(await replace('acme::new* may not use model *'), true)
  t.match(await admin('POST', AGENTS, { agent_name: 'newest', capabilities: ['llm.chat'] }), { status: 409 })
  t.equal((await admin('POST', AGENTS, { agent_name: 'newest', capabilities: ['x'] })).status, 201)
  t.equal((await admin('GET', `${AGENTS}/${intern.id}`)).json.is_active, true)
})

await t.test('a rehearsal, a preview and a promotion say what would become of it', async (t) => {
  const { stage, deploy } = await stageOf(t)
  const lost = { line: 3, sentence: SENTENCES[0], before: true, after: false }
  const changes = [{ principal: deploy.id, capabilities: ['llm.chat'] }]
  const { json: rehearsal } = await stage.admin('POST', '/v1/admin/rehearsals', { changes })
  t.same(rehearsal.expectations, [lost])
  const path = `${AGENTS}/${deploy.id}`
  const preview = await stage.admin('PATCH', `${path}/capabilities?dry_run=true`, {
    capabilities: ['llm.chat'],
  })
  t.match(preview, { status: 200, json: { rehearsal: { expectations: [lost] } } })
  const kept = await stage.admin('PATCH', `${path}/capabilities?dry_run=true`, {
    capabilities: ['llm.chat', 'files.use'],
  })
  t.same(kept.json.rehearsal.expectations, [], 'what holds all the while is not said')
  await stage.admin('PUT', `${path}/candidate`, { capabilities: ['llm.chat'] })
  const etag = String((await stage.admin('GET', `${path}/candidate`)).headers.etag)
  t.match(await stage.admin('POST', `${path}/candidate/promote`, undefined, { 'if-match': etag }), broken(3))
  const settings = { changes: [{ settings: { enforce_tools_call: true } }] }
  t.same((await stage.admin('POST', '/v1/admin/rehearsals', settings)).json.expectations, [lost])
})

await t.test(
  'two people: it is asked when a change is proposed, and again when it is confirmed',
  async (t) => {
    const { stage, deploy } = await stageOf(t, { operators: 'two_person: [grant]' })
    const [alice, bob] = [
      as(stage, await operatorNamed(stage, 'alice', ['admin.read', 'admin.grant'])),
      as(stage, await operatorNamed(stage, 'bob', ['admin.read', 'admin.grant'])),
    ]
    const path = `${AGENTS}/${deploy.id}/capabilities`
    t.match(await alice('PATCH', path, { capabilities: ['llm.chat'] }), broken(3))
    const forced = await alice('PATCH', `${path}?force=true&reason=on+purpose`, {
      capabilities: ['llm.chat'],
    })
    t.equal(forced.status, 202, forced.text)
    t.equal((await bob('POST', `/v1/admin/proposals/${forced.json.proposal_id}/confirm`)).status, 200)
    const [row] = await stage.rows({ action: 'agent.capabilities_patched' })
    t.match(row?.detail, { forced: { reason: 'on purpose', broken: [SENTENCES[0]] } })
    const back = await alice('PATCH', path, { capabilities: ['x'] })
    t.equal(back.status, 409, 'it may use models still')
  },
)

await t.test(
  'at each reading of the files what does not hold is told, and the service goes on',
  async (t) => {
    const { stage, deploy } = await stageOf(t)
    const sentences = [
      'acme::deploy may call nowhere.at_all',
      'acme::nobody may use model *',
      SENTENCES[0] ?? '',
    ]
    await writeFile(join(stage.pluginsDir, '90-expect.yaml'), yamlOf(sentences))
    t.equal(await stage.reload(), true)
    const metric = async () => (await stage.admin('GET', '/metrics')).text
    const isTold = (text: string) => /^sallyport_expectations_broken 2$/m.test(text)
    t.ok(isTold(await eventually(metric, isTold)))
    t.equal((await stage.callTool(deploy, 'files.read')).status, 200)
    const patch = (capabilities: readonly string[]) =>
      stage.admin('PATCH', `${AGENTS}/${deploy.id}/capabilities?force=true&reason=now`, { capabilities })
    t.equal((await patch(['llm.chat'])).status, 200)
    t.match(await metric(), /^sallyport_expectations_broken 3$/m, 'a forced change counts at once')
    t.equal((await patch(['llm.chat', 'files.use'])).status, 200)
    t.ok(isTold(await metric()), 'and so does what mends it')
    await stage.close(0)
    t.same(told(stage), [
      '90-expect.yaml:3: this expectation does not hold: acme::deploy may call nowhere.at_all',
      '90-expect.yaml:4: this expectation does not hold: acme::nobody may use model *',
    ])
  },
)

await t.test(
  'a sentence that is none is refused by its file, line and column, and all is as before',
  async (t) => {
    const { stage, deploy } = await stageOf(t)
    const file = join(stage.pluginsDir, '90-expect.yaml')
    await writeFile(file, 'plugin: expect\nexpect:\n  - acme::deploy may fly\n')
    t.equal(await stage.reload(), false)
    const [rejected] = await stage.rows({ action: 'config.rejected' })
    t.match(rejected?.detail.message, /90-expect\.yaml:3:5: .*must be "<principal> may call <tool>"/)
    t.match(
      await stage.admin('PATCH', `${AGENTS}/${deploy.id}/capabilities`, { capabilities: [] }),
      { status: 409 },
      'those before it are in force',
    )
  },
)
