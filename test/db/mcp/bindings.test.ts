import t from 'tap'
import {
  bindingId,
  bindingIdQuery,
  bindingsQuery,
  boundResources,
  deleteMcpBinding,
  insertMcpBinding,
  listMcpBindings,
  mcpStanding,
} from '../../../db/mcp/bindings.ts'
import type { PrincipalType } from '../../../db/schema.ts'
import type { Assertion } from '../../../db/statement.ts'
import { AT, stored } from '../../support/db/mcp-rows.ts'
import { opened } from '../../support/db/writer.ts'

const binding = (
  id: string,
  resource: string,
  more: { type?: PrincipalType; principal?: string; at?: number } = {},
) => ({
  binding_id: `mcpb_${id}`,
  principal_type: more.type ?? 'agent',
  principal_id: more.principal ?? 'acme::bot',
  resource_id: `mcpr_${resource}`,
  at: more.at ?? AT,
})

t.test('§2.3 a binding is of one principal, of one type, to one resource', async (t) => {
  const at = await opened(t)
  await stored(at, 'a')
  await stored(at, 'b')
  const bound = bindingId(at.db)
  t.equal(bound('agent', 'acme::bot', 'mcpr_a'), null)
  at.run(insertMcpBinding(at.db, binding('1', 'a')))
  t.equal(bound('agent', 'acme::bot', 'mcpr_a'), 'mcpb_1')
  t.equal(bound('user', 'acme::bot', 'mcpr_a'), null)
  t.equal(bound('agent', 'acme::other', 'mcpr_a'), null)
  t.equal(bound('agent', 'acme::bot', 'mcpr_b'), null)
  t.same(at.run(deleteMcpBinding(at.db, 'mcpb_1')), [1])
  t.equal(bound('agent', 'acme::bot', 'mcpr_a'), null)
  t.equal(deleteMcpBinding(at.db, 'mcpb_1').changes, 1)
})

t.test('the same two are bound once, and nobody to a resource that is not there', async (t) => {
  const at = await opened(t)
  await stored(at, 'a')
  at.run(insertMcpBinding(at.db, binding('1', 'a')))
  t.throws(() => at.run(insertMcpBinding(at.db, binding('2', 'a'))), { code: 'SQLITE_CONSTRAINT_UNIQUE' })
  t.throws(() => at.run(insertMcpBinding(at.db, binding('3', 'none'))), {
    code: 'SQLITE_CONSTRAINT_FOREIGNKEY',
  })
})

t.test('§2.3 the resources of a principal are the enabled ones it is bound to, by name', async (t) => {
  const at = await opened(t)
  for (const name of ['b', 'a', 'c']) await stored(at, name)
  await stored(at, 'off', { enabled: false })
  for (const name of ['b', 'a', 'off']) at.run(insertMcpBinding(at.db, binding(name, name)))
  at.run(insertMcpBinding(at.db, binding('u', 'c', { type: 'user' })))
  const names = async (type: PrincipalType, id: string) =>
    (await boundResources(at.db, type, id)).map(({ name }) => name)
  t.same(await names('agent', 'acme::bot'), ['a', 'b'])
  t.same(await names('user', 'acme::bot'), ['c'])
  t.same(await names('agent', 'acme::other'), [])
})

t.test(
  'docs/protocol.md#mcp-bindings bindings are listed by principal, by resource, or all of them, with the name of the resource',
  async (t) => {
    const at = await opened(t)
    await stored(at, 'a')
    await stored(at, 'b')
    at.run(
      insertMcpBinding(at.db, binding('2', 'b', { at: AT + 1 })),
      insertMcpBinding(at.db, binding('1', 'a')),
    )
    at.run(insertMcpBinding(at.db, binding('3', 'a', { principal: 'acme::x', at: AT + 2 })))
    const ids = async (filter?: Parameters<typeof listMcpBindings>[1]) =>
      (await listMcpBindings(at.db, filter)).map(({ binding_id: id }) => id.slice(5)).join('')
    t.equal(await ids(), '123')
    t.equal(await ids({ principalId: 'acme::bot' }), '12')
    t.equal(await ids({ resourceId: 'mcpr_a' }), '13')
    t.equal(await ids({ principalId: 'acme::x', resourceId: 'mcpr_b' }), '')
    t.strictSame(await listMcpBindings(at.db, { bindingId: 'mcpb_1' }), [
      {
        binding_id: 'mcpb_1',
        principal_type: 'agent',
        principal_id: 'acme::bot',
        resource_id: 'mcpr_a',
        created_at: '2026-01-01T00:00:00.000Z',
        resource_name: 'a',
      },
    ])
  },
)

