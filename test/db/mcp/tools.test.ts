import t from 'tap'
import {
  approveMcpTool,
  listMcpTools,
  mcpToolByName,
  mcpToolByNameQuery,
  onlyMcpTool,
  onlyMcpToolQuery,
  putMcpTool,
} from '../../../db/mcp/tools.ts'
import { skipWithoutFile } from '../../support/db/engine.ts'
import { AT, stored, toolOf } from '../../support/db/mcp-rows.ts'
import { opened, planOf, REFERS_TO_NONE } from '../../support/db/writer.ts'

const PENDING = {
  state: 'quarantined',
  pending_definition: '{"name":"read","x":1}',
  pending_digest: 'd2',
} as const

t.test(
  'docs/mcp.md#pinned: a pinned tool is read back as it was put, by the name of its resource and its own',
  async (t) => {
    const at = await opened(t)
    await stored(at, 'a')
    await stored(at, 'b')
    const tool = toolOf('a', 'read', { flags: ['invisible:description U+200B'] })
    t.same(await at.run(putMcpTool(at.db, tool)), [1])
    const byName = mcpToolByName(at.db)
    t.strictSame(await byName('mcpr_a', 'read'), tool)
    t.equal(await byName('mcpr_b', 'read'), undefined)
    t.equal(await byName('mcpr_a', 'Read'), undefined)
    await t.rejects(at.run(putMcpTool(at.db, toolOf('none', 'read'))), { code: REFERS_TO_NONE })
  },
)

t.test('docs/mcp.md#pinned: a read can quarantine a tool but never replace what was approved', async (t) => {
  const at = await opened(t)
  await stored(at, 'a')
  await at.run(putMcpTool(at.db, toolOf('a', 'read')))
  const changed = toolOf('a', 'read', { ...PENDING, definition: 'forged', pinned_at: 'later', flags: ['f'] })
  t.same(await at.run(putMcpTool(at.db, changed)), [1])
  t.strictSame(await listMcpTools(at.db, 'mcpr_a'), [toolOf('a', 'read', { ...PENDING, flags: ['f'] })])
  const forged = putMcpTool(at.db, toolOf('a', 'read', { digest: 'd2', definition: 'forged' }))
  t.same([forged.changes, await at.run(forged)], [1, [0]])
  t.match(await listMcpTools(at.db, 'mcpr_a'), [{ digest: 'd1', definition: '{"name":"read"}' }])
})

t.test('a tool that was never approved has nothing pinned, until it is', async (t) => {
  const at = await opened(t)
  await stored(at, 'a')
  const { definition: _d, digest: _g, pinned_at: _p, ...known } = toolOf('a', 'read', PENDING)
  const fresh = { ...known, definition: null, digest: null, pinned_at: null }
  t.same(await at.run(putMcpTool(at.db, fresh)), [1])
  t.strictSame(await listMcpTools(at.db, 'mcpr_a'), [fresh])
  t.same(await at.run(putMcpTool(at.db, { ...fresh, state: 'gone' })), [1])
  t.same(await at.run(putMcpTool(at.db, toolOf('a', 'read', { definition: 'forged' }))), [0])
  t.same(await at.run(putMcpTool(at.db, fresh)), [1])
  const approval = { resourceId: 'mcpr_a', name: 'read', pendingDigest: 'd2', at: AT, flags: [] }
  t.same(await at.run(approveMcpTool(at.db, approval)), [1])
  t.match(await listMcpTools(at.db, 'mcpr_a'), [{ digest: 'd2', definition: PENDING.pending_definition }])
})

t.test('docs/mcp.md#pinned: an approval pins what was looked at, and nothing that came later', async (t) => {
  const at = await opened(t)
  await stored(at, 'a')
  await at.run(
    putMcpTool(at.db, toolOf('a', 'read', PENDING)),
    putMcpTool(at.db, toolOf('a', 'other', PENDING)),
  )
  const approve = (pendingDigest: string) =>
    approveMcpTool(at.db, { resourceId: 'mcpr_a', name: 'read', pendingDigest, at: AT + 9, flags: [] })
  t.same([approve('d3').changes, await at.run(approve('d3'))], [1, [0]])
  t.same(await at.run(approve('d2')), [1])
  const byName = mcpToolByName(at.db)
  t.strictSame(
    await byName('mcpr_a', 'read'),
    toolOf('a', 'read', {
      definition: PENDING.pending_definition,
      digest: 'd2',
      pinned_at: '2026-01-01T00:00:00.009Z',
    }),
  )
  t.match(await byName('mcpr_a', 'other'), { state: 'quarantined', digest: 'd1' }, 'its neighbour waits on')
  t.same(await at.run(approve('d2')), [0], 'there is nothing left to approve')
})

t.test('what an approval was overtaken by is not stored by a read that was planned before it', async (t) => {
  const at = await opened(t)
  await stored(at, 'a')
  await at.run(putMcpTool(at.db, toolOf('a', 'read', PENDING)))
  const planned = putMcpTool(at.db, toolOf('a', 'read', { ...PENDING, pending_digest: 'd3' }))
  await at.run(
    approveMcpTool(at.db, { resourceId: 'mcpr_a', name: 'read', pendingDigest: 'd2', at: AT, flags: [] }),
  )
  t.same(await at.run(planned), [0])
})

t.test('a tool that is gone is not approved', async (t) => {
  const at = await opened(t)
  await stored(at, 'a')
  await at.run(putMcpTool(at.db, toolOf('a', 'read', { ...PENDING, state: 'gone' })))
  t.same(
    await at.run(
      approveMcpTool(at.db, { resourceId: 'mcpr_a', name: 'read', pendingDigest: 'd2', at: AT, flags: [] }),
    ),
    [0],
  )
})

t.test(
  'docs/protocol.md#mcp-names the only tool of a resource is found where there is exactly one that is not gone',
  async (t) => {
    const at = await opened(t)
    await stored(at, 'a')
    await stored(at, 'b')
    const only = onlyMcpTool(at.db)
    await at.run(putMcpTool(at.db, toolOf('b', 'far')))
    t.equal(await only('mcpr_a'), undefined)
    await at.run(
      putMcpTool(at.db, toolOf('a', 'was', { state: 'gone' })),
      putMcpTool(at.db, toolOf('a', 'read')),
    )
    t.strictSame(await only('mcpr_a'), toolOf('a', 'read'))
    await at.run(putMcpTool(at.db, toolOf('a', 'read', { state: 'quarantined' })))
    t.match(await only('mcpr_a'), { name: 'read', state: 'quarantined' })
    await at.run(putMcpTool(at.db, toolOf('a', 'write')))
    t.equal(await only('mcpr_a'), undefined)
  },
)

t.test('the questions of every call search an index', { skip: skipWithoutFile }, async (t) => {
  const at = await opened(t)
  const steps = (query: { compile: () => { sql: string } }, ...parameters: string[]) =>
    planOf(at.db.file, query.compile().sql, ...parameters)
      .map(({ detail }) => detail)
      .join('; ')
  t.match(
    steps(mcpToolByNameQuery(at.db), 'r', 'n'),
    /^SEARCH mcp_tools USING INDEX \S+ \(resource_id=\? AND name=\?\)$/,
  )
  t.match(steps(onlyMcpToolQuery(at.db), 'r'), /SEARCH mcp_tools USING INDEX \S+ \(resource_id=\?\)/)
})
