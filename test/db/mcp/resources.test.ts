import t from 'tap'
import { insertMcpBinding } from '../../../db/mcp/bindings.ts'
import { namesCollide, rejectNameCollision } from '../../../db/mcp/names.ts'
import {
  deleteMcpResource,
  findMcpResource,
  insertMcpResource,
  listMcpResources,
  mcpResourceByName,
  mcpResourceByNameQuery,
  NO_APPROVALS,
  recordMcpReading,
  updateMcpResource,
} from '../../../db/mcp/resources.ts'
import { listMcpTools, putMcpTool } from '../../../db/mcp/tools.ts'
import { skipWithoutFile } from '../../support/db/engine.ts'
import { AT, fieldsOf, resourceOf, stored, toolOf } from '../../support/db/mcp-rows.ts'
import { opened, planOf, REFERS_TO_NONE, TAKEN } from '../../support/db/writer.ts'

const READ = { era: 'modern', protocolVersion: '2026-07-28', facts: { serverInfo: { name: 's' } } } as const

t.test('§2.4 a resource is read back as it was registered, never read yet', async (t) => {
  const at = await opened(t)
  await stored(at, 'files', {
    description: 'Files',
    auth_type: 'bearer',
    auth_secret_ref: 'env:MCP_SECRET_FILES',
    allowed_domains: ['files.example'],
    enabled: false,
    tool_capabilities: { read: 'files.read' },
  })
  t.same(await findMcpResource(at.db, 'mcpr_files'), {
    resource_id: 'mcpr_files',
    name: 'files',
    description: 'Files',
    endpoint_url: 'https://files.example/mcp',
    auth_type: 'bearer',
    auth_secret_ref: 'env:MCP_SECRET_FILES',
    required_capability: 'mcp.tools.call',
    allowed_domains: ['files.example'],
    enabled: false,
    tool_capabilities: { read: 'files.read' },
    ...NO_APPROVALS,
    min_proof: 'certificate',
    tool_min_proof: {},
    oauth: null,
    revision: 1,
    created_at: '2026-01-01T00:00:00.000Z',
    updated_at: '2026-01-01T00:00:00.000Z',
    era: null,
    protocol_version: null,
    server_facts: null,
    last_read_at: null,
    last_error: null,
    created_by: null,
    changed_by: null,
  })
  t.equal(await findMcpResource(at.db, 'mcpr_other'), undefined)
})

t.test('§2.4 names are unique, listed in order, and looked up by one indexed question', async (t) => {
  const at = await opened(t)
  for (const name of ['b', 'a']) await stored(at, name)
  t.same(
    (await listMcpResources(at.db)).map(({ name }) => name),
    ['a', 'b'],
  )
  const byName = mcpResourceByName(at.db)
  t.match(await byName('b'), { resource_id: 'mcpr_b', enabled: true })
  t.equal(await byName('B'), undefined)
  const again = insertMcpResource(at.db, { ...fieldsOf('a'), resource_id: 'mcpr_x' })
  await t.rejects(at.run(again), { code: TAKEN })
  if (skipWithoutFile) return
  const plan = planOf(at.db.file, mcpResourceByNameQuery(at.db).compile().sql, 'a')
  t.match(plan, [{ detail: /^SEARCH mcp_resources USING INDEX/ }])
})

t.test('a resource is asked for each time, and read anew only where its row is another one', async (t) => {
  const at = await opened(t)
  await stored(at, 'a', { required_capability: 'a.use' })
  const byName = mcpResourceByName(at.db)
  const first = await byName('a')
  t.equal(await byName('a'), first)
  t.ok(Object.isFrozen(first), 'nobody who is handed it can change it for all others')
  // Past every statement of ours, so that no revision says it.
  await at.run({
    sql: `update mcp_resources set enabled = 0, required_capability = 'b.use' where name = 'a'`,
    parameters: [],
  })
  t.match(await byName('a'), { enabled: false, required_capability: 'b.use', revision: 1 })
  await at.run({ sql: 'delete from mcp_resources', parameters: [] })
  t.equal(await byName('a'), undefined)
})

t.test(
  'a tool that is called like something of the language has the capability it was given, and no other',
  async (t) => {
    const at = await opened(t)
    const own = JSON.parse('{"__proto__":"a.b","constructor":"c.d"}')
    const { tool_capabilities: read } = await stored(at, 'odd', { tool_capabilities: own })
    t.same(Object.entries(read), [
      ['__proto__', 'a.b'],
      ['constructor', 'c.d'],
    ])
    t.notOk('toString' in read)
    t.throws(
      () => Object.assign(read, { more: 'x' }),
      TypeError,
      'nobody can change what others are given too',
    )
  },
)

t.test('a column that holds something else is a fault, not an empty map', async (t) => {
  const at = await opened(t)
  await stored(at, 'a')
  await at.run({ sql: `update mcp_resources set tool_capabilities = 'null'`, parameters: [] })
  await t.rejects(resourceOf(at.db, 'a'), { message: /holds no JSON object/ })
})

