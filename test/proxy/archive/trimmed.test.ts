import { randomBytes } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { sql } from 'kysely'
import { pino } from 'pino'
import t, { type Test } from 'tap'
import { databaseLocation, openDatabase } from '../../../db/engine.ts'
import { archiveBoundary } from '../../../db/ledger/tree/segments.ts'
import { NO_LOG_TRUST } from '../../../db/ledger/tree/trusted.ts'
import { exitCodeOf } from '../../../db/ledger/verify/inspect.ts'
import { inspectPostgres } from '../../../db/postgres/ledger/inspect.ts'
import { inspectDatabase } from '../../../db/sqlite/ledger/inspect.ts'
import { cursorAfterRow } from '../../../proxy/admin/audit/audit.ts'
import { archiveRows } from '../../../proxy/archive/archive.ts'
import { inspectPack } from '../../../scripts/verifying/inspect-pack.ts'
import { openZip } from '../../../scripts/verifying/zip.ts'
import { openLog } from '../../support/archive.ts'
import { certifiedUser } from '../../support/certs/certified.ts'
import { started } from '../../support/db/history.ts'
import { CHAT, type Identity, type TestGateway, testGateway } from '../../support/gateway.ts'
import { mcpStage, tool, toolServer } from '../../support/mcp/stage.ts'
import { signedInBySecret } from '../../support/oidc/jar.ts'
import { eventually } from '../../support/settled.ts'
import { allVerifiers } from '../../support/verifiers.ts'

const CALLS = 140

/** Calls, and waits until their rows are sealed. Returns the id of the first one. */
async function calls(gateway: TestGateway, who: Identity): Promise<string> {
  let first = ''
  for (let n = 0; n < CALLS; n += 20) {
    const some = Array.from({ length: 20 }, () =>
      gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT }),
    )
    for (const { status, headers } of await Promise.all(some)) {
      if (status !== 200) throw new Error(`a call was answered with ${status}`)
      first ||= String(headers['x-request-id'])
    }
  }
  await eventually(
    async () => (await gateway.admin('GET', '/v1/admin/audit/log')).json.unsealed,
    (unsealed) => unsealed === 0,
  )
  return first
}

/** Archives the sealed rows of a gateway that has stopped, as many as go, once so many of the rows before are left. */
async function archive(t: Test, { dataDir, databaseUrl }: TestGateway['settings']): Promise<void> {
  const after: (() => unknown)[] = []
  const log = await openLog(
    { teardown: (work: () => unknown) => void after.push(work) } as never,
    databaseUrl,
    Date.now,
  )
  await log.ledger.commit({ entries: [started] })
  const { size } = await log.database.kysely
    .selectFrom('audit_trees')
    .select('size')
    .executeTakeFirstOrThrow()
  const [folder, authority] = [join(dataDir, 'archive'), { rootPem: '', intermediatePem: '', rotation: null }]
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  const given = { ...log, folder, authority, location: databaseLocation(databaseUrl), anchors: () => [] }
  const last = size - (size % 256) - 1
  await archiveRows({ ...given, log: pino({ level: 'silent' }) }, last, new AbortController().signal)
  t.equal((await archiveBoundary(log.database.kysely)).size, last + 1)
  for (const work of after) await work()
}

const verified = ({ databaseUrl }: TestGateway['settings']) => {
  const location = databaseLocation(databaseUrl)
  return location.engine === 'sqlite'
    ? inspectDatabase(location.file, Date.now(), (rows) => rows)
    : inspectPostgres(location.url, (rows) => rows)
}

/** The members of all segments, inflated, by their names. */
async function textsInSegments({ dataDir }: TestGateway['settings']): Promise<readonly [string, string][]> {
  const folder = join(dataDir, 'archive')
  const texts: [string, string][] = []
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.zip'))) {
    const zip = await openZip(join(folder, file))
    for (const name of zip.names) texts.push([name, (await zip.bytes(name, 1e9)).toString('latin1')])
    zip.close()
  }
  return texts
}

