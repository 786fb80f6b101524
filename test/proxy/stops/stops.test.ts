import t from 'tap'
import { CHAT, type Identity, sharedGateway, type TestGateway, testGateway } from '../../support/gateway.ts'
import { filesStage } from '../../support/mcp/stage.ts'
import { as, operatorNamed } from '../../support/operators.ts'
import { eventually } from '../../support/settled.ts'

const STOPS = '/v1/admin/stops'

const chat = (gateway: TestGateway, who: Identity) =>
  gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })

async function stop(gateway: TestGateway, scope: unknown, more: object = {}): Promise<string> {
  const { status, json } = await gateway.admin('POST', STOPS, { scope, reason: 'a key has leaked', ...more })
  if (status !== 201) throw new Error(`the stop was answered ${status} ${JSON.stringify(json)}`)
  return json.stop_id
}

const end = (gateway: TestGateway, id: string) =>
  gateway.admin('POST', `${STOPS}/${id}/end`, { reason: 'it is replaced' })

await t.test('a stop refuses the next call of its scope and no other, until it is ended', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const other = await gateway.enroll('other', ['llm.chat'])
  t.equal((await chat(gateway, bot)).status, 200, 'before there is one')
  const id = await stop(gateway, { principal: bot.id })
  const refused = await chat(gateway, bot)
  t.equal(refused.status, 403)
  t.match(refused.json, {
    reason: 'stopped',
    message: 'Operators have stopped this: a key has leaked',
    detail: { stop: id },
  })
  t.equal(refused.headers['x-should-retry'], 'false')
  t.equal((await chat(gateway, other)).status, 200, 'whom it is not for')
  t.match((await gateway.admin('GET', STOPS)).json.stops, [
    { stop_id: id, scope: { principal: bot.id }, reason: 'a key has leaked', until: null },
  ])
  t.equal((await end(gateway, id)).status, 204)
  t.equal((await end(gateway, id)).status, 404, 'one ends once')
  t.equal((await chat(gateway, bot)).status, 200, 'after its end')
  t.same((await gateway.admin('GET', STOPS)).json.stops, [])

  const rows = await gateway.rows()
  t.match(
    rows.filter(({ action }) => action.startsWith('stop.')),
    [
      { action: 'stop.begun', detail: { stop: id, scope: { principal: bot.id } } },
      { action: 'stop.ended', detail: { stop: id, why: 'operator', ended: 'it is replaced' } },
    ],
  )
  const denied = rows.find(({ status }) => status === 'denied')
  t.match(denied, { principal_id: bot.id, detail: { reason: 'stopped', refused_by: 'stop', stop: id } })
})

await t.test('a scope is everything, models, a kind of principals, or one of them', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot2', ['llm.chat'])
  for (const [scope, status] of [
    ['all', 403],
    ['llm', 403],
    ['mcp', 200],
    [{ kind: 'agents' }, 403],
    [{ kind: 'users' }, 200],
  ] as const) {
    const id = await stop(gateway, scope)
    t.equal((await chat(gateway, bot)).status, status, JSON.stringify(scope))
    t.equal((await gateway.admin('GET', '/v1/admin/agents')).status, 200, 'administration goes on')
    t.equal((await gateway.call(bot, 'GET', '/v1/models')).status, 200, 'and reading')
    await end(gateway, id)
  }
})

await t.test('a stop of an MCP server refuses its tools and leaves the built-in ones', async (t) => {
  const { stage, files, bot } = await filesStage(t, ['files.use', 'mcp.tools.list'])
  await stage.bind(bot, files)
  const read = () => stage.rpc(bot, 'tools/call', { params: { name: 'files.read', arguments: {} } })
  t.equal((await read()).json.error, undefined)
  const id = await stop(stage, { resource: files.resource_id })
  t.match((await read()).json.error, { code: -31010, data: { reason: 'stopped', stop: id } })
  t.equal(
    (await stage.rpc(bot, 'tools/list')).json.error,
    undefined,
    'a list of all of them is none of its calls',
  )
  await end(stage, id)
  t.equal((await read()).json.error, undefined)
  const all = await stop(stage, 'mcp')
  t.match((await stage.rpc(bot, 'tools/list')).json.error, { code: -31010 })
  await end(stage, all)
})

