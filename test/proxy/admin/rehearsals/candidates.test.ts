import t, { type Test } from 'tap'
import { CHAT, type Identity, PLUGIN_FILES, type TestGateway, testGateway } from '../../../support/gateway.ts'
import { as, operatorNamed } from '../../../support/operators.ts'

const chat = (gateway: TestGateway, who: Identity) =>
  gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })
const list = (gateway: TestGateway, who: Identity) =>
  gateway.call(who, 'POST', '/v1/mcp', { body: { jsonrpc: '2.0', id: 1, method: 'tools/list' } })

const pathOf = ({ id }: Pick<Identity, 'id'>) => `/v1/admin/agents/${id}/candidate`

/** An agent that holds `llm.chat` and `x`, and another set of it to be watched. */
async function watched(t: Test, candidate: readonly string[], yaml = '') {
  const files = { ...PLUGIN_FILES, ...(yaml && { '70-operators.yaml': `plugin: operators\n${yaml}\n` }) }
  const gateway = await testGateway(t, { files })
  const bot = await gateway.enroll('bot', ['llm.chat', 'x'])
  const put = (capabilities: readonly string[], headers = {}) =>
    gateway.admin('PUT', pathOf(bot), { capabilities }, headers)
  const show = async () => (await gateway.admin('GET', pathOf(bot))).json
  t.match(await put(candidate), { status: 200, json: { capabilities: candidate, since: /Z$/ } })
  return { gateway, bot, put, show }
}

await t.test('§9 a candidate set is judged alongside the real one, and changes no answer', async (t) => {
  const { gateway, bot, show } = await watched(t, ['mcp.tools.list'])
  t.equal((await chat(gateway, bot)).status, 200)
  t.equal((await chat(gateway, bot)).status, 200)
  t.match((await list(gateway, bot)).json, { error: { data: { reason: 'capability_missing' } } })
  t.equal(gateway.upstream.seen.length, 2)
  const rows = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed', order: 'asc' })
  const found = await show()
  t.match(found, {
    capabilities: ['mcp.tools.list'],
    decisions: 3,
    would_refuse: [
      {
        ...{ principal_id: bot.id, action: 'egress_llm_chat', model: CHAT.model, capability: 'llm.chat' },
        ...{ reason: 'capability_missing', decisions: 2 },
        samples: rows.map(({ request_id: id }) => id),
      },
    ],
    would_allow: [{ action: 'mcp_tools_list', capability: 'mcp.tools.list', decisions: 1 }],
  })
  t.match(rows[0]?.detail.authority, {
    candidate: { since: found.since, verdict: 'refuse', required_capability: 'llm.chat' },
  })
  const [refused] = await gateway.rows({ action: 'mcp_tools_list', status: 'denied' })
  t.match(refused?.detail.authority, { candidate: { since: found.since, verdict: 'pass' } })
  const { text } = await gateway.admin('GET', '/metrics')
  t.match(text, 'sallyport_candidate_verdicts_total{result="would_refuse"} 2')
  t.match(text, 'sallyport_candidate_verdicts_total{result="would_allow"} 1')
  const shown = await gateway.admin('GET', `/v1/admin/agents/${bot.id}`)
  t.same(shown.json.capabilities, ['llm.chat', 'x'])
  t.notOk('candidate' in shown.json)
})

await t.test('refusals that are summarised say it too', async (t) => {
  const { gateway, bot } = await watched(t, ['mcp.tools.list'])
  for (let round = 0; round < 70; round += 1) await list(gateway, bot)
  await gateway.close(0)
  const rows = await gateway.rows({ action: 'mcp_tools_list', limit: 1000 })
  t.match(rows.at(0)?.detail, { summarised: { count: 10 }, authority: { candidate: { verdict: 'pass' } } })
  t.equal(rows.length, 61)
})

