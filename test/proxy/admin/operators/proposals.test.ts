import t from 'tap'
import { controlPath } from '../../../../proxy/http/control-socket.ts'
import { overSocket } from '../../../support/control.ts'
import { CHAT, PLUGIN_FILES, testGateway } from '../../../support/gateway.ts'
import { as, operatorNamed } from '../../../support/operators.ts'

const files = (two: string) => ({
  ...PLUGIN_FILES,
  '70-operators.yaml': `plugin: operators\ntwo_person: [${two}]\n`,
})
const GRANTER = ['admin.read', 'admin.grant', 'admin.enroll']

await t.test('a change that needs two people is applied by the word of another operator', async (t) => {
  const gateway = await testGateway(t, { files: files('grant') })
  const alice = as(gateway, await operatorNamed(gateway, 'alice', GRANTER))
  const bob = as(gateway, await operatorNamed(gateway, 'bob', GRANTER))
  const bot = await gateway.enroll('bot', [])
  const path = `/v1/admin/agents/${bot.id}/capabilities`
  const proposed = await alice('PATCH', path, { capabilities: ['llm.chat'] })
  t.equal(proposed.status, 202, proposed.text)
  const { proposal_id: id } = proposed.json
  t.match(proposed.json, { proposal_id: /^prop_/, expires_at: /Z$/, rehearsal: /^reh_/ })
  t.same((await alice('GET', `/v1/admin/agents/${bot.id}`)).json.capabilities, [], 'nothing has changed')
  const own = await alice('POST', `/v1/admin/proposals/${id}/confirm`)
  t.equal(own.status, 403)
  t.equal(own.json.reason, 'own_proposal')
  t.equal(
    (await gateway.admin('POST', `/v1/admin/proposals/${id}/confirm`)).json.reason,
    'own_proposal',
    'the secret',
  )
  const { json } = await bob('GET', '/v1/admin/proposals?status=open')
  t.match(json.proposals, [
    { id, by: 'acme::operator::alice', status: 'open', change: { body: { capabilities: ['llm.chat'] } } },
  ])
  const confirmed = await bob('POST', `/v1/admin/proposals/${id}/confirm`)
  t.equal(confirmed.status, 200, confirmed.text)
  t.same(confirmed.json.capabilities, ['llm.chat'])
  t.equal(confirmed.json.changed_by, 'acme::operator::alice')
  t.equal((await bob('POST', `/v1/admin/proposals/${id}/confirm`)).status, 409, 'once')
  const rows = await gateway.rows({ order: 'asc' })
  const about = rows.filter(
    ({ action }) => action.startsWith('proposal.') || action === 'agent.capabilities_patched',
  )
  t.same(
    about
      .filter(({ status }) => status === 'success')
      .map(({ action, principal_id: who }) => `${action} ${who}`),
    [
      'proposal.created acme::operator::alice',
      'agent.capabilities_patched acme::operator::alice',
      'proposal.confirmed acme::operator::bob',
    ],
  )
  t.match(about.find(({ action }) => action === 'agent.capabilities_patched')?.detail, {
    proposal: id,
    confirmed_by: 'acme::operator::bob',
  })
})

await t.test(
  'two people are asked for from the second holder of the capability on, and not on the machine itself',
  async (t) => {
    const gateway = await testGateway(t, { files: files('grant') })
    const alice = as(gateway, await operatorNamed(gateway, 'alice', GRANTER))
    await operatorNamed(gateway, 'carol', ['admin.read', 'admin.enroll'])
    const bot = await gateway.enroll('bot', [])
    const path = `/v1/admin/agents/${bot.id}/capabilities`
    t.equal((await alice('PATCH', path, { capabilities: ['llm.chat'] })).status, 200, 'there is one')
    const bob = await operatorNamed(gateway, 'bob', GRANTER)
    t.equal((await alice('PATCH', path, { capabilities: [] })).status, 202, 'there are two')
    t.equal(
      (await gateway.admin('PATCH', path, { capabilities: [] })).status,
      202,
      'the secret proposes like everybody',
    )
    const local = overSocket(controlPath(gateway.settings.dataDir))
    t.equal((await local('PATCH', path, { capabilities: ['a.b'] })).status, 200, 'on the machine itself')
    t.equal((await gateway.admin('DELETE', `/v1/admin/operators/${bob.id}`)).status, 204)
    t.equal((await alice('PATCH', path, { capabilities: [] })).status, 200, 'there is one again')
  },
)

