import t from 'tap'
import { openDatabase } from '../../../../db/engine.ts'
import { grantsOf } from '../../../../db/people/grants.ts'
import { asOwner } from '../../../support/db/owner.ts'
import { testGateway } from '../../../support/gateway.ts'
import { as, operatorNamed } from '../../../support/operators.ts'

const LATER = '2999-01-01T00:00:00.000Z'

await t.test('operators see and end what people have granted; so does what ends a user', async (t) => {
  const gateway = await testGateway(t)
  const { databaseUrl: url } = gateway.settings
  const database = await openDatabase(url)
  t.teardown(database.close)
  const ids = ['alice', 'bob', 'carol'].map((name) => `acme::user::${name}`)
  const [alice = '', bob = '', carol = ''] = ids
  for (const id of ids)
    await gateway.admin('POST', '/v1/admin/users', { user_name: id.split('::')[2], capabilities: [] })
  // As the door of people stores them; their rows are its own.
  const stored = (id: string, user: string, host: string, until = LATER) =>
    asOwner(
      url,
      `insert into people_grants (id, principal_id, client_host, client_id_sha256, client_kind, kind, resource, bound,
        amr, issued_at, expires_at) values ('${id}', '${user}', '${host}', '${'a'.repeat(64)}', 'cimd', 'code',
        'https://people.example/v1/mcp', 'none', '["pwd"]', '2026-01-01T00:00:00.000Z', '${until}')`,
    )
  for (const [id, user, host, until] of [
    ['grt_1', alice, 'claude.ai', LATER],
    ['grt_2', alice, 'chatgpt.com', LATER],
    ['grt_3', alice, 'vscode.dev', '2026-01-02T00:00:00.000Z'],
    ['grt_4', bob, 'claude.ai', LATER],
    ['grt_5', bob, 'chatgpt.com', LATER],
    ['grt_6', carol, 'vscode.dev', LATER],
  ] as const)
    await stored(id, user, host, until)
  const left = async (user: string) => (await grantsOf(database, user)).map(({ id }) => id).toSorted()

  const list = await gateway.admin('GET', `/v1/admin/users/${alice}/grants`)
  t.same(
    list.json.grants.map(({ grant }: { grant: string }) => grant),
    ['grt_1', 'grt_2'],
    'in force',
  )
  t.match(list.json.grants[0], {
    client: { host: 'claude.ai', kind: 'cimd' },
    scope: null,
    bound: 'none',
    amr: ['pwd'],
  })
  t.equal((await gateway.admin('GET', '/v1/admin/users/acme::user::nobody/grants')).status, 404)

  const reader = as(gateway, await operatorNamed(gateway, 'reader', ['admin.read']))
  t.equal((await reader('DELETE', '/v1/admin/grants/grt_1')).status, 403, 'admin.read ends nothing')
  t.equal((await reader('POST', '/v1/admin/grants/end', { all: true })).status, 403)

  t.equal((await gateway.admin('DELETE', '/v1/admin/grants/grt_1')).status, 204)
  t.equal((await gateway.admin('DELETE', '/v1/admin/grants/grt_1')).status, 404, 'once')
  t.same((await gateway.admin('POST', '/v1/admin/grants/end', { client_host: 'chatgpt.com' })).json, {
    ...{ ended: 2, more: false },
  })
  t.same([await left(alice), await left(bob)], [['grt_3'], ['grt_4']])
  t.equal((await gateway.admin('POST', '/v1/admin/grants/end', {})).status, 422, 'nothing is not all')

  t.equal((await gateway.admin('DELETE', `/v1/admin/users/${bob}`)).status, 204)
  t.same(await left(bob), [], 'deactivated')
  t.equal((await gateway.admin('POST', `/v1/admin/users/${carol}/erase`)).status, 204)
  t.same(await left(carol), [], 'erased')
  t.same((await gateway.admin('POST', '/v1/admin/grants/end', { all: true })).json, { ended: 1, more: false })

  const { json } = await gateway.admin('GET', '/v1/admin/audit?action=grant.ended&status=success')
  const told = json.rows.map(({ detail }: { detail: { grant: string; why: string } }) => [
    detail.grant,
    detail.why,
  ])
  t.same(told.toSorted(), [
    ['grt_1', 'operator'],
    ['grt_2', 'operator'],
    ['grt_3', 'operator'],
    ['grt_4', 'deactivated'],
    ['grt_5', 'operator'],
    ['grt_6', 'erased'],
  ])
})
