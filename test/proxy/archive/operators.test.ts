import { hash } from 'node:crypto'
import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { messageOf } from '../../../db/support/error-message.ts'
import type { AdminCall } from '../../../scripts/admin/call.ts'
import { verb } from '../../../scripts/verbs/archive.ts'
import { recordFiveDays } from '../../support/archive.ts'
import { ENGINE } from '../../support/db/engine.ts'
import { type Answered, type Json, type TestGateway, testGateway } from '../../support/gateway.ts'
import { signedInBySecret } from '../../support/oidc/jar.ts'
import { as, ownerOnTheMachine } from '../../support/operators.ts'
import { eventually } from '../../support/settled.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

const API = '/v1/admin/archive'

const optionsFile = (folder: string, more = '') => ({
  // Not by itself while the test runs.
  '90-archive.yaml': `plugin: archive\nkeep: 2d\nto: ${folder}\nat: "23:59"\n${more}`,
  '45-proofs.yaml': 'plugin: proofs\nseal_interval_ms: 100\n',
})

/** Makes the ledger of a gateway that ran five days. */
async function fiveDays(t: Test): Promise<TestGateway['settings']> {
  const { settings, close } = await testGateway(t, { verify: false })
  await close(0)
  await recordFiveDays(settings.databaseUrl)
  return settings
}

const sealed = (gateway: TestGateway) =>
  eventually(
    async () => (await gateway.admin('GET', '/v1/admin/log')).json.unsealed,
    (unsealed) => unsealed === 0,
  )

/** The archive gives way to calls, and each question here is one. ms. */
const DONE_MS = 90_000

t.setTimeout(300_000)

/** Waits until the work that was asked for is done. */
async function done(gateway: TestGateway, { json }: Answered): Promise<Json> {
  const found = await eventually(
    async () => (await gateway.admin('GET', API)).json,
    ({ last }) => last?.id === json.asked,
    DONE_MS,
  )
  return found.last
}

/** The verb against a gateway, in this process. */
const archiving =
  (gateway: TestGateway) =>
  async (...args: string[]): Promise<{ readonly code: number; readonly out: string }> => {
    const call: AdminCall = async (method, path, body) => {
      const { status, json } = await gateway.admin(method, path, body)
      return { status, body: json ?? null }
    }
    let out = ''
    try {
      await verb.perform(
        args,
        (_door, work) => work(call),
        (text) => {
          out += text
        },
      )
      return { code: 0, out }
    } catch (error) {
      return { code: 1, out: messageOf(error) }
    }
  }

const restarted = async (
  t: Test,
  { dataDir, databaseUrl }: TestGateway['settings'],
  files: Readonly<Record<string, string>>,
): Promise<TestGateway> => {
  const gateway = await testGateway(t, {
    verify: false,
    files,
    settings: { MCP_PROXY_DATA_DIR: dataDir, MCP_PROXY_DATABASE_URL: databaseUrl },
  })
  await sealed(gateway)
  return gateway
}

