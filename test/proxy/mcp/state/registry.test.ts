import t from 'tap'
import type { Database } from '../../../../db/database.ts'
import { deleteMcpResource, raiseMcpRevision } from '../../../../db/mcp/resources.ts'
import { approveMcpTool, putMcpTool } from '../../../../db/mcp/tools.ts'
import type { LedgerStatement } from '../../../../db/support/statement.ts'
import { openRegistry } from '../../../../proxy/mcp/state/registry.ts'
import { AT, stored, toolOf } from '../../../support/db/mcp-rows.ts'
import { opened } from '../../../support/db/writer.ts'

/** A database that counts what is asked on the hot path. */
function counting(db: Database): { readonly db: Database; readonly asked: () => number } {
  let asked = 0
  const lookup: Database['lookup'] = (query) => {
    const found = db.lookup(query)
    return (...parameters) => {
      asked += 1
      return found(...parameters)
    }
  }
  return { db: { ...db, lookup }, asked: () => asked }
}

t.test('a tool is read once for as long as its resource has the same revision', async (t) => {
  const at = await opened(t)
  await stored(at, 'a')
  await stored(at, 'b')
  await at.run(
    putMcpTool(at.db, toolOf('a', 'read')),
    putMcpTool(at.db, toolOf('b', 'read', { digest: 'd9' })),
  )
  const { db, asked } = counting(at.db)
  const registry = openRegistry(db)
  const costs = async (name: string): Promise<number> => {
    const before = asked()
    await registry.exposed(name)
    return asked() - before
  }
  t.equal(await costs('a.read'), 2, 'its resource and itself')
  t.equal(await costs('a.read'), 1, 'its resource')
  t.match(await registry.exposed('a.read'), { tool: { digest: 'd1' } })
  t.match(await registry.exposed('b.read'), { tool: { digest: 'd9' } }, 'another resource’s is another one')
  await costs('a.none')
  t.equal(await costs('a.none'), 2, 'what is not there is not kept, however often it is asked for')
})

t.test('every change of a resource or of its tools holds on the next look-up', async (t) => {
  const at = await opened(t)
  const resource = await stored(at, 'a')
  await at.run(putMcpTool(at.db, toolOf('a', 'read')))
  const registry = openRegistry(at.db)
  let { revision } = resource
  const change = async (...statements: readonly LedgerStatement[]) => {
    await at.run(raiseMcpRevision(at.db, { ...resource, revision }, 1), ...statements)
    revision += 1
  }
  const tool = async () => (await registry.exposed('a.read'))?.tool
  t.match(await tool(), { state: 'approved', digest: 'd1' })

  const pending = { pending_definition: '{"name":"read","x":1}', pending_digest: 'd2' }
  await change(putMcpTool(at.db, toolOf('a', 'read', { state: 'quarantined', ...pending })))
  t.match(await tool(), { state: 'quarantined', pending_digest: 'd2' }, 'quarantined')
  await change(
    approveMcpTool(at.db, {
      resourceId: resource.resource_id,
      name: 'read',
      pendingDigest: 'd2',
      at: AT,
      flags: [],
    }),
  )
  t.match(await tool(), { state: 'approved', digest: 'd2' }, 'approved')
  await change(putMcpTool(at.db, toolOf('a', 'read', { state: 'gone', digest: 'd2' })))
  t.equal(await tool(), undefined, 'gone')
  await change(putMcpTool(at.db, toolOf('a', 'read', { digest: 'd2' })))
  t.match(await tool(), { state: 'approved' }, 'back')
  await at.run(...deleteMcpResource(at.db, { ...resource, revision }))
  t.equal(await registry.exposed('a.read'), undefined, 'deleted')
})
