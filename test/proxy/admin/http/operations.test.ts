import { once } from 'node:events'
import { Readable } from 'node:stream'
import { json } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { type LedgerPage, listRows } from '../../../../db/ledger/read/read.ts'
import { SubjectKeys } from '../../../../plugins/pin/subject-keys.ts'
import { Refusal } from '../../../../plugins/refusal.ts'
import { administerOnRecord } from '../../../../proxy/admin/http/administer.ts'
import { OPERATIONS } from '../../../../proxy/admin/http/operations.ts'
import { retryIfOvertaken } from '../../../../proxy/admin/operation/change.ts'
import type { AdminContext } from '../../../../proxy/admin/operation/context.ts'
import { LedgerPlaces, RehearsalPlaces } from '../../../../proxy/admin/operation/ledger-places.ts'
import { KeyedQueue } from '../../../../proxy/admin/operation/one-at-a-time.ts'
import { perform } from '../../../../proxy/admin/operation/operation.ts'
import { changePipeline } from '../../../../proxy/admin/pipeline.ts'
import { openDataDirectory } from '../../../../proxy/boot/data-directory.ts'
import { makeDataDirectory } from '../../../../proxy/boot/prepare-directory.ts'
import { readSettings } from '../../../../proxy/boot/settings.ts'
import { CallHangup } from '../../../../proxy/http/open-calls.ts'
import { scratch } from '../../../support/gateway.ts'
import { arrival } from '../../../support/plugins/arrival.ts'
import { ADMIN, UNASKED } from '../../../support/plugins/operators.ts'
import { refused } from '../../../support/refused.ts'

const AT = Date.UTC(2026, 0, 1)
const CALLER = { ...arrival({ id: 'req_inside', at: AT }), actor: ADMIN } as const

/** What operations work with, on a data directory of its own: no listener, no HTTP. */
async function inside(t: Test): Promise<AdminContext> {
  const settings = readSettings({ MCP_PROXY_DATA_DIR: 'data' }, await scratch(t))
  await makeDataDirectory(settings)
  const { database, ledger, authority, close } = await openDataDirectory(settings, 64, AT)
  t.teardown(close)
  return {
    database,
    ledger,
    authority,
    issuing: () => Promise.resolve(authority),
    subjectKeys: new SubjectKeys(database, Buffer.alloc(32)),
    oneAtATime: new KeyedQueue(),
    organisation: settings.org,
    trustDomain: settings.trustDomain,
    configDigest: 'c'.repeat(64),
    rotationGraceHours: 48,
    trustBundles: () => new Map(),
    rotateSigningKey: () => Promise.resolve('kid'),
    rotateAuditKey: () => Promise.resolve('vkey'),
    anchors: () => Promise.resolve([]),
    ...UNASKED,
    mcp: {
      inspect: () => Promise.resolve({ ok: false, problem: 'it could not be reached' }),
      allowPrivateUpstreams: false,
      secretsDir: settings.secretsDir,
      peopleUrl: null,
    },
  }
}

await t.test(
  'operations are called in-process, typed, and leave the rows that they leave over HTTP',
  async (t) => {
    const context = await inside(t)
    const { users, mcpResources, audit } = OPERATIONS

    const created = await perform(
      users.create,
      context,
      { body: { user_name: 'ada', capabilities: ['llm.chat'] } },
      CALLER,
    )
    t.match(created, { value: { principal_type: 'user', name: 'ada', is_active: true }, revision: 1 })

    const params = { id: created.value.principal_id ?? '' }
    const set = await perform(
      users.setCapabilities,
      context,
      { params, query: {}, body: { capabilities: [] }, ifMatch: '"1"' },
      CALLER,
    )
    t.match(set, { value: { capabilities: [] }, revision: 2 })

    const body = { name: 'files', endpoint_url: 'https://files.example/mcp' }
    const resource = await perform(mcpResources.create, context, { body }, CALLER)
    t.match(resource.value, { name: 'files', last_error: 'it could not be reached', tools: [] })
    t.same(await perform(mcpResources.delete, context, { params: resource.value }, CALLER), {
      value: undefined,
    })

    const { value: pieces } = await perform(audit.list, context, { query: { order: 'asc' } }, CALLER)
    const page = (await json(Readable.from(pieces))) as LedgerPage
    const written = page.rows.filter(({ request_id: id }) => id === CALLER.id)
    t.same(
      written.map(({ action }) => action),
      ['user.created', 'user.capabilities_patched', 'mcp_resource.created', 'mcp_resource.deleted'],
    )
    t.match(written[0], { principal_id: 'admin', detail: { via: 'secret' } })
  },
)