await t.test('each set, and each change of the real one, is counted from nothing', async (t) => {
  const { gateway, bot, put, show } = await watched(t, ['x'])
  await chat(gateway, bot)
  const before = await show()
  t.equal(before.decisions, 1)
  await put(['llm.chat'])
  const other = await show()
  t.match(other, { capabilities: ['llm.chat'], decisions: 0, would_refuse: [] })
  t.ok(other.since > before.since)
  await chat(gateway, bot)
  t.match(await show(), { decisions: 1, would_refuse: [] }, 'it would pass')
  await gateway.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities: ['llm.chat', 'y'] })
  t.match(await show(), { capabilities: ['llm.chat'], decisions: 0 })
  t.equal((await gateway.admin('DELETE', pathOf(bot))).status, 204)
  t.equal((await gateway.admin('GET', pathOf(bot))).status, 404)
  t.equal((await gateway.admin('DELETE', pathOf(bot))).status, 404)
  t.equal((await gateway.admin('POST', `${pathOf(bot)}/promote`)).status, 404)
  await chat(gateway, bot)
  const [last] = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed' })
  t.match(last?.detail.authority, { demanded: ['llm.chat'], candidate: undefined })
  const changes = await gateway.rows({ order: 'asc' })
  t.match(
    changes.filter(({ action }) => action.startsWith('agent.candidate_')).map(({ detail }) => detail),
    [
      { subject: bot.id, candidate: ['x'], since: before.since, previous: null },
      { subject: bot.id, candidate: ['llm.chat'], since: other.since, previous: ['x'] },
      { subject: bot.id, previous: ['llm.chat'] },
    ],
  )
})

await t.test('promote makes it the real set, with one row that says what was observed', async (t) => {
  const { gateway, bot, put } = await watched(t, ['x'])
  await chat(gateway, bot)
  await list(gateway, bot)
  const { headers, json: candidate } = await gateway.admin('GET', pathOf(bot))
  const etag = String(headers.etag)
  const other = await gateway.admin('POST', `${pathOf(bot)}/promote`, undefined, { 'if-match': '"999"' })
  t.equal(other.status, 412)
  for (const unseen of [{}, { 'if-match': '*' }, { 'if-match': `${etag}, "999"` }]) {
    const answer = await gateway.admin('POST', `${pathOf(bot)}/promote`, undefined, unseen)
    t.equal(answer.status, 412, 'H6: not whatever set stands there by then')
    t.match(answer.json.message, 'as If-Match')
  }
  const promoted = await gateway.admin('POST', `${pathOf(bot)}/promote`, undefined, { 'if-match': etag })
  t.match(promoted, { status: 200, json: { agent_id: bot.id, capabilities: ['x'] } }, promoted.text)
  t.equal((await chat(gateway, bot)).status, 403, 'in force at once')
  t.equal((await gateway.admin('GET', pathOf(bot))).status, 404, 'and no candidate any more')
  const [row, ...others] = await gateway.rows({ action: 'agent.capabilities_patched' })
  t.equal(others.length, 0)
  t.match(row?.detail, {
    capabilities: ['x'],
    previous: ['llm.chat', 'x'],
    candidate: { since: candidate.since, decisions: 2, would_refuse: 1, would_allow: 0 },
  })
  // Somebody else's candidate is not promoted by who has seen another one.
  await put(['a'])
  const seen = String((await gateway.admin('GET', pathOf(bot))).headers.etag)
  await put(['b'])
  t.equal(
    (await gateway.admin('POST', `${pathOf(bot)}/promote`, undefined, { 'if-match': seen })).status,
    412,
  )
  t.equal((await put(['c'], { 'if-match': seen })).status, 412)
})

