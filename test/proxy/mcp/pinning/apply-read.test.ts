import t from 'tap'
import { openDatabase } from '../../../../db/engine.ts'
import { listRows } from '../../../../db/ledger/read/read.ts'
import { openLedger } from '../../../../db/ledger/record/ledger.ts'
import { findMcpResource, insertMcpResource, type McpResource } from '../../../../db/mcp/resources.ts'
import { listMcpTools } from '../../../../db/mcp/tools.ts'
import { applyRead, storeRead } from '../../../../proxy/mcp/pinning/apply-read.ts'
import { planPins } from '../../../../proxy/mcp/pinning/plan.ts'
import { judgeTool, judgeTools } from '../../../../proxy/mcp/pinning/tool-definition.ts'
import { SkippedTools } from '../../../../proxy/mcp/upstream/tools.ts'
import { databaseUrl } from '../../../support/db/engine.ts'
import { AT, fieldsOf } from '../../../support/db/mcp-rows.ts'

const FOUND = { ok: true, era: 'modern', protocolVersion: '2026-07-28', facts: {} } as const

/** A registered resource, and how a background task stores what a read of it found. */
async function registered(t: Parameters<typeof openedAt>[0]) {
  const { database, ledger } = await openedAt(t)
  const resource_id = 'mcpr_files'
  const statements = [insertMcpResource(database, { ...fieldsOf('files'), resource_id })]
  await ledger.commit({ statements, entries: [] })
  const current = async (): Promise<McpResource> => {
    const found = await findMcpResource(database, resource_id)
    if (!found) throw new Error('it is not there')
    return found
  }
  const inspected = async (resource: McpResource, ...texts: string[]) => {
    const known = await listMcpTools(database, resource_id)
    const raw = texts.map((text) => ({ name: JSON.parse(text).name, text }))
    const listed = await judgeTools({ tools: raw, skipped: new SkippedTools() }, known, judgeTool)
    const first = resource.last_read_at === null
    return {
      ...FOUND,
      pins: planPins({ resourceId: resource_id, known, listed, unread: null, first, at: AT }),
    }
  }
  let at = AT
  const store = async (resource: McpResource, ...texts: string[]) => {
    at += 1
    const found = await inspected(resource, ...texts)
    return storeRead({ database, ledger, configDigest: 'c', at }, resource, found)
  }
  const rows = async () => (await listRows(database.kysely, { order: 'asc', limit: 1000 })).rows
  return { database, ledger, current, store, rows }
}

async function openedAt(t: { testdir: () => string; teardown: (close: () => Promise<void>) => void }) {
  const database = await openDatabase(await databaseUrl(t.testdir()))
  const ledger = await openLedger({ database, version: '0' })
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  return { database, ledger }
}

const tool = (name: string, description = '', properties: object = {}): string =>
  JSON.stringify({ name, description, inputSchema: { type: 'object', properties } })

t.test(
  'docs/mcp.md#pinned: what is pinned, quarantined and gone has its rows, in the same unit as the change',
  async (t) => {
    const { current, store, rows, database } = await registered(t)
    t.equal(await store(await current(), tool('write'), tool('read')), true)
    t.match(await rows(), [
      {
        action: 'mcp_resource.updated',
        principal_id: null,
        request_id: null,
        detail: {
          subject: 'mcpr_files',
          name: 'files',
          approved: ['read', 'write'],
          approved_count: 2,
          gone: [],
        },
      },
    ])
    await store(await current(), tool('read', 'Other.'))
    t.match((await rows()).slice(1), [
      { action: 'mcp_resource.updated', detail: { approved: [], gone: ['write'], gone_count: 1 } },
      {
        action: 'mcp_resource.tool_quarantined',
        tool: 'files.read',
        detail: { tool: 'read', changes: [/Other/] },
      },
    ])
    await store(await current(), tool('read', 'Other.'))
    t.equal((await rows()).length, 3, 'nothing new, no row')
    t.match(await listMcpTools(database, 'mcpr_files'), [{ state: 'quarantined' }, { state: 'gone' }])
  },
)

t.test(
  'docs/mcp.md#pinned: of two first reads one is trusted: the other cannot put its definitions in the place',
  async (t) => {
    const { current, store, rows, database } = await registered(t)
    const resource = await current()
    t.equal(await store(resource, tool('read')), true)
    const [pinned] = await listMcpTools(database, 'mcpr_files')
    t.equal(await store(resource, tool('read', 'Forged.')), false)
    t.strictSame(await listMcpTools(database, 'mcpr_files'), [pinned])
    t.equal((await rows()).length, 1, 'what was not stored has no row')
  },
)

t.test('threat 17 an upstream does not choose the size of the ledger', async (t) => {
  const { database, current, ledger, rows } = await registered(t)
  const changes = Array.from({ length: 51 }, (_, i) => `${i}${'x'.repeat(900)}`)
  const quarantined = Array.from({ length: 300 }, (_, i) => ({ tool: `t${i}`, changes, digest: 'd' }))
  const found = { ...FOUND, pins: { tools: [], quarantined } }
  await storeRead({ database, ledger, configDigest: 'c', at: AT }, await current(), found)
  const written = await rows()
  t.equal(written.length, 64 + 4, 'the first have rows of their own')
  const sizes = written.map(({ detail }) => JSON.stringify(detail).length)
  t.ok(sizes.reduce((sum, size) => sum + size, 0) < 300_000)
})

t.test('one tool with the longest differences has a row', async (t) => {
  const { database, current, rows, ledger } = await registered(t)
  const resource = await current()
  const changes = Array.from({ length: 51 }, (_, i) => `${i}${'\u0001'.repeat(5000)}`)
  const pins = { tools: [], quarantined: [{ tool: 'read', changes, digest: 'd' }] }
  const found = { ...FOUND, pins }
  t.equal(await storeRead({ database, ledger, configDigest: 'c', at: AT }, resource, found), true)
  const [row] = await rows()
  const kept = row?.detail.changes
  t.ok(Array.isArray(kept) && kept.length > 1)
  t.match(Array.isArray(kept) && kept.at(-1), /^and \d+ more$/)
})

t.test('why a read failed stands on one line, with nothing hidden in it', async (t) => {
  const { database, current, ledger, rows } = await registered(t)
  const problem = `down\u001b[2J\n\u202eup ${'x'.repeat(1000)}`
  const resource = await current()
  const { notes } = await applyRead({ database, at: AT }, resource, { ok: false, problem })
  t.strictSame(notes, [])
  await storeRead({ database, ledger, configDigest: 'c', at: AT }, resource, { ok: false, problem })
  const { last_error: error } = await current()
  t.match(error, /^down \[2J up x+$/)
  t.ok((error ?? '').length <= 512)
  t.strictSame(await rows(), [])
})
