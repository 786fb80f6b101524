import { hash } from 'node:crypto'
import t from 'tap'
import { ADMIN_CAPABILITIES } from '../../../../plugins/operators/capabilities.ts'
import { past } from '../../../support/db/raw.ts'
import { type TestGateway, testGateway } from '../../../support/gateway.ts'
import { mcpStage, tool, toolServer } from '../../../support/mcp/stage.ts'
import { as, onTheMachine, operatorOnTheMachine, ownerOnTheMachine } from '../../../support/operators.ts'

const files = (kinds: string) => ({ '70-operators.yaml': `plugin: operators\ntwo_person: [${kinds}]\n` })
const operators = '/v1/admin/operators/acme::operator'

/** A gateway with alice and bob, who hold all there is, and an agent without anything. */
async function stageOfTwo(gateway: TestGateway) {
  const alice = as(gateway, await ownerOnTheMachine(gateway, 'alice'))
  const bob = as(gateway, await ownerOnTheMachine(gateway, 'bob'))
  const bot = await gateway.enroll('bot', [])
  const path = `/v1/admin/agents/${bot.id}/capabilities`
  const propose = async (capabilities: readonly string[] = ['llm.chat']): Promise<string> =>
    (await alice('PATCH', path, { capabilities })).json.proposal_id
  const held = async () => (await alice('GET', `/v1/admin/agents/${bot.id}`)).json.capabilities
  const statusOf = async (id: string) => (await alice('GET', `/v1/admin/proposals/${id}`)).json.status
  return { alice, bob, bot, path, propose, held, statusOf, machine: onTheMachine(gateway) }
}

const confirm = (id: string) => ['POST', `/v1/admin/proposals/${id}/confirm`] as const
const decline = (id: string) => ['POST', `/v1/admin/proposals/${id}/decline`] as const

await t.test('who has lost the capability since, or was deactivated, confirms nothing', async (t) => {
  const gateway = await testGateway(t, { files: files('grant') })
  const { bob, propose, held, statusOf, machine } = await stageOfTwo(gateway)
  const id = await propose()
  await machine('PATCH', `${operators}::bob/capabilities`, { capabilities: ['admin.read', 'admin.enroll'] })
  const lost = await bob(...confirm(id))
  t.equal(lost.status, 403)
  t.equal(lost.json.detail.required_capability, 'admin.grant')
  await machine('DELETE', `${operators}::bob`)
  t.equal((await bob(...confirm(id))).status, 401)
  t.equal(await statusOf(id), 'open')
  t.same(await held(), [])
  await machine('POST', `${operators}::bob/reactivate`)
  await machine('PATCH', `${operators}::bob/capabilities`, { capabilities: ADMIN_CAPABILITIES })
  t.equal((await bob(...confirm(id))).status, 200)
  t.same(await held(), ['llm.chat'])
  const denied = await gateway.rows({ action: 'proposal.confirmed', status: 'denied' })
  t.match(denied, [{ principal_id: 'acme::operator::bob', detail: { reason: 'capability_missing' } }])
})

await t.test(
  'a proposal is void once its proposer is out of service, even where it is back later',
  async (t) => {
    const gateway = await testGateway(t, { files: files('grant') })
    const { bob, propose, held, statusOf, machine } = await stageOfTwo(gateway)
    const [one, other] = [await propose(), await propose(['x.y'])]
    await machine('DELETE', `${operators}::alice`)
    t.equal((await bob(...confirm(one))).status, 412)
    await machine('POST', `${operators}::alice/reactivate`)
    t.equal(
      (await bob(...confirm(one))).json.message,
      'This proposal is already void. To make the change, propose it again.',
    )
    t.equal(await statusOf(one), 'void')
    t.equal((await bob(...confirm(other))).status, 200, 'the one that nobody has looked at meanwhile')
    t.same(await held(), ['x.y'])
  },
)

await t.test(
  'of two proposals about one object, confirmed at once, one is made and one is void',
  async (t) => {
    const gateway = await testGateway(t, { files: files('grant') })
    const { bob, propose, held, statusOf } = await stageOfTwo(gateway)
    for (let round = 0; round < 6; round += 1) {
      const sets = [[`one.n${round}`], [`other.n${round}`]]
      const ids = [await propose(sets[0]), await propose(sets[1])]
      const statuses = (await Promise.all(ids.map((id) => bob(...confirm(id))))).map(({ status }) => status)
      t.same(
        statuses.toSorted((a, b) => a - b),
        [200, 412],
      )
      const made = statuses.indexOf(200)
      t.same(await held(), sets[made])
      t.same(await Promise.all(ids.map(statusOf)), made === 0 ? ['confirmed', 'void'] : ['void', 'confirmed'])
    }
  },
)

