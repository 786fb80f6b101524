import t, { type Test } from 'tap'
import { CHAT, type TestOptions, testGateway } from '../../../support/gateway.ts'
import { as, operatorNamed, ownerOnTheMachine } from '../../../support/operators.ts'

const AGENTS = '/v1/admin/agents'
const BULK = `${AGENTS}/capabilities`

/** Three agents, two of them of the red team, and what an operator asks. */
async function stageOf(t: Test, options: TestOptions = {}) {
  const gateway = await testGateway(t, options)
  const { admin } = gateway
  const one = await gateway.enroll('one', ['llm.chat'])
  await gateway.enroll('two', ['files.read', 'llm.chat'])
  await gateway.enroll('three', ['llm.chat'])
  for (const name of ['one', 'two'])
    t.equal((await admin('PUT', `${AGENTS}/acme::${name}/labels`, { labels: { team: 'red' } })).status, 200)
  const held = async (): Promise<readonly unknown[]> =>
    Promise.all(
      ['one', 'two', 'three'].map(
        async (name) => (await admin('GET', `${AGENTS}/acme::${name}`)).json.capabilities,
      ),
    )
  const bulk = (body: object, headers = {}, query = '') => admin('POST', `${BULK}${query}`, body, headers)
  const shown = (body: object) => bulk(body, {}, '?dry_run=true')
  /** Shows a change, and makes it as it was shown. */
  const made = async (body: object) => bulk({ ...body, etags: (await shown(body)).json.etags })
  return { gateway, one, admin, held, bulk, shown, made }
}

const RED = { q: 'label:team=red' }

