import t from 'tap'
import { testGateway } from '../../../support/gateway.ts'
import { as, operatorNamed } from '../../../support/operators.ts'

await t.test(
  'labels are set whole, found, counted and sorted by, and end with their principal',
  async (t) => {
    const gateway = await testGateway(t)
    const { admin } = gateway
    for (const name of ['one', 'two', 'three']) await gateway.enroll(name, ['llm.chat'])
    t.equal((await admin('POST', '/v1/admin/users', { user_name: 'ada' })).status, 201)
    const label = (id: string, labels: unknown, headers = {}, plural = 'agents') =>
      admin('PUT', `/v1/admin/${plural}/${id}/labels`, { labels }, headers)
    const set = await label('acme::one', { team: 'red', env: 'prod' })
    t.match(
      set,
      { status: 200, json: { agent_id: 'acme::one', labels: { team: 'red', env: 'prod' } } },
      set.text,
    )
    t.match(await label('acme::two', { team: 'blue' }), { status: 200 })
    t.match(await label('acme::user::ada', { team: 'red' }, {}, 'users'), { status: 200 })
    t.match(await label('acme::one', { team: 'x' }, { 'if-match': '"1"' }), { status: 412 })

    const found = async (query: string): Promise<readonly string[]> => {
      const { status, json, text } = await admin('GET', `/v1/admin/agents?${query}`)
      t.equal(status, 200, text)
      return json.map(({ agent_id: id }: { agent_id: string }) => id)
    }
    t.same(await found('q=label:team=red'), ['acme::one'])
    t.same(await found('q=label:team'), ['acme::two', 'acme::one'])
    t.same(await found('q=label:constructor'), [], 'no name of what every object has')
    t.same(await found('q=label:team=red+label:env=test'), [])
    t.same(await found('sort=label:team'), ['acme::two', 'acme::one', 'acme::three'])
    t.same(await found('sort=label:team&q=label:env'), ['acme::one'])
    t.match(await admin('GET', '/v1/admin/labels'), {
      json: {
        labels: [
          { key: 'env', value: 'prod', principals: { agent: 1 } },
          { key: 'team', value: 'blue', principals: { agent: 1 } },
          { key: 'team', value: 'red', principals: { agent: 1, user: 1 } },
        ],
        truncated: false,
      },
    })
    for (const [labels, fault] of [
      [{ Team: 'red' }, /must be 1 to 63/],
      [{ team: 'r'.repeat(64) }, /must be 1 to 63/],
      [{ team: '' }, /must be 1 to 63/],
      [{ team: 7 }, /./],
      [JSON.parse('{"__proto__": "red"}'), /must be 1 to 63/],
      [['team'], /must be an object/],
      [Object.fromEntries(Array.from({ length: 17 }, (_, at) => [`k${at}`, 'v'])), /at most 16/],
    ] as const) {
      const refused = await label('acme::one', labels)
      t.equal(refused.status, 422, refused.text)
      t.match(refused.json.detail.errors[0].message, fault)
    }
    for (const q of ['label:', 'label:team=', 'label:Team', 'set:', 'set:a=b'])
      t.equal((await admin('GET', `/v1/admin/agents?q=${q}`)).status, 422, q)
    t.equal((await admin('GET', '/v1/admin/agents?sort=name')).status, 422)

    const rows = await gateway.rows({ action: 'labels.replaced', order: 'asc' })
    t.match(
      rows.map(({ detail }) => detail),
      [
        { subject: 'acme::one', labels: { team: 'red', env: 'prod' }, previous: {} },
        { subject: 'acme::two', labels: { team: 'blue' } },
        { subject_type: 'user', subject: /^usr_/, labels: ['team'], previous: [] },
      ],
    )
    const { json: events } = await admin('GET', '/v1/admin/agents/acme::one')
    t.equal(events.capabilities.length, 1, 'and nothing else of it is another')
    const viewer = as(gateway, await operatorNamed(gateway, 'vera', ['admin.read', 'admin.enroll']))
    t.match(await viewer('PUT', '/v1/admin/agents/acme::one/labels', { labels: {} }), {
      status: 403,
      json: { required_capability: 'admin.grant' },
    })
    t.equal((await admin('POST', '/v1/admin/agents/acme::one/erase')).status, 204)
    t.same((await admin('GET', '/v1/admin/agents/acme::one')).json.labels, {})
  },
)

await t.test('a set has a name, changes nobody, and counts whom it was given to', async (t) => {
  const gateway = await testGateway(t)
  const { admin } = gateway
  const SET = '/v1/admin/sets/researcher'
  t.equal((await admin('GET', SET)).status, 404)
  t.equal((await admin('DELETE', SET)).status, 404)
  const made = await admin('PUT', SET, { capabilities: ['llm.chat', 'files.read'] })
  t.match(
    made,
    { status: 200, json: { name: 'researcher', capabilities: ['llm.chat', 'files.read'] } },
    made.text,
  )
  t.match(await admin('PUT', SET, { capabilities: ['llm.chat'] }, { 'if-match': '"7"' }), { status: 412 })
  const next = { 'if-match': String(made.headers.etag) }
  t.match(await admin('PUT', SET, { capabilities: ['llm.chat'] }, next), {
    status: 200,
    json: { capabilities: ['llm.chat'], created_by: 'admin' },
  })
  t.match(await admin('PUT', '/v1/admin/sets/other', { capabilities: [] }, next), { status: 412 })
  t.match((await admin('GET', '/v1/admin/sets')).json, {
    sets: [{ name: 'researcher', capabilities: ['llm.chat'], principals: {}, drifted: {} }],
  })
  t.equal((await admin('PUT', '/v1/admin/sets/Bad', { capabilities: [] })).status, 422)
  t.equal(
    (await admin('PUT', SET, { capabilities: ['admin.read'] })).status,
    422,
    'nobody else may hold that',
  )
  t.equal((await admin('DELETE', SET, undefined, next)).status, 412)
  t.equal((await admin('DELETE', SET)).status, 204)
  t.match(
    (await gateway.rows({ order: 'asc' }))
      .filter(({ action }) => action.startsWith('capability_set.'))
      .map(({ action, detail }) => [action, detail]),
    [
      [
        'capability_set.stored',
        { set: 'researcher', capabilities: ['llm.chat', 'files.read'], previous: null },
      ],
      ['capability_set.stored', { capabilities: ['llm.chat'], previous: ['llm.chat', 'files.read'] }],
      ['capability_set.deleted', { set: 'researcher', previous: ['llm.chat'] }],
    ],
  )
  const viewer = as(gateway, await operatorNamed(gateway, 'vera', ['admin.read']))
  t.equal((await viewer('GET', '/v1/admin/sets')).status, 200)
  t.equal((await viewer('PUT', SET, { capabilities: [] })).status, 403)
  // At once: each counts those before it.
  const many = await Promise.all(
    Array.from({ length: 257 }, (_, at) => admin('PUT', `/v1/admin/sets/s${at}`, { capabilities: [] })),
  )
  const refused = many.filter(({ status }) => status !== 200)
  t.match(refused, [{ status: 409, json: { message: /256 sets already/ } }])
  t.equal(refused.length, 1)
  const { sets } = (await admin('GET', '/v1/admin/sets')).json
  const one = await admin('PUT', `/v1/admin/sets/${sets[0].name}`, { capabilities: ['x'] })
  t.equal(one.status, 200, 'one that is there is still replaced')
})
