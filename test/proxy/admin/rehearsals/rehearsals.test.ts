import t, { type Test } from 'tap'
import { RehearsalPlaces } from '../../../../proxy/admin/operation/ledger-places.ts'
import { CHAT, type Identity, PLUGIN_FILES, type TestGateway, testGateway } from '../../../support/gateway.ts'
import { as, operatorNamed } from '../../../support/operators.ts'

const REHEARSALS = '/v1/admin/rehearsals'
const AGENTS = '/v1/admin/agents'

const call = (gateway: TestGateway, who: Identity) =>
  gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })

/** Two agents that have called: one three times, one in vain. */
async function lived(t: Test, yaml = '') {
  const files = { ...PLUGIN_FILES, ...(yaml && { '70-operators.yaml': `plugin: operators\n${yaml}\n` }) }
  const gateway = await testGateway(t, { files })
  const [bot, guest] = [await gateway.enroll('bot', ['llm.chat', 'x']), await gateway.enroll('guest', [])]
  for (const who of [bot, bot, guest, bot]) await call(gateway, who)
  const rehearse = (changes: readonly object[], more: object = {}) =>
    gateway.admin('POST', REHEARSALS, { changes, ...more })
  return { gateway, bot, guest, rehearse }
}

const setOf = (principal: Identity, capabilities: readonly string[]) => ({
  principal: principal.id,
  capabilities,
})

await t.test('§9 a rehearsal says who would be stopped, at what, how often and since when', async (t) => {
  const { gateway, bot, rehearse } = await lived(t)
  const { status, json, text } = await rehearse([setOf(bot, ['x'])])
  t.equal(status, 200, text)
  t.match(json, {
    id: /^reh_[0-9a-f]{24}$/,
    window: { decisions: 3, principals: 1, first: { seq: Number }, last: { seq: Number } },
    unchanged: 0,
    newly_allowed: [],
    undecidable: [],
    totals: { newly_refused: 3, newly_allowed: 0, undecidable: 0 },
    disagreements: 0,
    expectations: [],
    truncated: false,
    etags: { [bot.id]: /^"\d+"$/ },
  })
  const [group, ...others] = json.newly_refused
  t.equal(others.length, 0)
  t.match(group, {
    principal_id: bot.id,
    action: 'egress_llm_chat',
    model: CHAT.model,
    capability: 'llm.chat',
    reason: 'capability_missing',
    decisions: 3,
  })
  const rows = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed', order: 'asc' })
  t.same(
    group.samples,
    rows.map(({ request_id: id }) => id),
  )
  t.equal(group.first_at, rows[0]?.recorded_at)
  t.same((await gateway.admin('GET', `${REHEARSALS}/${json.id}`)).json, json, 'the same again')
  t.equal((await gateway.admin('GET', `${REHEARSALS}/reh_0`)).status, 404)

  const [done, ...more] = await gateway.rows({ action: 'rehearsal.done' })
  t.equal(more.length, 0, 'one row')
  t.match(done?.detail, {
    rehearsal: json.id,
    decisions: 3,
    newly_refused: 3,
    changes_sha256: /^[0-9a-f]{64}$/,
  })
})

await t.test(
  'what it predicts is what happens: the change is made, and the calls are sent again',
  async (t) => {
    const { gateway, bot, guest, rehearse } = await lived(t)
    const { json } = await rehearse([setOf(bot, ['x']), setOf(guest, ['llm.chat'])])
    t.match(json, { unchanged: 0, totals: { newly_refused: 3, newly_allowed: 1 } })
    t.match(json.newly_allowed, [
      { principal_id: guest.id, reason: 'capability_missing', capability: 'llm.chat' },
    ])
    await gateway.admin('PATCH', `${AGENTS}/${bot.id}/capabilities`, { capabilities: ['x'] })
    await gateway.admin('PATCH', `${AGENTS}/${guest.id}/capabilities`, { capabilities: ['llm.chat'] })
    t.equal((await call(gateway, bot)).status, 403)
    t.equal((await call(gateway, guest)).status, 200)
  },
)

