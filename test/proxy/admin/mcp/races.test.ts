import t, { type Test } from 'tap'
import { openDatabase } from '../../../../db/engine.ts'
import { listRows } from '../../../../db/ledger/read/read.ts'
import { openLedger } from '../../../../db/ledger/record/ledger.ts'
import { listMcpBindings } from '../../../../db/mcp/bindings.ts'
import { listMcpResources } from '../../../../db/mcp/resources.ts'
import { deleteUser, insertPrincipal } from '../../../../db/principals/write.ts'
import { bindPrincipal } from '../../../../proxy/admin/mcp/bindings.ts'
import {
  createMcpResource,
  patchMcpResource,
  refreshMcpResource,
} from '../../../../proxy/admin/mcp/resources.ts'
import type { AdminContext } from '../../../../proxy/admin/operation/context.ts'
import { KeyedQueue } from '../../../../proxy/admin/operation/one-at-a-time.ts'
import {
  type InputSchemas,
  type Operation,
  perform,
  type RawInput,
} from '../../../../proxy/admin/operation/operation.ts'
import type { UpstreamInspection } from '../../../../proxy/mcp/pinning/inspect.ts'
import { databaseUrl, ENGINE } from '../../../support/db/engine.ts'
import { AT } from '../../../support/db/mcp-rows.ts'
import { arrival } from '../../../support/plugins/arrival.ts'
import { ADMIN } from '../../../support/plugins/operators.ts'
import { refused } from '../../../support/refused.ts'

/** The operations on a database of their own; `inspect` says what happens while an upstream is read. */
async function operations(t: Test, inspect: () => Promise<UpstreamInspection>) {
  const database = await openDatabase(await databaseUrl(t.testdir()))
  const ledger = await openLedger({ database, version: '0' })
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  const mcp = { inspect, allowPrivateUpstreams: false, secretsDir: '/nowhere', peopleUrl: null }
  // All that these operations look at.
  const oneAtATime = new KeyedQueue()
  const context = { database, ledger, configDigest: 'c', mcp, oneAtATime } as unknown as AdminContext
  const caller = { ...arrival({ at: AT }), actor: ADMIN }
  const run = <T extends InputSchemas, Output>(operation: Operation<T, Output>, given: RawInput<T>) =>
    perform(operation, context, given, caller)
  return { database, ledger, oneAtATime, run }
}

const DOWN = { ok: false, problem: 'down' } as const
const endpoint_url = 'https://files.example/mcp'

t.test('of names that exclude each other, registered at once, all but one are refused', async (t) => {
  const { database, run } = await operations(t, () => Promise.resolve(DOWN))
  const names = ['git', 'git.hub', 'git.hub.issues']
  const all = names.map((name) => run(createMcpResource, { body: { name, endpoint_url } }))
  const settled = await Promise.allSettled(all)
  const refusals = settled.filter(({ status }) => status === 'rejected')
  t.equal(refusals.length, names.length - 1)
  // Where questions wait for a socket, another one may already see the first.
  const reason = ENGINE === 'sqlite' ? 'precondition_failed' : /^(precondition_failed|body_unprocessable)$/
  for (const refusal of refusals) t.match(refusal, { reason: { reason } })
  t.equal((await listMcpResources(database)).length, 1)
})

t.test('a read that a change has overtaken is dropped, and is no refusal', async (t) => {
  let during = () => Promise.resolve()
  let reads = 0
  const { database, run } = await operations(t, async () => {
    reads += 1
    const problem = `read ${reads}`
    await during()
    return { ok: false, problem }
  })
  await run(createMcpResource, { body: { name: 'files', endpoint_url } })
  const [before] = await listMcpResources(database)
  const params = { resource_id: before?.resource_id ?? '' }
  t.equal(before?.last_error, 'read 1')
  during = async () => {
    during = () => Promise.resolve()
    await run(patchMcpResource, {
      params,
      body: { description: 'changed meanwhile', auth_type: 'none' },
    })
  }
  t.match(await run(refreshMcpResource, { params }), { revision: 2, value: { last_error: 'read 1' } })
  t.match(await listMcpResources(database), [
    { description: 'changed meanwhile', revision: 2, last_error: 'read 1' },
  ])
  const { rows } = await listRows(database.kysely, { order: 'asc' })
  t.same(
    rows.map(({ action }) => action),
    ['mcp_resource.created', 'mcp_resource.updated'],
  )
})

t.test('an update that another one has overtaken is made on what is there then', async (t) => {
  const { database, run } = await operations(t, () => Promise.resolve(DOWN))
  await run(createMcpResource, { body: { name: 'files', endpoint_url } })
  const [before] = await listMcpResources(database)
  const params = { resource_id: before?.resource_id ?? '' }
  const patch = (body: RawInput<typeof patchMcpResource.takes>['body']) =>
    run(patchMcpResource, { params, body })
  await Promise.all([patch({ description: 'a' }), patch({ enabled: false })])
  t.match(await listMcpResources(database), [{ description: 'a', enabled: false, revision: 3 }])
})

t.test('who is erased while it is being bound is not bound', async (t) => {
  const { database, ledger, oneAtATime, run } = await operations(t, () => Promise.resolve(DOWN))
  await run(createMcpResource, { body: { name: 'files', endpoint_url } })
  const [resource] = await listMcpResources(database)
  const id = 'acme::user::zoe'
  const zoe = insertPrincipal(database, {
    ...{ type: 'user', id, ref: 'usr_zoe', name: 'zoe', displayName: null, capabilities: [], at: AT },
    ...{ enrollmentMethod: 'minted', spiffeId: null, dpopJkt: null, federated: false },
  })
  await ledger.commit({ statements: [zoe], entries: [] })
  const body = { agent_id: id, resource_id: resource?.resource_id ?? '' }
  const binding = await oneAtATime.run(`user ${id}`, async () => {
    const bound = run(bindPrincipal, { body })
    bound.catch(() => {})
    // Long enough for it to be made, if it did not wait for its turn.
    for (let times = 0; times < 8; times += 1) await ledger.commit({ entries: [] })
    await ledger.commit({ statements: [deleteUser(database, id, 1)], entries: [] })
    return { bound }
  })
  await t.rejects(binding.bound, refused('body_unprocessable'))
  t.same(await listMcpBindings(database), [])
})