/** Counts the rows of each table. */
async function tableSizes({
  databaseUrl,
}: TestGateway['settings']): Promise<Readonly<Record<string, number>>> {
  const database = await openDatabase(databaseUrl)
  const sizes: Record<string, number> = {}
  for (const { name } of await database.kysely.introspection.getTables()) {
    const { rows } = await sql<{ n: number }>`select count(*) as n from ${sql.table(name)}`.execute(
      database.kysely,
    )
    sizes[name] = Number(rows[0]?.n)
  }
  await database.close()
  return sizes
}

/** The tables that grow while calls come, but not with each. */
const GROWS_BY_OTHERS: Readonly<Record<string, string>> = {
  audit_log: 'the view of audit_rows',
  audit_rows: 'the rows behind the last tile, some hundred at most',
  audit_segments: 'a row for each',
  row_counts: 'by the minutes in which there are calls',
}

t.test('a gateway lives on what is left, and what is left verifies', { timeout: 240_000 }, async (t) => {
  const gateway = await mcpStage(t, { verify: false })
  const { settings } = gateway
  const bot = await gateway.enroll('bot', ['llm.chat', 'mcp.tools.call'])
  const person = `zoe-${randomBytes(6).toString('hex')}`
  const { who, ref } = await certifiedUser(t, gateway, { user_name: person, display_name: `Zoe ${person}` })
  await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })
  t.match((await gateway.admin('GET', '/v1/admin/audit/export')).text, person, 'whoever reads it is told')
  await gateway.bind(bot, await gateway.register('files', await toolServer(t, [tool('read')])))
  const other = await gateway.enroll('other', ['llm.chat'])
  const old = await calls(gateway, bot)
  const before = await answersOf(gateway, bot, old)
  await gateway.close(0)
  await archive(t, settings)
  for (const [file, text] of await textsInSegments(settings)) {
    t.notOk(text.includes(person), `${file} names no person, who could not be erased from it`)
    if (file === 'rows.ndjson') t.ok(text.includes(ref), 'the pseudonym is there')
  }
  const found = await verified(settings)
  t.match(found, { verdict: { ok: true }, findings: [], authority: { disagree: 0 }, tree: { problems: [] } })
  t.equal(exitCodeOf(found), 0)
  t.match(found.notes[0], /^not read: \d+ rows in 1 segment of the archive$/)

  const again = await mcpStage(t, { verify: false, settings: { MCP_PROXY_DATA_DIR: settings.dataDir } })
  t.match((await again.callTool(bot, 'files.read')).json, { result: {} }, 'its rows are archived')
  const id = await calls(again, bot)
  const read = (path: string) => again.call(bot, 'GET', path)
  t.match((await read(`/v1/audit/proofs/${id}`)).json, { rows: [{ proof: String }, { proof: String }] })
  for (const path of ['tile/0/000', 'checkpoint?size=1', `proofs/${old}`])
    t.match(
      await read(`/v1/audit/${path}`),
      {
        status: 404,
        json: { error: { message: /archived.* in 0-\d+\.zip/ } },
      },
      path,
    )
  const secret = { 'x-admin-secret': 'correct-horse-battery' }
  t.match(await again.call(null, 'GET', '/v1/audit/tile/entries/000', { headers: secret }), { status: 404 })
  t.match((await again.admin('POST', '/v1/admin/audit/verify')).json, { ok: true })
  t.match((await again.admin('GET', `/v1/admin/audit?request_id=${id}`)).json.rows, [{}, {}])
  t.match((await again.admin('GET', `/v1/admin/audit?request_id=${old}`)).json.rows, [])
  const exported = (await again.admin('GET', '/v1/admin/audit/export')).text.split('\n')
  t.ok(exported.length > 2 * CALLS)
  const rehearsed = (await again.admin('POST', '/v1/admin/rehearsals', { changes: [] })).json
  t.match(rehearsed, { disagreements: 0, totals: { newly_refused: 0, newly_allowed: 0 } })
  t.ok(rehearsed.unchanged >= CALLS)
  t.match(JSON.stringify(rehearsed), /calls up to \S+, which are archived and not counted here/)
  const pack = join(settings.dataDir, 'pack.zip')
  writeFileSync(pack, (await again.admin('GET', '/v1/admin/audit/evidence')).bytes)
  t.match(await inspectPack(pack, (rows) => rows, NO_LOG_TRUST), {
    ...{ verdict: { ok: true }, findings: [], cutShort: null },
    ...{ authority: { disagree: 0 }, tree: { problems: [], cutShort: null } },
  })
  await again.close(0)
  await archive(t, settings)
  t.equal(exitCodeOf(await verified(settings)), 0)

  const sizes = await tableSizes(settings)
  const third = await testGateway(t, { verify: false, settings: { MCP_PROXY_DATA_DIR: settings.dataDir } })
  await calls(third, bot)
  await third.close(0)
  await archive(t, settings)
  for (const [table, rows] of Object.entries(await tableSizes(settings))) {
    const growth = (rows - (sizes[table] ?? 0)) / CALLS
    t.comment(`${table}: ${growth.toFixed(3)} rows a call`)
    if (GROWS_BY_OTHERS[table] === undefined) t.ok(growth < 0.1, table)
  }
  await readsOn(t, settings, { bot, other, old, before })
})

