import { Agent } from 'node:https'
import t from 'tap'
import { past } from '../../../support/db/raw.ts'
import { type Identity, type TestGateway, testGateway } from '../../../support/gateway.ts'
import { as, operatorNamed, operatorOnTheMachine, ownerOnTheMachine } from '../../../support/operators.ts'

const files = (kinds: string) => ({ '70-operators.yaml': `plugin: operators\ntwo_person: [${kinds}]\n` })
const MOST = 1_000
const MOST_OWN = 100
const MAX_INPUT = 65_536

/** Asks over connections that stay: a hundred hand-shakes say nothing. */
function kept(t: { teardown: (end: () => void) => void }, gateway: TestGateway, who: Identity) {
  const agent = new Agent({ ca: gateway.ca, cert: who.cert, key: who.key, keepAlive: true })
  t.teardown(() => agent.destroy())
  return (method: string, path: string, body?: unknown) =>
    gateway.call(who, method, path, { agent, ...(body !== undefined && { body }) })
}

await t.test('who may not make a change proposes nothing, and its refusal is the only row', async (t) => {
  const gateway = await testGateway(t, { files: files('grant, tools, operators') })
  await ownerOnTheMachine(gateway, 'alice')
  await ownerOnTheMachine(gateway, 'bob')
  const bot = await gateway.enroll('bot', [])
  const carol = as(gateway, await operatorOnTheMachine(gateway, 'carol', ['admin.read', 'admin.enroll']))
  for (const [method, path, body, missing] of [
    ['PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities: [] }, 'admin.grant'],
    ['POST', '/v1/admin/users', { user_name: 'ada', capabilities: ['llm.chat'] }, 'admin.grant'],
    ['POST', '/v1/admin/mcp-resources', { name: 'x', endpoint_url: 'https://x.example' }, 'admin.tools'],
    ['POST', '/v1/admin/operators', { operator_name: 'puppet' }, 'admin.operators'],
  ] as const) {
    const refused = await carol(method, path, body)
    t.equal(refused.status, 403, path)
    t.equal(refused.json.detail.required_capability, missing, path)
  }
  t.same((await carol('GET', '/v1/admin/proposals')).json.proposals, [])
  t.same(await gateway.rows({ action: 'proposal.created' }), [])
  t.equal((await gateway.rows({ principal: 'acme::operator::carol', status: 'denied' })).length, 4)
})

await t.test('a proposal holds 64 KiB and no more', async (t) => {
  const gateway = await testGateway(t, { files: files('operators') })
  const alice = as(gateway, await ownerOnTheMachine(gateway, 'alice'))
  const { id } = await ownerOnTheMachine(gateway, 'bob')
  const path = `/v1/admin/operators/${id}/certificate`
  const around = JSON.stringify({ params: { id }, body: { csr_pem: '' }, query: {} }).length
  const asked = (bytes: number) => alice('POST', path, { csr_pem: 'x'.repeat(bytes - around) })
  const full = await asked(MAX_INPUT + 1)
  t.match(full, { status: 409, json: { reason: 'proposals_full', message: /64 KiB/ } })
  t.match((await asked(MAX_INPUT)).json, { proposal_id: /^prop_/ })
  t.equal((await gateway.rows({ action: 'proposal.created' })).length, 1)
})

await t.test('an operator has a hundred open proposals at most, however many it sends at once', async (t) => {
  const gateway = await testGateway(t, { files: files('grant') })
  const granter = ['admin.read', 'admin.grant']
  const alice = kept(t, gateway, await operatorNamed(gateway, 'alice', granter))
  const bob = kept(t, gateway, await operatorNamed(gateway, 'bob', granter))
  const bot = await gateway.enroll('bot', [])
  const path = `/v1/admin/agents/${bot.id}/capabilities`
  const propose = (ask: typeof alice) => ask('PATCH', path, { capabilities: ['llm.chat'] })
  const answers = await Promise.all(Array.from({ length: MOST_OWN + 10 }, () => propose(alice)))
  const statuses = answers.map(({ status }) => status)
  t.equal(statuses.filter((status) => status === 202).length, MOST_OWN)
  t.same(
    answers.filter(({ status }) => status !== 202).map(({ json }) => json.reason),
    Array.from({ length: 10 }, () => 'proposals_full'),
  )
  t.equal((await propose(bob)).status, 202, 'somebody else has his own')
  const [{ id }] = (await alice('GET', '/v1/admin/proposals?status=open&limit=1')).json.proposals
  const first = answers.find(({ status }) => status === 202)?.json.proposal_id
  t.not(id, first)
  t.equal((await alice('POST', `/v1/admin/proposals/${first}/decline`)).status, 204)
  t.equal((await propose(alice)).status, 202, 'one that was withdrawn counts no more')
  t.equal((await propose(alice)).json.reason, 'proposals_full')
  t.equal((await gateway.rows({ action: 'proposal.created', limit: 1000 })).length, MOST_OWN + 2)
})

await t.test('a thousand proposals are open at most', async (t) => {
  const gateway = await testGateway(t, { files: files('grant') })
  const granter = ['admin.read', 'admin.grant']
  const alice = as(gateway, await operatorNamed(gateway, 'alice', granter))
  const bob = as(gateway, await operatorNamed(gateway, 'bob', granter))
  const bot = await gateway.enroll('bot', [])
  const path = `/v1/admin/agents/${bot.id}/capabilities`
  const propose = () => alice('PATCH', path, { capabilities: ['llm.chat'] })
  const { proposal_id: own } = (await propose()).json
  // As others have made them.
  const copies = `(select 1 as n union all select n + 1 from copies where n < ${MOST - 1})`
  const same = 'operation, action, capabilities, input, etag'
  await past(
    gateway.settings.databaseUrl,
    `with recursive copies as ${copies} insert into proposals (proposal_id, ${same}, proposed_by, via, status, created_at, expires_at)
     select 'prop_' || n, ${same}, 'acme::operator::' || n, via, status, created_at, expires_at
     from proposals, copies`,
  )
  t.equal((await propose()).json.reason, 'proposals_full')
  t.equal((await bob('POST', `/v1/admin/proposals/${own}/decline`)).status, 204)
  t.equal((await propose()).status, 202)
  t.equal((await propose()).json.reason, 'proposals_full')
})