await t.test(
  'a proposal is void where its object has moved on, or its proposer has lost what it takes',
  async (t) => {
    const gateway = await testGateway(t, { files: files('grant') })
    const alice = as(gateway, await operatorNamed(gateway, 'alice', GRANTER))
    const bob = as(gateway, await operatorNamed(gateway, 'bob', GRANTER))
    const bot = await gateway.enroll('bot', [])
    const path = `/v1/admin/agents/${bot.id}/capabilities`
    const local = overSocket(controlPath(gateway.settings.dataDir))
    const first = (await alice('PATCH', path, { capabilities: ['llm.chat'] })).json.proposal_id
    t.equal((await local('PATCH', path, { capabilities: ['x.y'] })).status, 200)
    t.equal((await bob('POST', `/v1/admin/proposals/${first}/confirm`)).status, 412)
    t.equal((await bob('GET', `/v1/admin/proposals/${first}`)).json.status, 'void')
    const second = (await alice('PATCH', path, { capabilities: ['llm.chat'] })).json.proposal_id
    await local('PATCH', '/v1/admin/operators/acme::operator::alice/capabilities', {
      capabilities: ['admin.read'],
    })
    t.equal((await bob('POST', `/v1/admin/proposals/${second}/confirm`)).status, 412)
    t.same((await bob('GET', `/v1/admin/agents/${bot.id}`)).json.capabilities, ['x.y'])
    t.equal((await gateway.rows({ action: 'proposal.void' })).length, 2)
  },
)

