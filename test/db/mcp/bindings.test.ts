import t from 'tap'
import {
  bindingId,
  bindingIdQuery,
  bindingsQuery,
  boundResources,
  deleteMcpBinding,
  insertMcpBinding,
  listMcpBindings,
  mcpBindingAssertion,
} from '../../../db/mcp/bindings.ts'
import type { PrincipalType } from '../../../db/schema.ts'
import { skipWithoutFile } from '../../support/db/engine.ts'
import { AT, stored } from '../../support/db/mcp-rows.ts'
import { opened, planOf, REFERS_TO_NONE, TAKEN } from '../../support/db/writer.ts'

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
  t.equal(await bound('agent', 'acme::bot', 'mcpr_a'), null)
  await at.run(insertMcpBinding(at.db, binding('1', 'a')))
  t.equal(await bound('agent', 'acme::bot', 'mcpr_a'), 'mcpb_1')
  t.equal(await bound('user', 'acme::bot', 'mcpr_a'), null)
  t.equal(await bound('agent', 'acme::other', 'mcpr_a'), null)
  t.equal(await bound('agent', 'acme::bot', 'mcpr_b'), null)
  t.same(await at.run(deleteMcpBinding(at.db, 'mcpb_1')), [1])
  t.equal(await bound('agent', 'acme::bot', 'mcpr_a'), null)
  t.equal(deleteMcpBinding(at.db, 'mcpb_1').changes, 1)
})

t.test('the same two are bound once, and nobody to a resource that is not there', async (t) => {
  const at = await opened(t)
  await stored(at, 'a')
  await at.run(insertMcpBinding(at.db, binding('1', 'a')))
  await t.rejects(at.run(insertMcpBinding(at.db, binding('2', 'a'))), { code: TAKEN })
  await t.rejects(at.run(insertMcpBinding(at.db, binding('3', 'none'))), { code: REFERS_TO_NONE })
})

t.test('§2.3 the resources of a principal are the enabled ones it is bound to, by name', async (t) => {
  const at = await opened(t)
  for (const name of ['b', 'a', 'c']) await stored(at, name)
  await stored(at, 'off', { enabled: false })
  for (const name of ['b', 'a', 'off']) await at.run(insertMcpBinding(at.db, binding(name, name)))
  await at.run(insertMcpBinding(at.db, binding('u', 'c', { type: 'user' })))
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
    await at.run(
      insertMcpBinding(at.db, binding('2', 'b', { at: AT + 1 })),
      insertMcpBinding(at.db, binding('1', 'a')),
    )
    await at.run(insertMcpBinding(at.db, binding('3', 'a', { principal: 'acme::x', at: AT + 2 })))
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
        created_by: null,
        changed_by: null,
        resource_name: 'a',
      },
    ])
  },
)

t.test(
  'docs/ledger.md#authority: a row rests on one binding of the two, or on there being none',
  async (t) => {
    const at = await opened(t)
    await stored(at, 'a')
    const standing = mcpBindingAssertion(at.db)
    const to = { type: 'agent', principalId: 'acme::bot', resourceId: 'mcpr_a', revision: 1 } as const
    const state = async () => {
      const found: boolean[] = []
      for (const id of [null, 'mcpb_1', 'mcpb_2'])
        found.push(await at.holds(standing({ ...to, binding: id })))
      return found
    }
    t.same(await state(), [true, false, false])
    await at.run(insertMcpBinding(at.db, binding('1', 'a')))
    t.same(await state(), [false, true, false])
    await at.run(deleteMcpBinding(at.db, 'mcpb_1'), insertMcpBinding(at.db, binding('2', 'a')))
    t.same(await state(), [false, false, true], 'one that was made anew is another one')
    t.ok(await at.holds(standing({ ...to, type: 'user', binding: null })))
    for (const revision of [0, 2]) {
      t.notOk(await at.holds(standing({ ...to, revision, binding: 'mcpb_2' })), 'the resource is another one')
      t.notOk(await at.holds(standing({ ...to, revision, type: 'user', binding: null })))
    }
    t.notOk(
      await at.holds(standing({ ...to, resourceId: 'mcpr_b', binding: null })),
      'there is no such resource',
    )
  },
)

// SQLite plans a join anew each time its parameters are bound.
t.test(
  'what a row rests on is asked by indexes alone, and without a join',
  { skip: skipWithoutFile },
  async (t) => {
    const at = await opened(t)
    const standing = mcpBindingAssertion(at.db)
    for (const binding of ['mcpb_1', null]) {
      const { sql, parameters } = standing({
        ...{ type: 'agent', principalId: 'p', resourceId: 'r', revision: 1 },
        binding,
      })
      const plan = planOf(at.db.file, sql, ...parameters)
      const looked = plan.filter(({ detail }) => /^(SCAN|SEARCH) /.test(detail))
      t.match(looked, [{ detail: /^SEARCH .* USING / }, { detail: /^SEARCH .* USING / }])
      t.equal(new Set(looked.map(({ parent }) => parent)).size, 2, 'each in a query of its own')
    }
  },
)

t.test('the question of every call searches an index', { skip: skipWithoutFile }, async (t) => {
  const at = await opened(t)
  const plan = planOf(at.db.file, bindingIdQuery(at.db).compile().sql, 'agent', 'p', 'r')
  t.match(plan, [{ detail: /^SEARCH mcp_bindings USING INDEX/ }])
})

t.test(
  'A7: a page of bindings is read by an index in their order, and by nothing else',
  { skip: skipWithoutFile },
  async (t) => {
    const at = await opened(t)
    const after = { ...binding('1', 'a'), created_at: '2026-01-01T00:00:00.000Z', created_by: null }
    for (const [filter, index] of [
      [{}, 'mcp_bindings_oldest'],
      [{ principalId: 'p' }, 'mcp_bindings_of_principal'],
      [{ resourceId: 'r' }, 'mcp_bindings_of_resource'],
    ] as const) {
      for (const from of [undefined, after]) {
        const { sql, parameters } = bindingsQuery(at.db, filter, from).limit(100).compile()
        const plan = planOf(at.db.file, sql, ...parameters)
        t.match(plan[0]?.detail, new RegExp(`^(SCAN|SEARCH) b USING INDEX ${index}\\b`))
        t.match(plan[1]?.detail, /^SEARCH r USING INDEX/)
        t.equal(plan.length, 2, 'nothing is sorted')
      }
    }
  },
)