const WINDOW = { changes: [], since: '2020-01-01T00:00:00Z' }

/** What a gateway answers about its calls up to now. */
async function answersOf(gateway: TestGateway, bot: Identity, old: string, until = new Date().toISOString()) {
  const rehearsed = (await gateway.admin('POST', '/v1/admin/rehearsals', { ...WINDOW, until })).json
  const { unchanged, undecidable, disagreements, totals } = rehearsed
  return {
    until,
    rehearsed: { unchanged, undecidable, disagreements, totals },
    exported: (await gateway.admin('GET', '/v1/admin/audit/export')).text,
    receipt: (await gateway.call(bot, 'GET', `/v1/audit/proofs/${old}`)).json,
    rows: (await gateway.admin('GET', `/v1/admin/audit?request_id=${old}`)).json.rows,
  }
}

interface ReadingOn {
  readonly bot: Identity
  readonly other: Identity
  /** The first call. */
  readonly old: string
  readonly before: Awaited<ReturnType<typeof answersOf>>
}

/** Reads all pages of a list. */
async function pagesOf(gateway: TestGateway, query: string) {
  const rows: Record<string, unknown>[] = []
  const [read, unreadable] = [new Set<string>(), new Set<string>()]
  for (let cursor = '', pages = 0; pages < 100; pages += 1) {
    const { json } = await gateway.admin('GET', `/v1/admin/audit?${query}${cursor}`)
    rows.push(...json.rows)
    for (const file of json.archived?.read ?? []) read.add(file)
    for (const sentence of json.archived?.unreadable ?? []) unreadable.add(sentence)
    if (json.next_cursor === null) return { rows, read: [...read], unreadable: [...unreadable] }
    cursor = `&cursor=${json.next_cursor}`
  }
  throw new Error('the pages come to no end')
}

const keyOf = ({ recorded_at, stream, seq }: Record<string, unknown>) =>
  [recorded_at, stream, String(seq).padStart(9, '0')].join(' ')