t.test('issue 10 §1 a row rests on one binding of the two, or on there being none', async (t) => {
  const at = await opened(t)
  await stored(at, 'a')
  const standing = mcpStanding(at.db)
  const holds = ({ sql, parameters }: Assertion): boolean =>
    at.writer.prepare<unknown[], object>(sql).get(...parameters) !== undefined
  const to = { type: 'agent', principalId: 'acme::bot', resourceId: 'mcpr_a', revision: 1 } as const
  const state = () => [null, 'mcpb_1', 'mcpb_2'].map((id) => holds(standing({ ...to, binding: id })))
  t.same(state(), [true, false, false])
  at.run(insertMcpBinding(at.db, binding('1', 'a')))
  t.same(state(), [false, true, false])
  at.run(deleteMcpBinding(at.db, 'mcpb_1'), insertMcpBinding(at.db, binding('2', 'a')))
  t.same(state(), [false, false, true], 'one that was made anew is another one')
  t.ok(holds(standing({ ...to, type: 'user', binding: null })))
  for (const revision of [0, 2]) {
    t.notOk(holds(standing({ ...to, revision, binding: 'mcpb_2' })), 'the resource is another one')
    t.notOk(holds(standing({ ...to, revision, type: 'user', binding: null })))
  }
  t.notOk(holds(standing({ ...to, resourceId: 'mcpr_b', binding: null })), 'there is no such resource')
})

// SQLite plans a join anew each time its parameters are bound.
t.test('what a row rests on is asked by indexes alone, and without a join', async (t) => {
  const at = await opened(t)
  const standing = mcpStanding(at.db)
  for (const binding of ['mcpb_1', null]) {
    const { sql, parameters } = standing({
      ...{ type: 'agent', principalId: 'p', resourceId: 'r', revision: 1 },
      binding,
    })
    const plan = at.writer
      .prepare<unknown[], { parent: number; detail: string }>(`explain query plan ${sql}`)
      .all(...parameters)
    const looked = plan.filter(({ detail }) => /^(SCAN|SEARCH) /.test(detail))
    t.match(looked, [{ detail: /^SEARCH .* USING / }, { detail: /^SEARCH .* USING / }])
    t.equal(new Set(looked.map(({ parent }) => parent)).size, 2, 'each in a query of its own')
  }
})

t.test('the question of every call searches an index', async (t) => {
  const at = await opened(t)
  const plan = at.writer
    .prepare<unknown[], { detail: string }>(`explain query plan ${bindingIdQuery(at.db).compile().sql}`)
    .all('agent', 'p', 'r')
  t.match(plan, [{ detail: /^SEARCH mcp_bindings USING INDEX/ }])
})

t.test('A7: a page of bindings is read by an index in their order, and by nothing else', async (t) => {
  const at = await opened(t)
  const after = { ...binding('1', 'a'), created_at: '2026-01-01T00:00:00.000Z' }
  for (const [filter, index] of [
    [{}, 'mcp_bindings_oldest'],
    [{ principalId: 'p' }, 'mcp_bindings_of_principal'],
    [{ resourceId: 'r' }, 'mcp_bindings_of_resource'],
  ] as const) {
    for (const from of [undefined, after]) {
      const { sql, parameters } = bindingsQuery(at.db, filter, from).limit(100).compile()
      const plan = at.writer
        .prepare<unknown[], { detail: string }>(`explain query plan ${sql}`)
        .all(...parameters)
      t.match(plan[0]?.detail, new RegExp(`^(SCAN|SEARCH) b USING INDEX ${index}\\b`))
      t.match(plan[1]?.detail, /^SEARCH r USING INDEX/)
      t.equal(plan.length, 2, 'nothing is sorted')
    }
  }
})
