import t from 'tap'
import { insertMcpBinding } from '../../../db/mcp/bindings.ts'
import {
  bindingsOfPrincipals,
  boundQuery,
  countBindings,
  findBoundPrincipals,
} from '../../../db/mcp/bound.ts'
import { noPause } from '../../../db/support/pages.ts'
import { skipWithoutFile } from '../../support/db/engine.ts'
import { AT, stored } from '../../support/db/mcp-rows.ts'
import { opened, planOf } from '../../support/db/writer.ts'

t.test('who is bound is listed once, by type and id, from where a page has ended', async (t) => {
  const at = await opened(t)
  await stored(at, 'a')
  await stored(at, 'b')
  const bound = [
    ['agent', 'acme::a', 'a'],
    ['agent', 'acme::a', 'b'],
    ['agent', 'acme::b', 'a'],
    ['user', 'acme::a', 'a'],
  ] as const
  for (const [n, [principal_type, principal_id, resource]] of bound.entries())
    await at.run(
      insertMcpBinding(at.db, {
        ...{ binding_id: `mcpb_${n}`, principal_type, principal_id, resource_id: `mcpr_${resource}`, at: AT },
      }),
    )
  const list = async (asked: Parameters<typeof findBoundPrincipals>[1]) =>
    (await findBoundPrincipals(at.db, asked, noPause)).map(
      (one) => `${one.principal_type} ${one.principal_id}`,
    )
  t.same(await list({ most: 10 }), ['agent acme::a', 'agent acme::b', 'user acme::a'])
  t.same(await list({ most: 2 }), ['agent acme::a', 'agent acme::b'])
  const after = { principal_type: 'agent', principal_id: 'acme::a' } as const
  t.same(await list({ most: 10, after }), ['agent acme::b', 'user acme::a'])
  t.same(await list({ most: 10, wanted: ({ principal_id: id }) => id === 'acme::b' }), ['agent acme::b'])
  t.same(
    (await bindingsOfPrincipals(at.db, 'agent', ['acme::a', 'acme::b'])).map((one) => one.binding_id).sort(),
    ['mcpb_0', 'mcpb_1', 'mcpb_2'],
  )
  t.same(Object.fromEntries(await countBindings(at.db)), { mcpr_a: 3, mcpr_b: 1 })
})

t.test('it is read by an index alone, in its order', { skip: skipWithoutFile }, async (t) => {
  const at = await opened(t)
  for (const after of [undefined, { principal_type: 'agent', principal_id: 'x' } as const]) {
    const { sql, parameters } = boundQuery(at.db, after).limit(100).compile()
    const plan = planOf(at.db.file, sql, ...parameters)
    t.match(plan[0]?.detail, /^(SCAN|SEARCH) mcp_bindings USING COVERING INDEX/)
    t.equal(plan.length, 1, 'nothing is sorted')
  }
})