await t.test('operators move rows, confirm copies, forget and restore, and are told why not', async (t) => {
  const folder = `${t.testdir({ archive: {} })}/archive`
  const settings = await fiveDays(t)
  const gateway = await restarted(t, settings, optionsFile(folder, 'confirm: true\nforget: 7y\n'))
  const post = (path: string, body: unknown = {}) => gateway.admin('POST', `${API}${path}`, body)
  const list = async () => (await gateway.admin('GET', API)).json
  const here = { MCP_PROXY_DATA_DIR: settings.dataDir, MCP_PROXY_PLUGINS_DIR: gateway.pluginsDir }
  const run = archiving(gateway)
  const refused = async (cases: readonly (readonly [string, unknown, number, RegExp])[]): Promise<void> => {
    const before = (await list()).segments
    for (const [path, body, status, sentence] of cases) {
      const answer = await post(path, body)
      t.match(answer, { status, json: { message: sentence } }, `${path} ${JSON.stringify(body)}`)
    }
    t.same((await list()).segments, before, 'and nothing has changed')
  }

  const span = /must be a number of days, weeks or years/
  await refused([
    ...['0', '0d', '-1d', '-90d', '90', '+90d', '2036-01-01', '', 90].map(
      (older_than) => ['', { older_than }, 422, span] as const,
    ),
    [
      '/0-255.zip/confirm',
      { sha256: 'c0'.repeat(32) },
      404,
      /No row says that a file .0-255.zip. was archived/,
    ],
    ['/0-255.zip/confirm', {}, 422, /sha256/],
    ['/0-255.zip/forget', { reason: 'x' }, 404, /No row says/],
    ['/..%2Fsallyport.db/restore', {}, 404, /No row says/],
    ['/LOG/restore', {}, 404, /No row says/],
  ])
  const plan = { segments: 3, rows: 768, days: 3, nothing: null, asked: null }
  t.match((await post('?dry_run=true')).json, plan)
  t.match(await run('--dry-run'), {
    code: 0,
    out: /^768 rows of 3 days would be moved, in 3 segments of about/,
  })
  t.match(await run('--older-than', '0'), { code: 1, out: /must be a number of days/ })
  t.match((await post('', { older_than: '9w' })).json, {
    segments: 0,
    asked: null,
    nothing: /the oldest rows here are those before .*, and not 63 days old/,
  })
  t.match(await list(), { segments: [], overdue: true, next: { rows: 768 }, archived: { rows: 0 } })
  t.match((await gateway.admin('GET', '/metrics')).text, /^sallyport_archive_overdue 1$/m)

  // Two at once: one is done.
  const both = await Promise.all([post(''), post('')])
  t.same(new Set(both.map(({ status }) => status)), new Set([200, 409]))
  t.match(
    both.find(({ status }) => status === 409)?.json.message,
    /Work on the archive is under way, asked for by admin at/,
  )
  const [asked] = both.filter(({ status }) => status === 200)
  t.match(asked && (await done(gateway, asked)), { what: 'run', segments: 3, rows: 768, problem: null })
  const FILES = ['512-767.zip', '256-511.zip', '0-255.zip']
  const waiting = await list()
  t.match(waiting, { waiting: 3, here: { rows: Number }, folder: { unknown: [], problem: null } })
  t.match(
    waiting.segments,
    FILES.map((file) => ({ file, state: 'waiting', in_folder: true, removed_at: null })),
  )
  t.ok(waiting.here.rows > 1_500, 'their rows are in the database still')
  t.match((await gateway.admin('POST', '/v1/admin/audit/verify')).json, { ok: true })
  t.match((await gateway.admin('GET', `${API}?limit=1`)).headers.link, /before=512/)
  t.match(await run(), { code: 0, out: /^nothing is older than 2d: the rows before .* a state was recorded/ })

  const digest = (file: string) => hash('sha256', readFileSync(join(folder, file)))
  await refused([
    ['/0-255.zip/confirm', { sha256: digest('256-511.zip') }, 422, /is not that of 0-255.zip, which is/],
    ['/0-255.zip/forget', { reason: 'x' }, 409, /still in the database, because no copy of it is confirmed/],
  ])
  // The rows of a later file wait for those of the one before it.
  t.equal((await post('/256-511.zip/confirm', { sha256: digest('256-511.zip') })).status, 204)
  t.match(await run('confirm', '0-255.zip', '--sha256', digest('0-255.zip')), {
    code: 0,
    out: /^0-255.zip is confirmed: its rows may go/,
  })
  const after = await eventually(list, ({ segments }) => segments[1].state === 'removed', DONE_MS)
  t.match(after.segments, [{ state: 'waiting' }, { state: 'removed' }, { state: 'removed' }])
  t.equal(after.here.rows < waiting.here.rows - 400, true)
  await refused([
    [
      '/0-255.zip/confirm',
      { sha256: digest('0-255.zip') },
      409,
      /Its rows left the database on .*: there is nothing/,
    ],
    ['/0-255.zip/forget', {}, 409, /not 7y old. Give a reason to forget it/],
    ['/0-255.zip/forget', { reason: ' ' }, 422, /must say why/],
  ])

  // A file that is lost, and one that is damaged, come back from a copy.
  const [lost, copy] = [join(folder, '0-255.zip'), join(folder, 'elsewhere')]
  renameSync(lost, copy)
  t.match(await sallyport(['archive', 'verify'], here), {
    code: 2,
    out: /BAD: 0-255.zip is not in the folder/,
  })
  t.match(await run('restore', '0-255.zip'), {
    code: 1,
    out: /0-255.zip cannot be read. Lay a copy of it in that folder/,
  })
  t.match((await gateway.admin('GET', '/metrics')).text, /^sallyport_archive_failing 1$/m)
  writeFileSync(lost, 'damaged')
  cpSync(join(folder, '256-511.zip'), `${lost}.copy`)
  t.match(await done(gateway, await post('/0-255.zip/restore')), {
    problem: /has the SHA-256 .*, not .*Lay a copy .*that one has/,
  })
  cpSync(copy, `${lost}.copy`)
  t.match(await run('restore', '0-255.zip'), { code: 0, out: /is in its place, and is what was archived/ })
  t.equal(readFileSync(`${lost}.old`, 'utf8'), 'damaged', 'what was there is kept')
  t.match(await sallyport(['archive', 'verify'], here), {
    code: 0,
    err: '',
    out: /3 segments: leaves 0 to 767, 768 rows/,
  })
  t.match(await run('list'), { code: 0, out: /^0-255.zip +removed +there +256/m })

  t.match(await run('forget', '0-255.zip', '--reason', 'its time is over'), { code: 0, out: /is forgotten/ })
  t.ok(existsSync(lost), 'nothing is deleted')
  await refused([['/0-255.zip/forget', { reason: 'again' }, 409, /It was forgotten on/]])
  renameSync(lost, copy)
  t.match(await run('list'), { code: 0, out: /^0-255.zip +forgotten +MISSING/m })
  const files = async (action: string) =>
    (await gateway.rows({ action, order: 'asc' })).map(({ detail: { file = null } }) => file)
  t.same(await files('archive.asked'), [null, '0-255.zip', '0-255.zip', '0-255.zip'])
  t.same(await files('ledger.confirmed'), ['256-511.zip', '0-255.zip'])
  t.same(await files('ledger.forgotten'), ['0-255.zip'])

  const jar = await signedInBySecret(gateway)
  const page = (await jar.ask('GET', '/proxy/archive')).text
  for (const said of [
    '512-767.zip',
    'waits for a confirmed copy',
    'forgotten',
    'A year in files takes',
    folder,
  ])
    t.ok(page.includes(said), said)
  t.match((await jar.ask('GET', '/proxy')).text, /1 segment waits for a confirmed copy/)
})