await t.test('no change at all changes nothing, over every decision of the window', async (t) => {
  const { rehearse } = await lived(t)
  t.match((await rehearse([])).json, {
    window: { decisions: 4, principals: 2 },
    unchanged: 4,
    newly_refused: [],
    newly_allowed: [],
    disagreements: 0,
  })
  const nothing = await rehearse([], { since: '2020-01-01T00:00:00Z', until: '2020-01-02T00:00:00+02:00' })
  t.match(nothing.json.window, { decisions: 0, first: null, since: '2020-01-01T00:00:00.000Z' })
})

await t.test('a change that is none, or about nobody, is 422 and names its place', async (t) => {
  const { gateway, bot, rehearse } = await lived(t)
  const cases: readonly (readonly [string, readonly object[], object?])[] = [
    ['changes[0].principal', [{ principal: 'acme::nobody', capabilities: [] }]],
    ['changes[1].resource', [setOf(bot, []), { resource: 'nothing', enabled: false }]],
    ['changes[0]', [{ principal: bot.id }]],
    ['changes[0]', [{ ...setOf(bot, []), is_active: false }]],
    ['changes[0].is_active', [{ principal: bot.id, is_active: true }]],
    ['changes[0].capabilities[0]', [setOf(bot, ['LLM'])]],
    ['changes[0].wrong', [{ wrong: 1 }]],
    ['changes[1]', [setOf(bot, []), setOf(bot, ['x'])]],
    ['changes', Array.from({ length: 101 }, () => setOf(bot, []))],
    ['since', [], { since: '2026-01-02T00:00:00Z', until: '2026-01-01T00:00:00Z' }],
    ['until', [], { until: 'yesterday' }],
  ]
  for (const [field, changes, more] of cases) {
    const { status, json } = await rehearse(changes, more)
    t.equal(status, 422, field)
    t.ok(
      json.detail.errors.some((error: { field: string }) => error.field === field),
      `${field}: ${JSON.stringify(json.detail.errors)}`,
    )
  }
  t.equal((await gateway.rows({ action: 'rehearsal.done' })).length, 0)
})

await t.test('who may not grant may not rehearse', async (t) => {
  const { gateway, bot } = await lived(t)
  const viewer = as(gateway, await operatorNamed(gateway, 'vera', ['admin.read']))
  const refused = await viewer('POST', REHEARSALS, { changes: [setOf(bot, [])] })
  t.equal(refused.status, 403)
  t.equal(refused.json.detail.required_capability, 'admin.grant')
})

await t.test(
  'its progress is told in lines, where they are asked for, and then the same object',
  async (t) => {
    const { gateway, bot } = await lived(t)
    const granter = as(gateway, await operatorNamed(gateway, 'greta', ['admin.read', 'admin.grant']))
    const { status, headers, text } = await granter(
      'POST',
      REHEARSALS,
      { changes: [setOf(bot, [])] },
      {
        accept: 'application/x-ndjson',
      },
    )
    t.equal(status, 200)
    t.equal(headers['content-type'], 'application/x-ndjson')
    const lines = text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    t.ok(lines.slice(0, -1).every(({ progress }) => progress.rows <= progress.of))
    t.match(lines.at(-1), { id: /^reh_/, totals: { newly_refused: 3 } })
    for (const [accept, type] of [
      ['application/x-ndjson;q=0, */*', 'application/json'],
      ['application/json, application/x-ndjson;q=0.5', 'application/json'],
      ['application/json;q=0.5, Application/X-NDJSON', 'application/x-ndjson'],
      ['*/*', 'application/json'],
    ] as const) {
      const told = await granter('POST', REHEARSALS, { changes: [setOf(bot, [])] }, { accept })
      t.equal(told.headers['content-type'], type, accept)
    }
    const wrong = await granter('POST', REHEARSALS, { changes: [{}] }, { accept: 'application/x-ndjson' })
    t.equal(wrong.status, 422)
  },
)