await t.test('a proposal is declined by who could confirm it, and withdrawn by who made it', async (t) => {
  const gateway = await testGateway(t, { files: files('grant') })
  const alice = as(gateway, await operatorNamed(gateway, 'alice', GRANTER))
  const bob = as(gateway, await operatorNamed(gateway, 'bob', GRANTER))
  const carol = as(gateway, await operatorNamed(gateway, 'carol', ['admin.read']))
  const bot = await gateway.enroll('bot', [])
  const propose = async () =>
    (await alice('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities: ['llm.chat'] })).json
      .proposal_id
  const one = await propose()
  for (const verb of ['confirm', 'decline']) {
    const refused = await carol('POST', `/v1/admin/proposals/${one}/${verb}`)
    t.equal(refused.json.detail.required_capability, 'admin.grant', verb)
  }
  t.equal((await bob('POST', `/v1/admin/proposals/${one}/decline`)).status, 204)
  t.equal((await bob('POST', `/v1/admin/proposals/${one}/confirm`)).status, 409)
  const two = await propose()
  t.equal((await alice('POST', `/v1/admin/proposals/${two}/decline`)).status, 204)
  t.equal((await gateway.rows({ action: 'proposal.declined', status: 'success' })).length, 2)
  t.equal((await bob('POST', '/v1/admin/proposals/prop_0/confirm')).status, 404)
})

await t.test('of a confirmation and another one at once, one makes the change', async (t) => {
  const gateway = await testGateway(t, { files: files('grant') })
  const alice = as(gateway, await operatorNamed(gateway, 'alice', GRANTER))
  const bob = as(gateway, await operatorNamed(gateway, 'bob', GRANTER))
  const carol = as(gateway, await operatorNamed(gateway, 'carol', GRANTER))
  const made = await alice('POST', '/v1/admin/users', { user_name: 'ada', capabilities: ['llm.chat'] })
  t.equal(made.status, 202, 'a set at once is a grant')
  const { proposal_id: id } = made.json
  const verbs = [bob, carol, bob, carol].map((who, i) =>
    who('POST', `/v1/admin/proposals/${id}/${i === 3 ? 'decline' : 'confirm'}`),
  )
  const statuses = (await Promise.all(verbs)).map(({ status }) => status)
  t.equal(statuses.filter((status) => status < 300).length, 1, statuses.join())
  const created = await gateway.rows({ action: 'user.created' })
  t.ok(created.length <= 1)
})

await t.test('what holds a secret is not kept for somebody to confirm', async (t) => {
  const gateway = await testGateway(t, { files: files('grant, tools, operators') })
  const owner = ['admin.read', 'admin.enroll', 'admin.grant', 'admin.tools', 'admin.operators']
  await operatorNamed(gateway, 'bob', owner)
  const local = overSocket(controlPath(gateway.settings.dataDir))
  await local('POST', '/v1/admin/operators', { operator_name: 'alice', capabilities: owner })
  for (const [path, body] of [
    ['/v1/admin/agents', { agent_name: 'bot', capabilities: ['llm.chat'] }],
    ['/v1/admin/secret/rotate', { new_secret: 'a-secret-that-is-new' }],
    ['/v1/admin/signing-key/rotate', undefined],
    ['/v1/admin/operators/acme::operator::bob/rotate-cert', {}],
  ] as const) {
    const refused = await gateway.admin('POST', path, body)
    t.equal(refused.json.reason, 'two_people_required', path)
  }
  t.equal(
    (await gateway.admin('POST', '/v1/admin/agents', { agent_name: 'bot' })).status,
    201,
    'an empty set is no grant',
  )
  const { json } = await gateway.admin('GET', '/v1/admin/proposals')
  t.same(json.proposals, [])
})

await t.test('a proposal comes with its rehearsal, or with the one that its proposer names', async (t) => {
  const gateway = await testGateway(t, { files: files('grant') })
  const alice = as(gateway, await operatorNamed(gateway, 'alice', GRANTER))
  const bob = as(gateway, await operatorNamed(gateway, 'bob', GRANTER))
  const bot = await gateway.enroll('bot', [])
  await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
  const path = `/v1/admin/agents/${bot.id}/capabilities`
  const { json: proposed } = await alice('PATCH', path, { capabilities: ['llm.chat'] })
  const rehearsal = await bob('GET', `/v1/admin/rehearsals/${proposed.rehearsal}`)
  t.match(
    rehearsal,
    { status: 200, json: { totals: { newly_allowed: 1 } } },
    'the second person sees what it does',
  )
  t.match((await bob('GET', `/v1/admin/proposals/${proposed.proposal_id}`)).json, {
    rehearsal: proposed.rehearsal,
  })
  t.equal((await bob('POST', `/v1/admin/proposals/${proposed.proposal_id}/confirm`)).status, 200)
  const [row] = await gateway.rows({ action: 'agent.capabilities_patched' })
  t.match(row?.detail, { proposal: proposed.proposal_id, rehearsal: proposed.rehearsal })

  const changes = [{ principal: bot.id, capabilities: ['x'] }]
  const own = await alice('POST', '/v1/admin/rehearsals', { changes })
  const named = await alice('PATCH', path, { capabilities: ['x'] }, { 'if-rehearsed': own.json.id })
  t.match(named, { status: 202, json: { rehearsal: own.json.id } })
  t.equal((await gateway.rows({ action: 'rehearsal.done' })).length, 2, 'and no third')
  // What a rehearsal cannot describe has none.
  const created = await alice('POST', '/v1/admin/agents', { agent_name: 'new', capabilities: ['x'] })
  t.match(created, { status: 409, json: { reason: 'two_people_required' } })
  const user = await alice('POST', '/v1/admin/users', { user_name: 'new', capabilities: ['x'] })
  t.match(user, { status: 202, json: { rehearsal: null } })
})