await t.test('a proposal that is confirmed by several at once is confirmed by one', async (t) => {
  const gateway = await testGateway(t, { files: files('grant') })
  const { bob, propose, statusOf } = await stageOfTwo(gateway)
  const carol = as(gateway, await ownerOnTheMachine(gateway, 'carol'))
  const id = await propose()
  const asked = [bob, carol, bob, carol, bob, carol].map((who) => who(...confirm(id)))
  const statuses = (await Promise.all(asked)).map(({ status }) => status)
  t.same(
    statuses.toSorted((a, b) => a - b),
    [200, 409, 409, 409, 409, 409],
  )
  t.equal(await statusOf(id), 'confirmed')
  t.equal((await gateway.rows({ action: 'agent.capabilities_patched' })).length, 1)
  t.equal((await gateway.rows({ action: 'proposal.confirmed', status: 'success' })).length, 1)
})

await t.test('an If-Match that does not match is refused when it is proposed', async (t) => {
  const gateway = await testGateway(t, { files: files('grant') })
  const { alice, bob, path, propose } = await stageOfTwo(gateway)
  const body = { capabilities: ['llm.chat'] }
  t.equal((await alice('PATCH', path, body, { 'if-match': '"7"' })).status, 412)
  const proposed = await alice('PATCH', path, body, { 'if-match': '"1"' })
  t.equal(proposed.status, 202)
  // By any state there was: still it is made to the state that it was proposed for.
  const any = await alice('PATCH', path, body, { 'if-match': '*' })
  t.equal((await bob(...confirm(await propose(['x.y'])))).status, 200)
  for (const { json } of [proposed, any]) t.equal((await bob(...confirm(json.proposal_id))).status, 412)
})

await t.test('the secret proposes, withdraws what is its own, and decides nothing else', async (t) => {
  const gateway = await testGateway(t, { files: files('grant') })
  const { bob, path, propose, held, machine } = await stageOfTwo(gateway)
  const theirs = await propose()
  const bySecret = async () =>
    (await gateway.admin('PATCH', path, { capabilities: ['a.b'] })).json.proposal_id as string
  const own = await bySecret()
  for (const asked of [confirm(own), confirm(theirs), decline(theirs)]) {
    const [method, path] = asked
    const refused = await gateway.admin(method, path)
    t.equal(refused.status, 403, path)
    t.equal(refused.json.reason, 'own_proposal')
  }
  t.equal((await gateway.admin(...decline(own))).status, 204)
  const again = await bySecret()
  t.equal((await bob(...confirm(again))).json.changed_by, 'admin')
  t.same(await held(), ['a.b'])
  const last = await bySecret()
  await machine('POST', '/v1/admin/secret/disable')
  t.equal((await bob(...confirm(last))).status, 412, 'a secret that opens nothing has proposed nothing')
  t.same(await held(), ['a.b'])
  await machine('POST', '/v1/admin/secret/enable')
})

await t.test('on the machine itself it is done at once, and each row says so', async (t) => {
  const gateway = await testGateway(t, { files: files('grant, tools, operators') })
  const { path, propose, held, machine } = await stageOfTwo(gateway)
  const proposed = await propose()
  t.equal((await machine('PATCH', path, { capabilities: ['a.b'] })).status, 200)
  t.same(await held(), ['a.b'])
  t.equal((await machine('POST', '/v1/admin/signing-key/rotate')).status, 200)
  t.equal((await machine('POST', `/v1/admin/proposals/${proposed}/decline`)).status, 204)
  const rows = await gateway.rows({ order: 'asc', limit: 1000 })
  const own = rows.filter(({ principal_id: who }) => who?.startsWith('socket:'))
  t.same(
    own.slice(-3).map(({ action, detail }) => [action, detail.via]),
    [
      ['agent.capabilities_patched', 'socket'],
      ['admin.signing_key_rotated', 'socket'],
      ['proposal.declined', 'socket'],
    ],
  )
  t.notOk('proposal' in (own.at(-3)?.detail ?? {}), 'nobody has confirmed it')
})