await t.test('all that a search finds are changed at once, as shown, with a row for each', async (t) => {
  const { gateway, one, admin, held, bulk, shown, made } = await stageOf(t)
  t.equal((await gateway.call(one, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
  const removal = { ...RED, remove: ['llm.chat'], add: ['files.read'] }
  const dry = await shown(removal)
  t.match(dry, {
    status: 200,
    json: {
      ...{ found: 2, changed: 2 },
      principals: [
        { principal_id: 'acme::one', previous: ['llm.chat'], capabilities: ['files.read'] },
        { principal_id: 'acme::two', capabilities: ['files.read'] },
      ],
      etags: { 'acme::one': /^"\d+"$/, 'acme::two': /^"\d+"$/ },
      rehearsal: { totals: { newly_refused: 1 } },
    },
  })
  const before = await held()
  t.match(await bulk(removal), { status: 422, json: { detail: { errors: [{ field: 'etags' }] } } })
  t.same(await held(), before, 'nothing is changed unseen')
  t.match(await bulk({ ...removal, etags: dry.json.etags }), { status: 200, json: { found: 2, changed: 2 } })
  t.same(await held(), [['files.read'], ['files.read'], ['llm.chat']])
  t.equal((await gateway.call(one, 'POST', '/v1/chat/completions', { body: CHAT })).status, 403, 'at once')
  const rows = await gateway.rows({ action: 'agent.capabilities_patched', order: 'asc' })
  t.match(
    rows.map(({ detail }) => detail),
    [
      { subject: 'acme::one', capabilities: ['files.read'], previous: ['llm.chat'] },
      { subject: 'acme::two', capabilities: ['files.read'], previous: ['files.read', 'llm.chat'] },
    ],
  )
  t.equal(new Set(rows.map(({ request_id: id }) => id)).size, 1, 'one unit')
  t.match((await made(removal)).json, { found: 2, changed: 0, principals: [] }, 'and no row the second time')
  t.match((await made({ ...RED, replace: ['a'] })).json, { changed: 2 })
  t.same(await held(), [['a'], ['a'], ['llm.chat']])
  t.equal((await gateway.rows({ action: 'agent.capabilities_patched' })).length, 4)

  for (const [body, field, message] of [
    [{ q: ' ', add: ['a'] }, 'q', /look for some/],
    [RED, 'body', /one of add/],
    [{ ...RED, add: ['a'], replace: [] }, 'body', /one of add/],
    [{ ...RED, add: ['A'] }, 'add[0]', /./],
    [{ ...RED, add: ['admin.read'] }, 'add[0]', /operators only/],
    [{ ...RED, add: Array.from({ length: 64 }, (_, at) => `x${at}`) }, 'add', /acme::one, acme::two/],
    [{ q: 'is:rich', add: ['a'] }, 'q', /is: takes/],
  ] as const) {
    const refused = await shown(body)
    t.match(refused, { status: 422, json: { detail: { errors: [{ field, message }] } } }, refused.text)
  }
  t.equal((await shown({ ...RED, set: 'nobody' })).status, 404)
  const viewer = as(gateway, await operatorNamed(gateway, 'vera', ['admin.read', 'admin.enroll']))
  t.equal((await viewer('POST', BULK, { ...RED, add: ['a'] })).status, 403)
  const granter = as(gateway, await operatorNamed(gateway, 'greg', ['admin.grant']))
  t.match(await granter('POST', `${BULK}?dry_run=true`, { q: 'denied:1d', add: ['a'] }), {
    status: 403,
    json: { required_capability: 'admin.audit' },
  })
  t.equal((await granter('POST', `${BULK}?dry_run=true`, { ...RED, add: ['b'] })).status, 200)
  t.equal((await admin('POST', '/v1/admin/operators/capabilities', { ...RED, add: [] })).status, 405)
})

await t.test('one that was changed meanwhile has the whole unit refused, by name', async (t) => {
  const { gateway, admin, held, bulk, shown } = await stageOf(t)
  const change = { ...RED, add: ['b'] }
  const set = '/v1/admin/sets/researcher'
  t.equal((await admin('PUT', set, { capabilities: ['llm.chat'] })).status, 200)
  for (const [body, others, named] of [
    [change, () => admin('PATCH', `${AGENTS}/acme::two/capabilities`, { capabilities: ['c'] }), 'acme::two'],
    [change, () => admin('PUT', `${AGENTS}/acme::three/labels`, { labels: { team: 'red' } }), 'acme::three'],
    [change, () => admin('PUT', `${AGENTS}/acme::one/labels`, { labels: {} }), 'acme::one'],
    [change, () => admin('DELETE', `${AGENTS}/acme::two`), 'acme::two'],
    [{ ...RED, set: 'researcher' }, () => admin('PUT', set, { capabilities: ['d'] }), 'set:researcher'],
  ] as const) {
    const { etags } = (await shown(body)).json
    t.ok([200, 204].includes((await others()).status))
    const before = await held()
    const refused = await bulk({ ...body, etags })
    t.match(
      refused,
      { status: 412, json: { message: new RegExp(named), detail: { changed: [named] } } },
      named,
    )
    t.same(await held(), before, 'nothing half-done')
  }
  // Between the reading and the writing: whoever comes second is refused whole, or comes after the other.
  const { etags } = (await shown(change)).json
  const both = await Promise.all([bulk({ ...change, etags }), bulk({ ...RED, add: ['e'], etags })])
  t.same(
    both.map(({ status }) => status).toSorted((a, b) => a - b),
    [200, 412],
  )
  const rows = await gateway.rows({ action: 'agent.capabilities_patched' })
  t.equal(rows.length, 3, 'one of one agent, and those of the unit that was stored')
})

await t.test('a named set is given, drifted from, and given again', async (t) => {
  const { admin, held, made } = await stageOf(t)
  const set = '/v1/admin/sets/researcher'
  const capabilities = ['llm.chat', 'files.read']
  t.equal((await admin('PUT', set, { capabilities })).status, 200)
  t.match((await made({ ...RED, set: 'researcher' })).json, { found: 2, changed: 2 })
  t.same(await held(), [capabilities, capabilities, ['llm.chat']])
  const counts = async () => (await admin('GET', '/v1/admin/sets')).json.sets[0]
  t.match(await counts(), { principals: { agent: 2 }, drifted: {} })
  t.equal((await admin('PATCH', `${AGENTS}/acme::two/capabilities`, { capabilities: ['x'] })).status, 200)
  t.match(await counts(), { principals: { agent: 2 }, drifted: { agent: 1 } })
  const drifted = { q: 'set:researcher is:drifted' }
  const found = await admin('GET', `${AGENTS}?q=${encodeURIComponent(drifted.q)}`)
  t.match(found.json, [{ agent_id: 'acme::two', capability_set: 'researcher', capabilities: ['x'] }])
  t.equal(found.json.length, 1)
  t.match((await made({ ...drifted, set: 'researcher' })).json, { found: 1, changed: 1 })
  t.same((await held())[1], capabilities)
  t.match((await admin('GET', `${AGENTS}?sort=set`)).json[2], { agent_id: 'acme::three' })
  t.match((await made({ q: 'set:researcher', add: ['y'] })).json, { changed: 2 })
  t.match(await counts(), { drifted: { agent: 2 } }, 'one that holds more has drifted too')
  t.match((await made({ q: 'one', replace: ['y'] })).json, { found: 1, changed: 1 })
  t.match(await counts(), { principals: { agent: 1 } }, 'a set of its own ends the named one')
  t.equal((await admin('DELETE', set)).status, 204)
  t.match((await admin('GET', `${AGENTS}/acme::two`)).json, {
    capability_set: null,
    capabilities: [...capabilities, 'y'],
  })
})

await t.test('the rules of one change hold for a unit: two people, rehearsals, expectations', async (t) => {
  const rules = 'plugin: operators\ntwo_person: [grant]\nrequire_rehearsal: always\n'
  const { gateway, held, shown } = await stageOf(t, {
    files: {
      '70-operators.yaml': rules,
      '90-expect.yaml': 'plugin: expect\nexpect: ["acme::one may use model *"]\n',
    },
  })
  const alice = as(gateway, await ownerOnTheMachine(gateway, 'alice'))
  const bob = as(gateway, await ownerOnTheMachine(gateway, 'bob'))
  const proposed = async (change: object, query = '') => {
    const { etags } = (await shown({ ...RED, ...change })).json
    const asked = { ...RED, ...change, etags }
    t.match(await alice('POST', BULK, asked), { status: 428, json: { reason: 'rehearsal_required' } })
    const rehearsed = await alice('POST', '/v1/admin/rehearsals', {
      changes: [],
      bulk: { type: 'agent', ...RED, ...change },
    })
    t.equal(rehearsed.status, 200, rehearsed.text)
    return alice('POST', `${BULK}${query}`, asked, { 'if-rehearsed': rehearsed.json.id })
  }
  const before = await held()
  t.match(await proposed({ remove: ['llm.chat'] }), { status: 409, json: { reason: 'expectation_broken' } })
  const waiting = await proposed({ add: ['b'] })
  t.equal(waiting.status, 202, waiting.text)
  t.same(await held(), before, 'it waits')
  const confirm = `/v1/admin/proposals/${waiting.json.proposal_id}/confirm`
  t.equal((await alice('POST', confirm)).status, 403)
  t.match(await bob('POST', confirm), { status: 200, json: { changed: 2 } })
  const rows = await gateway.rows({ action: 'agent.capabilities_patched' })
  t.match(
    rows.map(({ detail }) => detail),
    [{ proposal: waiting.json.proposal_id }, { confirmed_by: 'acme::operator::bob', rehearsal: /^reh_/ }],
  )
  const late = await proposed({ add: ['c'] })
  t.equal((await alice('PUT', `${AGENTS}/acme::two/labels`, { labels: { team: 'blue' } })).status, 200)
  const refused = await bob('POST', `/v1/admin/proposals/${late.json.proposal_id}/confirm`)
  t.match(refused, { status: 412, json: { message: /acme::two/ } }, refused.text)
  const { json } = await alice('GET', `/v1/admin/proposals/${late.json.proposal_id}`)
  t.equal(json.status, 'void')

  // The second operator confirms what the set held, whoever deletes it and makes another of its name.
  const set = '/v1/admin/sets/helper'
  t.equal((await alice('PUT', set, { capabilities: ['llm.chat', 'b'] })).status, 200)
  const swapped = await proposed({ set: 'helper' })
  t.equal(swapped.status, 202, swapped.text)
  t.equal((await alice('DELETE', set)).status, 204)
  t.equal((await alice('PUT', set, { capabilities: ['llm.chat', 'evil'] })).status, 200)
  const other = await bob('POST', `/v1/admin/proposals/${swapped.json.proposal_id}/confirm`)
  t.match(other, { status: 412, json: { message: /set:helper/ } }, other.text)
  t.notOk((await held()).flat().includes('evil'))
})

await t.test('very many are found once, changed at once, and no more than that', async (t) => {
  const gateway = await testGateway(t)
  const { admin } = gateway
  const COUNT = 130
  for (let at = 0; at < COUNT; at += 1)
    t.equal((await admin('POST', '/v1/admin/users', { user_name: `u${at}` })).status, 201)
  const users = '/v1/admin/users/capabilities'
  const change = { q: 'acme', add: ['llm.chat'] }
  const dry = await admin('POST', `${users}?dry_run=true`, change)
  t.match(dry, { status: 200, json: { found: COUNT, changed: COUNT } }, dry.text.slice(0, 500))
  const done = await admin('POST', users, { ...change, etags: dry.json.etags })
  t.match(done, { status: 200, json: { changed: COUNT } }, done.text.slice(0, 500))
  t.equal((await gateway.rows({ action: 'user.capabilities_patched', limit: 1000 })).length, COUNT)
  const { json } = await admin('GET', '/v1/admin/users?q=cap:llm.chat&limit=1000')
  t.equal(json.users.length, COUNT)
})
