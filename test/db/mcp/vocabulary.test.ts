import t from 'tap'
import { heldCapabilities, listDemandedCapabilities } from '../../../db/mcp/vocabulary.ts'
import { insertPrincipal, setActive } from '../../../db/principals/write.ts'
import type { PrincipalType } from '../../../db/schema.ts'
import { AT, stored } from '../../support/db/mcp-rows.ts'
import { opened } from '../../support/db/writer.ts'

const principal = (type: PrincipalType, name: string, capabilities: readonly string[]) => ({
  type,
  id: `acme::${type}::${name}`,
  ref: `acme::${type}::${name}`,
  name,
  displayName: null,
  capabilities,
  enrollmentMethod: 'minted' as const,
  spiffeId: null,
  dpopJkt: null,
  federated: false,
  at: AT,
})

t.test('§2.2 what registered resources demand is a word of the vocabulary', async (t) => {
  const at = await opened(t)
  t.same(await listDemandedCapabilities(at.db), [])
  await stored(at, 'b', { required_capability: 'b.use' })
  await stored(at, 'a', {
    required_capability: null,
    tool_capabilities: { write: 'a.write', delete: 'a.admin' },
  })
  t.same(await listDemandedCapabilities(at.db), [
    { capability: 'a.admin', resource: 'a', tool: 'delete' },
    { capability: 'a.write', resource: 'a', tool: 'write' },
    { capability: 'b.use', resource: 'b', tool: null },
  ])
})

t.test('§2.2 what principals of any type hold is counted by principal, the deactivated too', async (t) => {
  const at = await opened(t)
  t.same(await heldCapabilities(at.db), [])
  await at.run(insertPrincipal(at.db, principal('agent', 'a', ['x', 'llm.chat'])))
  await at.run(insertPrincipal(at.db, principal('agent', 'b', ['x', 'llm.chat'])))
  await at.run(insertPrincipal(at.db, principal('user', 'c', ['__proto__', 'x'])))
  await at.run(insertPrincipal(at.db, principal('workload', 'd', [])))
  await at.run(setActive(at.db, { type: 'user', id: 'acme::user::c', active: false, at: AT }))
  t.same(await heldCapabilities(at.db), [
    { capability: '__proto__', holders: { user: 1 } },
    { capability: 'llm.chat', holders: { agent: 2 } },
    { capability: 'x', holders: { agent: 2, user: 1 } },
  ])
})