await t.test(
  'what stands in the way of the folder is said on the page, and nothing is removed',
  async (t) => {
    const root = t.testdir({ other: { LOG: 'another+key\n' }, real: {}, file: '' })
    const settings = await fiveDays(t)
    symlinkSync(join(root, 'real'), join(root, 'link'))
    const gateway = await restarted(t, settings, {})
    const list = async () => (await gateway.admin('GET', API)).json
    const reload = async (files: Readonly<Record<string, string>>): Promise<void> => {
      for (const [name, text] of Object.entries(files)) writeFileSync(join(gateway.pluginsDir, name), text)
      t.equal(await gateway.reload(), true)
    }
    t.match(await gateway.admin('POST', API, {}), {
      status: 409,
      json: { message: /Nothing is archived: write 90-archive.yaml/ },
    })
    t.match(await list(), { options: null, folder: null, overdue: false, segments: [] })
    const jar = await signedInBySecret(gateway)
    t.match((await jar.ask('GET', '/proxy/archive')).text, /Nothing is archived/)
    for (const [name, sentence] of [
      ['none', /is not there: make it/],
      ['link', /is no folder, or a link to one/],
      ['file', /is no folder/],
      ['other', /holds the archive of another log, another\+key/],
    ] as const) {
      await reload(optionsFile(join(root, name)))
      t.match(await done(gateway, await gateway.admin('POST', API, {})), { rows: 0, problem: sentence }, name)
      t.match((await jar.ask('GET', '/proxy')).text, /The archive fails/, name)
      t.match(await list(), { archived: { rows: 0 }, next: { rows: 768 } }, name)
    }

    // Two people move them in the end.
    const two = 'plugin: operators\ntwo_person: [archive]\n'
    await reload({ ...optionsFile(join(root, 'real')), '70-operators.yaml': two })
    const [alice, bob] = [
      as(gateway, await ownerOnTheMachine(gateway, 'alice')),
      as(gateway, await ownerOnTheMachine(gateway, 'bob')),
    ]
    t.match(await alice('POST', `${API}?dry_run=true`, {}), { status: 200, json: { rows: 768 } })
    const waits = await alice('POST', API, {})
    t.match(waits, { status: 202, json: { proposal_id: String } })
    t.match(await list(), { working: null, segments: [] })
    t.equal((await bob('POST', `/v1/admin/proposals/${waits.json.proposal_id}/confirm`)).status, 200)
    const moved = await eventually(list, ({ last }) => last?.problem === null, DONE_MS)
    t.match(moved, { last: { rows: 768, problem: null }, archived: { segments: 3 } })
  },
)

