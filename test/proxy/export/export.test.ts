import { readFileSync } from 'node:fs'
import { rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { scratch, testGateway } from '../../support/gateway.ts'
import { ocsfSchemas } from '../../support/ocsf/validator.ts'
import { eventually } from '../../support/settled.ts'

const CHAT = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }
// biome-ignore lint/suspicious/noExplicitAny: events are read as a SIEM would read them
type Event = any

const eventsIn = (path: string): readonly Event[] => {
  try {
    return readFileSync(path, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
  } catch {
    return []
  }
}

await t.test(
  'docs/exports.md: rows go to sinks, as lines and as events, and again after a rewind',
  async (t) => {
    const folder = await scratch(t)
    const [lake, siem, away] = ['lake', 'siem', 'away/x'].map((name) => join(folder, name))
    const sinks = [
      { name: 'lake', kind: 'file', path: lake, from: 'start' },
      { name: 'siem', kind: 'file', path: siem, from: 'start', format: 'ocsf' },
      { name: 'away', kind: 'file', path: away, from: 'start' },
    ]
    const yaml = JSON.stringify({ plugin: 'export', sinks })
    const gateway = await testGateway(t, { files: { '85-export.yaml': yaml } })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    const poor = await gateway.enroll('poor', ['other'])
    await gateway.call(poor, 'POST', '/v1/chat/completions', { body: CHAT })
    const admin = (method: string, path: string, body?: unknown) =>
      gateway.admin(method, `/v1/admin${path}`, body)
    const isDenied = (event: Event) => event.action === 'egress_llm_chat' && event.status === 'denied'
    const rows = await eventually(
      () => eventsIn(lake ?? ''),
      (all) => all.some(isDenied),
      20_000,
    )
    t.same(
      rows.map(({ seq }) => seq),
      rows.map((_, n) => n + 1),
      'each row once, in order',
    )
    t.equal(rows.find(isDenied)?.detail.reason, 'capability_missing')

    const events = await eventually(
      () => eventsIn(siem ?? ''),
      (all) => all.some(({ disposition_id: id }) => id === 2),
      20_000,
    )
    const { faults } = ocsfSchemas()
    for (const event of events) t.same(faults(event), [], event.message)
    t.equal(new Set(events.map(({ metadata }) => metadata.uid)).size, events.length)
    t.same(
      events.slice(0, 5).map(({ metadata }) => metadata.original_event_uid),
      rows.slice(0, 5).map((row) => row.row_hash),
    )

    const list = await eventually(
      async () => (await admin('GET', '/exports')).json.sinks,
      ([, , third]) => third.error !== null,
      20_000,
    )
    t.match(list, [
      { name: 'lake', kind: 'file', target: lake, format: 'ndjson', error: null, late: false },
      { name: 'siem', format: 'ocsf' },
      { name: 'away', error: /ENOENT/, failing_since: /Z$/ },
    ])
    t.match(
      (await gateway.admin('GET', '/metrics')).text,
      /sallyport_export_failures_total\{sink="away"\} [1-9]/,
    )
    t.match((await gateway.admin('GET', '/metrics')).text, /sallyport_export_lag_rows\{sink="away"\} [1-9]/)

    const [{ stream }] = rows
    const rewind = (sink: string, body: object) => admin('POST', `/exports/${sink}/rewind`, body)
    t.match(await rewind('none', { stream, seq: 1 }), { status: 404 })
    t.match(await rewind('lake', { stream, seq: 0 }), { status: 422 })
    t.match(await rewind('lake', { stream, seq: 1_000_000 }), { status: 422 })
    await rename(lake ?? '', `${lake}.1`)
    t.equal((await rewind('lake', { stream, seq: 2 })).status, 204)
    const again = await eventually(
      () => eventsIn(lake ?? ''),
      (all) => all.some(({ action }) => action === 'export.rewound'),
      20_000,
    )
    t.same(
      again.map(({ seq }) => seq),
      again.map((_, n) => n + 2),
      'into the new file, from row 2 on',
    )
    t.match(again.at(-1), { detail: { sink: 'lake', stream, seq: 2 }, principal_type: 'operator' })

    await writeFile(
      join(gateway.pluginsDir, '85-export.yaml'),
      JSON.stringify({ plugin: 'export', sinks: [] }),
    )
    t.equal(await gateway.reload(), true)
    t.same((await admin('GET', '/exports')).json, { sinks: [] })
    t.match((await gateway.admin('GET', '/metrics')).text, /sallyport_config_reloads/)
  },
)

await t.test(
  'names of users stand in lines if a file asks for it, and never once a user is erased',
  async (t) => {
    const folder = await scratch(t)
    const path = join(folder, 'named')
    const sinks = [{ name: 'named', kind: 'file', path, from: 'start' }]
    const gateway = await testGateway(t, {
      files: { '85-export.yaml': JSON.stringify({ plugin: 'export', names: true, sinks }) },
    })
    const made = await gateway.admin('POST', '/v1/admin/users', {
      user_name: 'ada',
      capabilities: ['llm.chat'],
    })
    t.equal(made.status, 201, made.text)
    const named = await eventually(
      () => eventsIn(path),
      (all) => all.some(({ action }) => action === 'user.created'),
      20_000,
    )
    t.equal(named.find(({ action }) => action === 'user.created').subject_name, 'acme::user::ada')
    t.equal((await gateway.admin('POST', '/v1/admin/users/acme::user::ada/erase')).status, 204)
    await rename(path, `${path}.1`)
    const [{ stream }] = named
    await gateway.admin('POST', '/v1/admin/exports/named/rewind', { stream, seq: 1 })
    const after = await eventually(
      () => eventsIn(path),
      (all) => all.some(({ action }) => action === 'export.rewound'),
      20_000,
    )
    t.notMatch(JSON.stringify(after), /user::ada|"ada"/, 'pseudonyms alone')
    t.match(after.find(({ action }) => action === 'user.created').detail.subject, /^usr_/)
  },
)