await t.test('what one person must not do is not kept either: of itself it raises nothing', async (t) => {
  const gateway = await testGateway(t, { files: files('operators') })
  const less = ['admin.read', 'admin.operators']
  const alice = as(gateway, await operatorOnTheMachine(gateway, 'alice', less))
  const bob = as(gateway, await ownerOnTheMachine(gateway, 'bob'))
  const raised = await alice('PATCH', `${operators}::alice/capabilities`, {
    capabilities: ADMIN_CAPABILITIES,
  })
  t.equal(raised.status, 202)
  const refused = await bob(...confirm(raised.json.proposal_id))
  t.equal(refused.json.reason, 'own_authority', 'whoever confirms it')
  t.same((await bob('GET', `${operators}::alice`)).json.capabilities, less)
})

await t.test('a binding is made, and revoked, by two', async (t) => {
  const stage = await mcpStage(t, { files: files('grant') })
  const { alice, bob, bot, machine, statusOf } = await stageOfTwo(stage)
  const resource = await stage.register('files', await toolServer(t, [tool('read')]))
  const bindings = '/v1/admin/mcp-resources/bindings'
  const bound = await alice('POST', bindings, { agent_id: bot.id, resource_id: resource.resource_id })
  t.equal(bound.status, 202)
  t.same((await bob('GET', bindings)).json, [])
  const { json } = await bob(...confirm(bound.json.proposal_id))
  t.match(json, { agent_id: bot.id, created_by: 'acme::operator::alice' })
  const path = `${bindings}/${json.binding_id}`
  const proposed = [await alice('DELETE', path), await alice('DELETE', path)]
  const [one, other] = proposed.map((answer) => answer.json.proposal_id as string)
  t.equal((await bob(...confirm(one ?? ''))).status, 200)
  t.same((await bob('GET', bindings)).json, [])
  t.equal((await bob(...confirm(other ?? ''))).status, 412, 'what is gone is not as it was')
  t.equal(await statusOf(other ?? ''), 'void')
  t.equal((await alice('DELETE', path)).status, 404, 'and nothing is proposed about it')
  t.equal((await machine('GET', bindings)).status, 200)
})

await t.test('docs/ledger.md#erasure no row about a proposal tells of a person who is erased', async (t) => {
  const gateway = await testGateway(t, { files: files('grant') })
  const { alice, bob } = await stageOfTwo(gateway)
  const body = { user_name: 'ada', capabilities: ['llm.chat'] }
  const made = await alice('POST', '/v1/admin/users', body)
  const { json } = await bob(...confirm(made.json.proposal_id))
  const params = { id: json.principal_id }
  const lowered = { capabilities: [] }
  const path = `/v1/admin/users/${params.id}/capabilities`
  const declined = (await alice('PATCH', path, lowered)).json.proposal_id
  t.equal((await bob(...decline(declined))).status, 204)
  t.equal((await alice('POST', `/v1/admin/users/${params.id}/erase`)).status, 204)
  const rows = (await gateway.rows()).filter(({ action }) => /^(proposal|user)\./.test(action))
  t.equal(rows.length, 6)
  const ledger = JSON.stringify(rows)
  t.notMatch(ledger, /\bada\b/)
  // Whoever guesses a name knows what would have been asked.
  for (const input of [
    { params: {}, body, query: {} },
    { params, body: lowered, query: {} },
  ])
    t.notMatch(ledger, hash('sha256', JSON.stringify(input)))
  const { proposals } = (await bob('GET', '/v1/admin/proposals')).json
  t.notMatch(JSON.stringify(proposals), /\bada\b/)
})

await t.test('a proposal whose table was edited is void: its id is of what was proposed', async (t) => {
  const gateway = await testGateway(t, { files: files('grant'), editsTables: true })
  const { bob, propose, held, statusOf } = await stageOfTwo(gateway)
  const edits = [
    "input = replace(input, 'llm.chat', 'mcp.tools.call')",
    "proposed_by = 'acme::operator::bob2'",
    "via = 'secret'",
    "expires_at = '2999-01-01T00:00:00.000Z'",
    'etag = null',
  ]
  for (const edit of edits) {
    const id = await propose()
    await past(gateway.settings.databaseUrl, `update proposals set ${edit} where proposal_id = '${id}'`)
    const { status, json } = await bob(...confirm(id))
    t.match({ status, message: json.message }, { status: 412, message: /its table was edited/ }, edit)
    t.equal(await statusOf(id), 'void')
  }
  t.same(await held(), [])
  const sound = await propose()
  t.equal((await bob(...confirm(sound))).status, 200)
  t.same(await held(), ['llm.chat'])
})