await t.test('who may not grant sets none, and what is no set is none', async (t) => {
  const { gateway, bot, put, show } = await watched(t, ['x'])
  t.match(await put(['X']), { status: 422, json: { detail: { errors: [{ field: 'capabilities[0]' }] } } })
  t.equal((await put(['admin.read'])).status, 422)
  t.equal((await gateway.admin('PUT', pathOf({ id: 'acme::nobody' }), { capabilities: [] })).status, 404)
  const viewer = as(gateway, await operatorNamed(gateway, 'vera', ['admin.read']))
  t.match(await viewer('PUT', pathOf(bot), { capabilities: [] }), {
    status: 403,
    json: { required_capability: 'admin.grant' },
  })
  t.equal((await viewer('DELETE', pathOf(bot))).status, 403)
  t.equal((await viewer('POST', `${pathOf(bot)}/promote`)).status, 403)
  t.equal((await viewer('GET', pathOf(bot))).status, 200)
  t.same((await show()).capabilities, ['x'])
  t.equal((await gateway.call(bot, 'GET', pathOf(bot))).status, 403, 'nor its principal')
})

await t.test('where a change needs a rehearsal, or two people, so does a promotion', async (t) => {
  const { gateway, bot } = await watched(t, ['x'], 'require_rehearsal: always\ntwo_person: [grant]')
  const [alice, bob] = [
    as(gateway, await operatorNamed(gateway, 'alice', ['admin.read', 'admin.grant'])),
    as(gateway, await operatorNamed(gateway, 'bob', ['admin.read', 'admin.grant'])),
  ]
  t.equal(
    (await alice('PUT', pathOf(bot), { capabilities: ['x', 'y'] })).status,
    200,
    'it lets nobody do more',
  )
  t.match(await alice('POST', `${pathOf(bot)}/promote`), {
    status: 428,
    json: { reason: 'rehearsal_required' },
  })
  const rehearsed = await alice('POST', '/v1/admin/rehearsals', {
    changes: [{ principal: bot.id, capabilities: ['x', 'y'] }],
  })
  const etag = async () => String((await alice('GET', pathOf(bot))).headers.etag)
  const named = { 'if-rehearsed': rehearsed.json.id, 'if-match': await etag() }
  const proposed = await alice('POST', `${pathOf(bot)}/promote`, undefined, named)
  t.equal(proposed.status, 202, proposed.text)
  const confirmed = await bob('POST', `/v1/admin/proposals/${proposed.json.proposal_id}/confirm`)
  t.equal(confirmed.status, 200, confirmed.text)
  t.same(confirmed.json.capabilities, ['x', 'y'])
  // Another candidate than the one that was proposed is not what is confirmed.
  await alice('PUT', pathOf(bot), { capabilities: ['z'] })
  const again = await alice('POST', '/v1/admin/rehearsals', {
    changes: [{ principal: bot.id, capabilities: ['z'] }],
  })
  const waiting = await alice('POST', `${pathOf(bot)}/promote`, undefined, {
    'if-rehearsed': again.json.id,
    'if-match': await etag(),
  })
  t.equal(waiting.status, 202, waiting.text)
  await alice('PUT', pathOf(bot), { capabilities: ['llm.chat', 'everything'] })
  t.equal((await bob('POST', `/v1/admin/proposals/${waiting.json.proposal_id}/confirm`)).status, 412)
})

await t.test('a user is watched by its pseudonym, and erased with its candidate', async (t) => {
  const gateway = await testGateway(t)
  const made = await gateway.admin('POST', '/v1/admin/users', {
    user_name: 'ada',
    capabilities: ['llm.chat'],
  })
  const { principal_id: id } = made.json
  const minted = await gateway.admin('POST', `/v1/admin/users/${id}/rotate-cert`, {})
  const ada = { id, cert: minted.json.cert_chain_pem, key: minted.json.private_key_pem }
  const path = `/v1/admin/users/${id}/candidate`
  t.equal((await gateway.admin('PUT', path, { capabilities: [] })).status, 200, 'also the empty set')
  t.equal((await chat(gateway, ada)).status, 200)
  t.match((await gateway.admin('GET', path)).json, {
    decisions: 1,
    would_refuse: [{ principal_id: id, principal_ref: /^usr_/, capability: 'llm.chat' }],
  })
  t.equal((await gateway.admin('POST', `/v1/admin/users/${id}/erase`)).status, 204)
  t.equal((await gateway.admin('GET', path)).status, 404)
})