await t.test('dry_run changes nothing and writes no row, and answers what the change would', async (t) => {
  const { gateway, bot } = await lived(t)
  const path = `${AGENTS}/${bot.id}/capabilities`
  const dry = await gateway.admin('PATCH', `${path}?dry_run=true`, { capabilities: ['x'] })
  t.equal(dry.status, 200, dry.text)
  t.match(dry.json, { agent_id: bot.id, capabilities: ['x'], rehearsal: { totals: { newly_refused: 3 } } })
  t.notOk('id' in dry.json.rehearsal, 'nothing can rest on it')
  t.equal((await gateway.admin('PATCH', `${path}?dry_run=true`, { capabilities: ['X'] })).status, 422)
  t.equal((await gateway.admin('PATCH', `${path}?dry_run=maybe`, { capabilities: [] })).status, 422)
  const nobody = `${AGENTS}/acme::nobody/capabilities?dry_run=true`
  t.equal((await gateway.admin('PATCH', nobody, { capabilities: [] })).status, 404)
  for (const action of ['agent.capabilities_patched', 'rehearsal.done'])
    t.equal((await gateway.rows({ action })).length, 0, action)
  t.same((await gateway.admin('GET', `${AGENTS}/${bot.id}`)).json.capabilities, ['llm.chat', 'x'])
  t.equal((await call(gateway, bot)).status, 200)
})

await t.test('If-Rehearsed names a rehearsal of exactly this change, or it is not made', async (t) => {
  const { gateway, bot, guest, rehearse } = await lived(t)
  const path = `${AGENTS}/${bot.id}/capabilities`
  const granter = as(gateway, await operatorNamed(gateway, 'greta', ['admin.read', 'admin.grant']))
  const named = (capabilities: readonly string[], id: string) =>
    granter('PATCH', path, { capabilities }, { 'if-rehearsed': id })
  const { id } = (await rehearse([setOf(bot, ['x'])])).json
  const other = (await rehearse([setOf(guest, ['x'])])).json.id
  t.equal((await named(['x'], 'reh_0')).status, 404)
  t.equal((await named(['x'], other)).status, 412)
  t.equal((await named(['llm.chat'], id)).status, 412)
  t.same((await gateway.admin('GET', `${AGENTS}/${bot.id}`)).json.capabilities, ['llm.chat', 'x'])
  const made = await named(['x'], id)
  t.equal(made.status, 200, made.text)
  const [row] = await gateway.rows({ action: 'agent.capabilities_patched' })
  t.equal(row?.detail.rehearsal, id, 'the row names it')
  t.equal((await named(['x'], id)).status, 412, 'the object has moved on')
})

for (const [mode, harmless] of [
  ['always', 428],
  ['when_refusing', 200],
] as const)
  await t.test(`require_rehearsal: ${mode} guards every change that a rehearsal can describe`, async (t) => {
    const { gateway, bot, rehearse } = await lived(t, `require_rehearsal: ${mode}`)
    const path = `${AGENTS}/${bot.id}`
    const refused = await gateway.admin('PATCH', `${path}/capabilities`, { capabilities: ['x'] })
    t.equal(refused.status, 428, refused.text)
    t.equal(refused.json.reason, 'rehearsal_required')
    t.equal((await gateway.admin('DELETE', path)).status, 428)
    const more = { capabilities: ['llm.chat', 'x', 'y'] }
    t.equal((await gateway.admin('PATCH', `${path}/capabilities`, more)).status, harmless)
    t.equal((await gateway.admin('PATCH', `${path}/capabilities?dry_run=true`, more)).status, 200)
    t.equal((await call(gateway, bot)).status, 200)
    t.equal((await rehearse([setOf(bot, [])])).status, 200)
    t.equal(
      (await gateway.admin('POST', AGENTS, { agent_name: 'new', capabilities: ['llm.chat'] })).status,
      201,
    )
  })

await t.test('two rehearsals of one operator at once, and no third; four of all', async (t) => {
  const places = new RehearsalPlaces()
  const under: PromiseWithResolvers<void>[] = []
  const begin = (operator: string) =>
    places.run('rehearsal', operator, () => {
      const work = Promise.withResolvers<void>()
      under.push(work)
      return work.promise
    })
  const full = { reason: 'overloaded', headers: { 'retry-after': '5' } }
  const asked = [begin('greta'), begin('greta')]
  await t.rejects(begin('greta'), { ...full, message: /^2 of your rehearsals/ })
  asked.push(begin('hans'), begin('ida'))
  await t.rejects(begin('jan'), { ...full, message: /^4 rehearsals/ })
  under[0]?.resolve()
  under[1]?.reject(new Error('it cannot be read'))
  await asked[0]
  await t.rejects(asked[1] ?? Promise.resolve(), { message: 'it cannot be read' })
  asked.push(begin('greta'), begin('jan'))
  for (const { resolve } of under) resolve()
  t.equal((await Promise.allSettled(asked)).length, 6, 'and again when they are done')
})