await t.test(
  'a database from before the last archive is named, and restore mends it',
  { skip: ENGINE === 'postgres' && 'a file is copied' },
  async (t) => {
    const root = t.testdir({ archive: {} })
    const folder = join(root, 'archive')
    const settings = await fiveDays(t)
    const before = {
      ...settings,
      dataDir: join(root, 'before'),
      databaseUrl: `sqlite:${join(root, 'before/sallyport.db')}`,
    }
    mkdirSync(before.dataDir, { mode: 0o700 })
    cpSync(settings.dataDir, before.dataDir, { recursive: true })
    const first = await restarted(t, settings, optionsFile(folder))
    t.match(await done(first, await first.admin('POST', API, {})), { segments: 3, problem: null })
    await first.close(0)

    const gateway = await restarted(t, before, optionsFile(folder))
    const here = { MCP_PROXY_DATA_DIR: before.dataDir, MCP_PROXY_PLUGINS_DIR: gateway.pluginsDir }
    const run = archiving(gateway)
    const FILES = ['0-255.zip', '256-511.zip', '512-767.zip']
    t.same((await gateway.admin('GET', API)).json.folder.unknown, FILES)
    const jar = await signedInBySecret(gateway)
    t.match((await jar.ask('GET', '/proxy')).text, /The database is older than its archive.*256-511.zip/s)
    t.match(await sallyport(['archive', 'verify'], here), {
      code: 2,
      out: /BAD: 0-255.zip is not known to the database, which is older/,
    })
    t.match(await run('restore', '256-511.zip'), {
      code: 1,
      out: /is not the next one: restore 0-255.zip first/,
    })
    for (const file of FILES)
      t.match(await run('restore', file), { code: 0, out: new RegExp(`${file} is archived again: 256 rows`) })
    t.match((await gateway.admin('GET', API)).json, {
      folder: { unknown: [] },
      segments: [{ state: 'removed' }, { state: 'removed' }, { state: 'removed' }],
    })
    await gateway.close(0)
    const whole = await sallyport(['verify', before.databaseUrl, '--archive', folder])
    t.match(whole, { code: 0, out: /3 segments: leaves 0 to 767/ })
    // Without a gateway, too.
    t.match(await sallyport(['archive', '--older-than', '1d'], here), {
      code: 0,
      out: /^256 rows were moved, in 1 segment$/m,
    })
  },
)