await t.test('a stop is rehearsed: who would have been refused in the last 30 days', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot4', ['llm.chat'])
  t.equal((await chat(gateway, bot)).status, 200)
  const rehearsed = async (stop: unknown) =>
    (await gateway.admin('POST', '/v1/admin/rehearsals', { changes: [{ stop }] })).json
  t.match(await rehearsed({ principal: bot.id }), {
    totals: { newly_refused: 1 },
    newly_refused: [{ principal_id: bot.id, reason: 'stopped' }],
  })
  t.match(await rehearsed('mcp'), { totals: { newly_refused: 0 } })
  const nobody = await rehearsed({ principal: 'acme::nobody' })
  t.match(nobody.detail.errors, [{ field: 'changes[0].stop' }])
})

await t.test('a call under way is cut as by a revocation', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const hungUp = Promise.withResolvers<void>()
  gateway.upstream.answer = (res) => {
    res.once('close', () => hungUp.resolve())
  }
  const waiting = chat(gateway, bot)
  await eventually(
    async () => gateway.upstream.seen.length,
    (seen) => seen === 1,
  )
  await stop(gateway, 'llm')
  t.match(await waiting, { status: 403, json: { reason: 'authority_revoked' } })
  await hungUp.promise
})

await t.test('a stop ends by itself at its time, with a row', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot3', ['llm.chat'])
  const id = await stop(gateway, 'llm', { until: new Date(Date.now() + 1_500).toISOString() })
  t.equal((await chat(gateway, bot)).status, 403)
  await eventually(
    async () => (await gateway.admin('GET', STOPS)).json.stops.length,
    (count) => count === 0,
  )
  t.equal((await chat(gateway, bot)).status, 200)
  const ended = (await gateway.rows()).findLast(({ action }) => action === 'stop.ended')
  t.match(ended?.detail, { stop: id, why: 'until' })
})

await t.test('whoever may stop need not be able to start again', async (t) => {
  const gateway = await sharedGateway(t)
  const stopper = await operatorNamed(gateway, 'stopper', ['admin.stop'])
  const viewer = await operatorNamed(gateway, 'viewer', ['admin.read'])
  const body = { scope: { kind: 'workloads' }, reason: 'they misbehave' }
  t.equal((await as(gateway, viewer)('POST', STOPS, body)).status, 403)
  const begun = await as(gateway, stopper)('POST', STOPS, body)
  t.equal(begun.status, 201)
  const ending = `${STOPS}/${begun.json.stop_id}/end`
  t.match(await as(gateway, stopper)('POST', ending, { reason: 'over' }), {
    status: 403,
    json: { detail: { required_capability: 'admin.grant' } },
  })
  t.equal((await gateway.admin('POST', ending, { reason: 'over' })).status, 204)
})

await t.test('what cannot be a stop is refused in a sentence, and nothing is stopped', async (t) => {
  const gateway = await sharedGateway(t)
  const soon = Date.now() + 60_000
  for (const [body, status, field] of [
    [{ scope: 'some', reason: 'x' }, 422, 'scope'],
    [{ scope: { principal: 'a', kind: 'users' }, reason: 'x' }, 422, 'scope'],
    [{ scope: 'all' }, 422, 'reason'],
    [{ scope: 'all', reason: ' ' }, 422, 'reason'],
    [{ scope: 'all', reason: 'x'.repeat(257) }, 422, 'reason'],
    [{ scope: 'all', reason: 'two\nlines' }, 422, 'reason'],
    [{ scope: 'all', reason: 'x', until: new Date(soon - 120_000).toISOString() }, 422, 'until'],
    [{ scope: 'all', reason: 'x', until: new Date(soon + 8 * 86_400_000).toISOString() }, 422, 'until'],
    [{ scope: { principal: 'acme::nobody' }, reason: 'x' }, 404, null],
    [{ scope: { resource: 'none' }, reason: 'x' }, 404, null],
  ] as const) {
    const refused = await gateway.admin('POST', STOPS, body)
    t.equal(refused.status, status, JSON.stringify(body).slice(0, 80))
    if (field !== null) t.match(refused.json.detail.errors[0].field, new RegExp(`^${field}`))
  }
  t.same((await gateway.admin('GET', STOPS)).json.stops, [])
})