await t.test('operations refuse in-process as they do over HTTP, and write nothing then', async (t) => {
  const context = await inside(t)
  const { users } = OPERATIONS
  const before = (await listRows(context.database.kysely, {})).rows.length

  const nameless = { body: { user_name: 'a b', capabilities: [] } }
  await t.rejects(perform(users.create, context, nameless, CALLER), refused('body_unprocessable'))
  const nobody = { params: { id: 'acme::user::nobody' } }
  const message = 'There is no user with this id. GET /v1/admin/users lists them.'
  await t.rejects(perform(users.get, context, nobody, CALLER), refused('not_found', { message }))
  const strange = Object.fromEntries(Array.from({ length: 500 }, (_, n) => [`${n}${'x'.repeat(5_000)}`, 1]))
  const body = { user_name: 'ab', capabilities: [], ...strange }
  let shown: unknown
  await t.rejects(
    perform(users.create, context, { body }, CALLER).catch((refusal: Refusal) => {
      shown = refusal.detail.errors
      throw refusal
    }),
    { message: /^0x{255}: is not a field of this request$/ },
  )
  t.match(shown, { length: 100 })
  t.ok(JSON.stringify(shown).length < 60_000, 'names of strangers are cut, and so is their list')
  t.equal((await listRows(context.database.kysely, {})).rows.length, before)
})

const callerNamed = (id: string) => ({ ...CALLER, actor: { ...ADMIN, id }, hangup: new CallHangup() })

for (const requireRehearsal of ['when_refusing', 'always'] as const)
  await t.test(`H2: taking away never waits for a place to rehearse in (${requireRehearsal})`, async (t) => {
    const over = new AbortController()
    const context: AdminContext = {
      ...(await inside(t)),
      rehearsalPlaces: new RehearsalPlaces(),
      requireRehearsal,
      // A long ledger.
      walkCalls: () =>
        new Promise((_, fail) => over.signal.addEventListener('abort', () => fail(over.signal.reason))),
    }
    const asked = { ...context, change: changePipeline(context) }
    const { users } = OPERATIONS
    const body = { user_name: 'ada', capabilities: ['llm.chat', 'x'] }
    const { value } = await perform(users.create, context, { body }, CALLER)
    const params = { id: value.principal_id ?? '' }
    const heldBy = (capabilities: readonly string[]) =>
      administerOnRecord(
        users.setCapabilities,
        asked,
        { params, query: {}, body: { capabilities: [...capabilities] } },
        CALLER,
      )

    const readers = ['greta', 'greta', 'hans', 'hans'].map((id) =>
      perform(users.usage, context, { params, query: {} }, callerNamed(id)),
    )
    const ends = readers.map((one) => t.rejects(one, { message: 'the test is over' }))
    await t.rejects(
      perform(users.usage, context, { params, query: {} }, callerNamed('ida')),
      refused('overloaded', { message: '4 rehearsals are under way. Try again when one is done.' }),
    )
    for (const purpose of ['change', 'rehearsal'] as const)
      t.notOk(
        context.rehearsalPlaces.isFull(purpose),
        `those who may only look take no place of a ${purpose}`,
      )

    const changers = ['jan', 'jan', 'kim', 'kim'].flatMap((id) =>
      (['change', 'rehearsal'] as const).map((purpose) =>
        context.rehearsalPlaces.run(purpose, id, () => once(over.signal, 'abort')),
      ),
    )
    const more = heldBy(['llm.chat', 'y'])
    await t.rejects(more, refused(requireRehearsal === 'always' ? 'rehearsal_required' : 'overloaded'))
    t.match(await heldBy(['llm.chat']), { value: { capabilities: ['llm.chat'] } })
    t.match(await administerOnRecord(users.deactivate, asked, { params }, CALLER), { value: undefined })
    over.abort(new Error('the test is over'))
    await Promise.all([...ends, ...changers])
  })

await t.test('H2: an operator who does not read on keeps places for others, and for verifying', async (t) => {
  const context: AdminContext = { ...(await inside(t)), ledgerPlaces: new LedgerPlaces() }
  const { audit } = OPERATIONS
  const exported = (caller: typeof CALLER) => perform(audit.export, context, {}, caller)
  const greta = callerNamed('greta')
  const held = [await exported(greta), await exported(greta)]
  await t.rejects(
    exported(greta),
    refused('overloaded', {
      message: '2 of your readings of the ledger are under way. Try again when one is done.',
    }),
  )
  t.match(await perform(audit.verify, context, {}, greta), { value: { ok: true } })
  for (const id of ['hans', 'hans', 'ida', 'ida']) held.push(await exported(callerNamed(id)))
  await t.rejects(exported(callerNamed('jan')), refused('overloaded'))
  t.match(await perform(audit.verify, context, {}, callerNamed('jan')), { value: { ok: true } })
  t.match(await json(Readable.from((await perform(audit.list, context, { query: {} }, greta)).value)), {
    rows: [],
  })
  // One is read to its end, one is given up.
  for await (const piece of held[0]?.value ?? []) t.ok(piece.length > 0)
  greta.hangup.hangUp()
  await exported(callerNamed('jan'))
})

await t.test('a change that is overtaken thirty times, as on a starved replica, is made', async (t) => {
  let tries = 0
  const write = (found: number): Promise<string> =>
    found > 30 ? Promise.resolve('made') : Promise.reject(new Refusal('precondition_failed'))
  t.equal(await retryIfOvertaken(async () => ++tries, write), 'made')
  const refusing = retryIfOvertaken(() => Promise.reject(new Refusal('precondition_failed')), write)
  await t.rejects(refusing, refused('precondition_failed'), 'a refusal of what was read is final')
})

await t.test('each operation has a name of its own', (t) => {
  const names = Object.values(OPERATIONS).flatMap((group) => Object.values(group).map(({ name }) => name))
  t.equal(new Set(names).size, names.length)
  t.end()
})