async function readsOn(
  t: Test,
  { dataDir }: TestGateway['settings'],
  { bot, other, old, before }: ReadingOn,
): Promise<void> {
  const folder = join(dataDir, 'archive')
  const files = readdirSync(folder).filter((name) => name.endsWith('.zip'))
  const [first = '', ...others] = files.toSorted(
    (one, two) => Number.parseInt(one, 10) - Number.parseInt(two, 10),
  )
  t.equal(others.length, 2)
  const gateway = await testGateway(t, {
    verify: false,
    settings: { MCP_PROXY_DATA_DIR: dataDir },
    files: { '90-archive.yaml': `plugin: archive\nkeep: 90d\nto: ${folder}\n` },
  })
  const verify = allVerifiers(t)
  const jar = await signedInBySecret(gateway)
  const key = (await gateway.call(bot, 'GET', '/v1/audit/key')).text.trim()

  await t.test('all surfaces find a call of the first day', async (t) => {
    const now = await answersOf(gateway, bot, old, before.until)
    t.same(now.rehearsed, before.rehearsed, 'a rehearsal counts the same')
    t.ok(now.exported.startsWith(before.exported), 'an export is the same bytes')
    t.same(now.rows, before.rows)
    const leavesOf = ({ rows }: { rows: { leaf: string }[] }) => rows.map(({ leaf }) => leaf)
    t.same(leavesOf(now.receipt), leavesOf(before.receipt))
    t.same(now.receipt.salts, before.receipt.salts)
    const receipt = join(dataDir, 'receipt.json')
    writeFileSync(receipt, JSON.stringify(now.receipt))
    writeFileSync(join(dataDir, 'body.json'), JSON.stringify(CHAT))
    const said = await verify(receipt, '--body', join(dataDir, 'body.json'), '--key', key)
    t.equal(said.code, 0, said.out + said.err)
    const lines = now.exported
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    const keys = new Set(lines.map(keyOf))
    for (const query of [
      'limit=1000',
      'limit=150&order=asc',
      'limit=170&principal=acme::bot',
      'status=denied',
    ]) {
      const { rows, read, unreadable } = await pagesOf(gateway, query)
      const shown = rows.map(keyOf).filter((row) => keys.has(row))
      t.equal(new Set(shown).size, shown.length, `${query}: no row twice`)
      const fits = ({ principal_id: who, status }: Record<string, unknown>): boolean =>
        (!query.includes('bot') || who === 'acme::bot') && (!query.includes('denied') || status === 'denied')
      t.equal(shown.length, lines.filter(fits).length, query)
      t.same(shown, query.includes('asc') ? shown.toSorted() : shown.toSorted().toReversed(), query)
      t.same(unreadable, [])
      if (query.includes('limit')) t.same(read.toSorted(), files.toSorted(), query)
    }
    t.match(await pagesOf(gateway, 'principal=acme::nobody'), { rows: [], read: [] }, 'its index is enough')
    t.match(await pagesOf(gateway, 'action=config.loaded&archive=no'), { read: [] })
  })

  await t.test('Activity goes on from the database into the archive, a page at a time', async (t) => {
    let path = '/proxy/activity?principal=acme::bot'
    let text = (await jar.ask('GET', path)).text
    t.match(text, /Also in 3 segments of the archive: [\d,]+ rows, 1 s\./)
    t.notMatch(text, 'Searched in the archive')
    const said: string[] = []
    for (let page = 0; page < 20 && !text.includes(`/proxy/activity/${old}`); page += 1) {
      const [, next = ''] = /rel="next" href="([^"]+)"/.exec(text) ?? []
      path = next.replaceAll('&amp;', '&')
      text = (await jar.ask('GET', path)).text
      said.push(...(/Searched in the archive: [^<]*/.exec(text) ?? []))
    }
    t.ok(text.includes(`/proxy/activity/${old}`), 'it comes to the first call')
    t.match(said.join(), first)
    const why = (await jar.ask('GET', `/proxy/activity/${old}`)).text
    t.match(why, 'What happened next')
    t.match(why, 'Inclusion proof, under a signed checkpoint')
    t.match(why, 'Save as receipt')
    const [outcome] = before.rows
    const within = `/proxy/activity?principal=acme::bot&cursor=${cursorAfterRow(outcome)}`
    const lines = (await jar.ask('GET', within)).text.split('<tr>')
    const line = lines.find((one) => one.includes(`/proxy/activity/${old}`)) ?? ''
    t.match(line, /<td class="number">\d+<\/td><\/tr>/, 'with an outcome that stood on the page before')
  })

  await t.test('packs are made of archived rows, and of those and others', async (t) => {
    const times = before.rows.map(({ recorded_at: at }: { recorded_at: string }) => at)
    for (const query of ['', `?since=${times[0]}&until=${before.until}`, `?since=${before.until}`]) {
      const pack = join(dataDir, `pack-${query.length}.zip`)
      const { bytes, status } = await gateway.admin('GET', `/v1/admin/audit/evidence${query}`)
      t.equal(status, 200)
      writeFileSync(pack, bytes)
      const { code, out, err } = await verify(pack, '--key', key)
      t.equal(code, 0, `${query}: ${out}${err}`)
      t.match(
        out,
        query.startsWith('?since=20') && !query.includes('until=') ? /leaves [1-9]/ : /leaves 0 to/,
      )
    }
  })

  await t.test('nobody sees more of the archive than of the database', async (t) => {
    const refused = await gateway.call(other, 'GET', `/v1/audit/proofs/${old}`)
    t.match(refused, { status: 404, json: { error: { message: /^(?!.*archived)/ } } })
    t.equal((await gateway.call(other, 'GET', '/v1/admin/audit')).status, 403)
    const many = await Promise.all(
      Array.from({ length: 50 }, () => gateway.admin('GET', '/v1/admin/audit?order=asc')),
    )
    const answers = many.map(({ status }) => status)
    t.ok(answers.includes(200) && answers.includes(503), 'and of many searches at once some are refused')
  })

  await t.test('a file that is not what was archived is named, and is not shown', async (t) => {
    const path = join(folder, first)
    const honest = readFileSync(path)
    const edited = Buffer.from(honest)
    edited.writeUInt8(edited.readUInt8(edited.length >> 1) ^ 1, edited.length >> 1)
    const faults: readonly (readonly [string, () => void, RegExp])[] = [
      ['edited', () => writeFileSync(path, edited), /: it is another file than was archived\.$/],
      [
        'cut',
        () => writeFileSync(path, honest.subarray(0, -100)),
        /: it is another file than was archived\.$/,
      ],
      [
        'another',
        () => writeFileSync(path, readFileSync(join(folder, others[0] ?? ''))),
        /: it is another file/,
      ],
      ['missing', () => {}, /: it cannot be read here \(ENOENT\)\.$/],
      [
        'a link',
        () => symlinkSync(join(folder, others[0] ?? ''), path),
        /: it cannot be read here \(ELOOP\)\.$/,
      ],
    ]
    for (const [what, change, why] of faults) {
      change()
      const { rows, read, unreadable } = await pagesOf(gateway, 'limit=1000')
      t.ok(rows.length > CALLS, `${what}: hot rows, and those of other segments, are shown`)
      t.notOk(
        rows.some(({ request_id: id }) => id === old),
        what,
      )
      t.same(read.toSorted(), others.toSorted(), what)
      t.equal(unreadable.length, 1, what)
      t.match(unreadable[0], new RegExp(`^Rows 0 to .* archived on .* in ${first}`), what)
      t.match(unreadable[0], why, what)
      const receipt = await gateway.call(bot, 'GET', `/v1/audit/proofs/${old}`)
      t.match(receipt, { status: 404, json: { error: { message: why } } }, what)
      t.notMatch(receipt.text, folder, 'where the folder is is nobody’s business')
      const now = (await gateway.admin('POST', '/v1/admin/rehearsals', { ...WINDOW, until: before.until }))
        .json
      t.match(JSON.stringify(now), /calls up to \S+, which are archived and not counted here/, what)
      rmSync(path, { force: true })
    }
    writeFileSync(path, honest)
    t.equal((await gateway.call(bot, 'GET', `/v1/audit/proofs/${old}`)).status, 200, 'it is read again')
    renameSync(folder, `${folder}-away`)
    t.equal((await pagesOf(gateway, 'limit=1000')).unreadable.length, 3)
    t.match((await jar.ask('GET', `/proxy/activity/${old}`)).text, `in ${first}`)
    renameSync(`${folder}-away`, folder)
  })
}
