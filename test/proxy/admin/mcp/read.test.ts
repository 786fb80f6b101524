import t from 'tap'
import { withRotation } from '../../../../certs/authority/rotation.ts'
import { openDatabase } from '../../../../db/engine.ts'
import { openLedger } from '../../../../db/ledger/record/ledger.ts'
import { findMcpResource, insertMcpResource } from '../../../../db/mcp/resources.ts'
import { SubjectKeys } from '../../../../plugins/pin/subject-keys.ts'
import { readAndStoreUpstream } from '../../../../proxy/admin/mcp/one-resource.ts'
import { KeyedQueue } from '../../../../proxy/admin/operation/one-at-a-time.ts'
import { inspector } from '../../../../proxy/mcp/pinning/inspect.ts'
import { loadConfiguration } from '../../../../proxy/wiring/configuration.ts'
import { madeAuthority } from '../../../support/certs/made.ts'
import { databaseUrl } from '../../../support/db/engine.ts'
import { AT, fieldsOf } from '../../../support/db/mcp-rows.ts'
import { PLUGIN_FILES, scratch, writeFiles } from '../../../support/gateway.ts'
import { rawMcp, upstreamFor } from '../../../support/mcp/raw-upstream.ts'
import { tool, toolServer } from '../../../support/mcp/stage.ts'
import { arrival } from '../../../support/plugins/arrival.ts'
import { ADMIN, UNASKED } from '../../../support/plugins/operators.ts'

/**
 * What an operator's read of a server at that address leaves behind, when it may take no longer than
 * `withinMs`.
 */
async function readOnce(t: Parameters<typeof rawMcp>[0], url: string, withinMs?: number) {
  const root = await scratch(t)
  await writeFiles(root, PLUGIN_FILES, 'http://127.0.0.1:9')
  const configuration = await loadConfiguration(root, {})
  const database = await openDatabase(await databaseUrl(root))
  const ledger = await openLedger({ database, version: '0' })
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  const resource_id = 'mcpr_up'
  const registering = insertMcpResource(database, { ...fieldsOf('up'), resource_id, endpoint_url: url })
  await ledger.commit({ statements: [registering], entries: [] })
  const found = async () => {
    const resource = await findMcpResource(database, resource_id)
    if (!resource) throw new Error('it is not there')
    return resource
  }
  const authority = await withRotation((await madeAuthority()).authority, {}, '')
  const context = {
    database,
    ledger,
    authority,
    issuing: () => Promise.resolve(authority),
    subjectKeys: new SubjectKeys(database, Buffer.alloc(32)),
    oneAtATime: new KeyedQueue(),
    organisation: 'acme',
    trustDomain: 'sallyport.local',
    configDigest: configuration.digest,
    rotationGraceHours: configuration.pin.rotation_grace_hours,
    trustBundles: () => new Map(),
    rotateSigningKey: () => Promise.resolve('kid'),
    rotateAuditKey: () => Promise.resolve('vkey'),
    anchors: () => Promise.resolve([]),
    ...UNASKED,
    mcp: {
      inspect: inspector(database, upstreamFor(t), () => AT),
      allowPrivateUpstreams: true,
      secretsDir: '/nowhere',
      peopleUrl: null,
    },
  }
  const facts = { ...arrival({ at: AT }), actor: ADMIN }
  await readAndStoreUpstream(context, facts, await found(), withinMs)
  return found()
}

await t.test(
  'an operator who waits for a silent server is told that it did not answer in time',
  async (t) => {
    const silent = await rawMcp(t)
    t.match(await readOnce(t, silent.url, 50), {
      last_error: 'it did not answer in time (50 ms)',
      last_read_at: null,
    })
  },
)

await t.test('one that answers is read, and then there is nothing to complain of', async (t) => {
  const server = await toolServer(t, [tool('go')])
  t.match(await readOnce(t, server.url), { last_error: null, last_read_at: /./ })
})