t.test('§2.4 a change counts the revision, and a stale one changes no row', async (t) => {
  const at = await opened(t)
  const read = await stored(at, 'a')
  const update = updateMcpResource(at.db, read, {
    ...fieldsOf('a'),
    required_capability: 'a.use',
    at: AT + 5,
  })
  t.same([update.changes, await at.run(update), await at.run(update)], [1, [1], [0]])
  t.match(await resourceOf(at.db, 'a'), {
    revision: 2,
    required_capability: 'a.use',
    created_at: '2026-01-01T00:00:00.000Z',
    updated_at: '2026-01-01T00:00:00.005Z',
  })
})

t.test(
  'what was found at one endpoint is forgotten with it, and kept through any other change',
  async (t) => {
    const at = await opened(t)
    const first = await stored(at, 'a')
    t.same(await at.run(recordMcpReading(at.db, first, { ...READ, at: AT + 1 })), [1])
    const read = await resourceOf(at.db, 'a')
    t.match(read, { era: 'modern', protocol_version: '2026-07-28', server_facts: READ.facts })
    t.match(read, { last_read_at: '2026-01-01T00:00:00.001Z', last_error: null, revision: 1 })
    await at.run(updateMcpResource(at.db, read, { ...fieldsOf('a'), description: 'other' }))
    const kept = await resourceOf(at.db, 'a')
    t.match(kept, { era: 'modern', revision: 2 })
    await at.run(updateMcpResource(at.db, kept, { ...fieldsOf('a'), endpoint_url: 'https://b.example/' }))
    t.match(await resourceOf(at.db, 'a'), {
      era: null,
      protocol_version: null,
      server_facts: null,
      last_read_at: '2026-01-01T00:00:00.001Z',
    })
  },
)

t.test('a read that was overtaken, by a change or by another read, is not noted', async (t) => {
  const at = await opened(t)
  const stale = await stored(at, 'a')
  await at.run(recordMcpReading(at.db, stale, { ...READ, at: AT + 1 }))
  t.same(await at.run(recordMcpReading(at.db, stale, { ...READ, era: 'legacy', at: AT + 2 })), [0])
  t.same(await at.run(recordMcpReading(at.db, stale, { problem: 'late' })), [0])
  const now = await resourceOf(at.db, 'a')
  await at.run(updateMcpResource(at.db, now, fieldsOf('a')))
  t.same(await at.run(recordMcpReading(at.db, now, { problem: 'late' })), [0])
  t.match(await resourceOf(at.db, 'a'), { era: 'modern', last_error: null })
})

t.test(
  'a read that failed leaves what the last good one found, and a good one clears its error',
  async (t) => {
    const at = await opened(t)
    await at.run(recordMcpReading(at.db, await stored(at, 'a'), { ...READ, at: AT + 1 }))
    const read = await resourceOf(at.db, 'a')
    t.same(await at.run(recordMcpReading(at.db, read, { problem: 'It is down.' })), [1])
    t.match(await resourceOf(at.db, 'a'), {
      last_error: 'It is down.',
      last_read_at: '2026-01-01T00:00:00.001Z',
      era: 'modern',
    })
    t.same(await at.run(recordMcpReading(at.db, read, { ...READ, at: AT + 2 })), [1])
    t.match(await resourceOf(at.db, 'a'), { last_error: null })
  },
)

t.test('a resource goes with its tools and bindings, and with nothing of any other', async (t) => {
  const at = await opened(t)
  const [gone, other] = [await stored(at, 'a'), await stored(at, 'b')]
  for (const name of ['a', 'b']) {
    const bound = { binding_id: `mcpb_${name}`, principal_type: 'agent', principal_id: 'acme::x' } as const
    await at.run(putMcpTool(at.db, toolOf(name, 'read')))
    await at.run(insertMcpBinding(at.db, { ...bound, resource_id: `mcpr_${name}`, at: AT }))
  }
  t.same(await at.run(...deleteMcpResource(at.db, gone)), [1, 1, 1])
  t.equal(await findMcpResource(at.db, gone.resource_id), undefined)
  t.equal((await listMcpTools(at.db, other.resource_id)).length, 1)
  const stale = deleteMcpResource(at.db, { ...other, revision: 7 })
  t.equal(stale.at(-1)?.changes, 1, 'so that a unit with a stale one is rolled back')
  t.same(await at.run(...stale), [1, 1, 0])
  t.same(await at.run(putMcpTool(at.db, toolOf('b', 'read'))), [1])
  await t.rejects(at.run({ sql: 'delete from mcp_resources', parameters: [] }), { code: REFERS_TO_NONE })
})

t.test('two names collide where one is the beginning of the other up to a dot', async (t) => {
  const at = await opened(t)
  await stored(at, 'git.hub')
  const clear = async (name: string) => (await at.run(rejectNameCollision(at.db, name)))[0]
  const names = {
    git: 1,
    'git.hub.x': 1,
    'git.hu': 0,
    'git.hub2': 0,
    'git_hub.x': 0,
    g: 0,
    'git.hub': 0,
    'git.hub.': 1,
  }
  for (const [name, found] of Object.entries(names)) {
    t.equal(await clear(name), found, name)
    t.equal(namesCollide(name, 'git.hub'), found === 1, name)
  }
  t.equal(rejectNameCollision(at.db, 'x').changes, 0, 'one row is one too many')
})
