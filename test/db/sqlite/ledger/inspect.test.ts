import { writeFileSync } from 'node:fs'
import t from 'tap'
import { exitCodeOf, type LedgerInspection } from '../../../../db/ledger/verify/inspect.ts'
import { headPath, openHeadFile } from '../../../../db/sqlite/ledger/head-file.ts'
import { inspectDatabase } from '../../../../db/sqlite/ledger/inspect.ts'
import { liveRows } from '../../../../db/sqlite/ledger/rows.ts'
import { BOT, chainOf, changed, decided, JKT, loaded, note, started } from '../../../support/db/history.ts'
import { HISTORY, honestDatabase, storeRows } from '../../../support/db/ledger-with-tables.ts'
import { AT, scratchDatabase, withRaw } from '../../../support/db/scratch-ledger.ts'

const inspect = (file: string, at = AT): Promise<LedgerInspection> =>
  inspectDatabase(file, at, (rows) => rows)

/** An honest database, and what somebody does to it behind the gateway's back. */
async function tampered(directory: string, ...sql: readonly string[]): Promise<LedgerInspection> {
  const file = await honestDatabase(directory)
  withRaw(file, (db) => {
    db.pragma('foreign_keys = OFF')
    for (const statement of sql) db.exec(statement)
  })
  return inspect(file)
}

t.test(
  'docs/ledger.md#verifying: an honest database is whole, and its tables are what its rows say',
  async (t) => {
    const found = await tampered(t.testdir())
    t.match(found, {
      verdict: { ok: true, rows: HISTORY.length },
      cutShort: null,
      authority: { recomputed: 2, disagree: 0 },
    })
    t.same([found.findings, found.notes, exitCodeOf(found)], [[], [], 0])
  },
)

t.test('C1 every guard that was dropped, changed or added is a finding', async (t) => {
  const changes: readonly (readonly [string, RegExp])[] = [
    ['drop trigger audit_rows_delete', /audit_rows_delete is missing/],
    ['drop index audit_rows_request', /audit_rows_request is missing/],
    [
      "create trigger quiet before insert on audit_rows when new.status = 'denied' begin select raise(ignore); end",
      /quiet was added/,
    ],
    ['create index more on audit_rows (status)', /more was added/],
  ]
  for (const [sql, message] of changes) {
    const found = await tampered(t.testdir(), sql)
    t.match(found, { verdict: { ok: true }, findings: [message] }, sql)
    t.equal(exitCodeOf(found), 2)
  }
})

t.test('C1 every difference between the tables and what the rows say is a finding of its own', async (t) => {
  const until = `'${new Date(AT + 1000).toISOString()}'`
  const pin = (columns: string, values: string) =>
    `insert into certificate_pins (thumbprint, principal_type, principal_id, not_before, not_after, created_at${columns})
       values ('foreign', 'agent', '${BOT}', 'x', 'x', 'x'${values})`
  const changes: readonly (readonly [string, RegExp])[] = [
    [
      `update internal_agents set capabilities = '["admin.all","files.use","llm.chat"]'`,
      /capabilities \[admin\.all/,
    ],
    ['update internal_agents set is_active = 0', /is_active false, the ledger says true/],
    ['update internal_agents set authority_revision = 3', /authority_revision 3/],
    ["update internal_agents set dpop_jkt = 'other'", /DPoP keys \[other\]/],
    [`update internal_agents set previous_dpop_jkt = 'old', previous_dpop_jkt_until = ${until}`, /old until/],
    [
      "update internal_agents set enrollment_method = 'spiffe', spiffe_id = 'spiffe://x/y'",
      /spiffe_id spiffe:/,
    ],
    [pin(', is_current, grace_until', `, 0, ${until}`), /certificates \[.*foreign until/],
    [
      `update certificate_pins set thumbprint = 'foreign' where principal_type = 'agent'`,
      /certificates \[foreign\]/,
    ],
    ["delete from certificate_pins where thumbprint = 'job'", /acme::workload::job: .* certificates \[\]/],
    [`update local_workload_principals set capabilities = 'nonsense'`, /capabilities \[nonsense\]/],
    ['delete from internal_agents', /acme::bot is in the ledger, but not in the tables/],
    [
      `insert into local_user_principals (principal_id, name, enrollment_method, federated, created_at, updated_at)
         values ('acme::user::eve', 'eve', 'minted', 0, 'x', 'x')`,
      /acme::user::eve is in the tables, but no row made it/,
    ],
    ["update mcp_resources set required_capability = ''", /required_capability , the ledger says files\.use/],
    [`update mcp_resources set tool_capabilities = '{"read":"x"}'`, /tool_capabilities \[read: x\]/],
    ['update mcp_resources set enabled = 0', /enabled false/],
    ['update mcp_resources set revision = 2', /revision 2/],
    [
      "update mcp_tools set digest = 'evil' where name = 'read'",
      /tool read approved evil, the ledger says approved d1/,
    ],
    [
      "update mcp_tools set state = 'approved', digest = 'd2', pending_digest = null where name = 'write'",
      /tool write approved d2, the ledger says quarantined never approved waiting d2/,
    ],
    ["delete from mcp_tools where name = 'read'", /tool read nothing/],
    ['delete from mcp_bindings', /bindings \[\], the ledger says \[mcpb_1 to mcpr_1\]/],
    ["update mcp_bindings set principal_id = 'acme::workload::job', principal_type = 'workload'", /bindings/],
    ['delete from mcp_resources', /resource mcpr_1 is in the ledger, but not in the tables/],
    [
      "insert into agent_trusted_cas values ('acme::bot', 'ca1', 'x', null)",
      /trusted CAs \[ca1\], the ledger says \[\]/,
    ],
    ['delete from attached_cas', /attached CAs: .* ca1 nothing/],
    [
      "insert into attached_cas values ('ca2', 'spiffe', 'x', 'x', 'x', 'x')",
      /ca2 spiffe, the ledger says nothing/,
    ],
  ]
  for (const [sql, message] of changes) {
    const found = await tampered(t.testdir(), sql)
    t.ok(
      found.findings.some((finding) => message.test(finding)),
      `${sql}: ${found.findings.join('; ')}`,
    )
    t.equal(exitCodeOf(found), 2)
  }
  const over = `'${new Date(AT).toISOString()}'`
  t.same(
    (await tampered(t.testdir(), pin(', is_current, grace_until', `, 0, ${over}`))).findings,
    [],
    'grace is over',
  )
})

t.test('C1 an emptied ledger beside principals is a finding, an empty database is none', async (t) => {
  const found = await tampered(t.testdir(), 'drop trigger audit_rows_delete', 'delete from audit_rows')
  t.match(found, { verdict: { ok: true, rows: 0 }, cutShort: /end at main:0/ })
  t.match(found.findings, [/audit_rows_delete/, 'there are principals, but no row that made them'])
  const empty = await inspect(await scratchDatabase(t.testdir()))
  t.same([empty.findings, empty.notes, exitCodeOf(empty)], [[], [], 0])
})

t.test(
  'C1 a stream of version 2 begins with a start of the service, or an operator before the first',
  async (t) => {
    const beginning = async (rows: typeof HISTORY, versions: readonly (1 | 2)[] = []) => {
      const file = await scratchDatabase(t.testdir())
      storeRows(file, chainOf(rows, versions))
      return (await inspect(file)).findings
    }
    const operator = { principal_id: 'admin', principal_type: 'operator' }
    t.match(await beginning([decided(1)]), ['stream main does not begin with service.started'])
    t.match(await beginning([loaded()]), ['stream main does not begin with service.started'])
    t.same(await beginning([started]), [])
    t.same(await beginning([note('admin.secret_rotated', {}, operator)]), [])
    t.same(await beginning([decided(1)], [1]), [])
  },
)

t.test(
  'docs/ledger.md#verifying: what only rows of version 1 speak of is not compared, and said',
  async (t) => {
    const file = await honestDatabase(t.testdir(), [])
    const old = [
      changed('agent.created', 1),
      changed('workload.created', 1, { subject: 'acme::workload::job' }),
    ]
    const server = note('mcp_resource.created', { subject: 'mcpr_1' })
    const ca = note('ca.attached', { kind: 'spiffe', digests: ['ca1'] })
    const snapshot = changed('authority.snapshot', 2, {
      capabilities: ['files.use', 'llm.chat'],
      dpop_jkts: [[JKT, null]],
      bindings: [['mcpb_1', 'mcpr_1']],
    })
    storeRows(file, chainOf([...old, server, ca, started, snapshot], [1, 1, 1, 1, 2, 2]))
    const found = await inspect(file)
    t.same([found.findings, exitCodeOf(found)], [[], 0])
    t.match(found.notes, ['not compared: 2 principals and resources from before rows of version 2'])
    withRaw(file, (db) => db.exec('update internal_agents set is_active = 0'))
    t.match((await inspect(file)).findings, [/is_active false/], 'the snapshot is compared')
  },
)

t.test('docs/ledger.md#verifying: the codes by precedence: rows, then the end, then authority', async (t) => {
  const file = await honestDatabase(t.testdir())
  const note = (seq: number, hash = 'ab'.repeat(32)) => {
    const heads = openHeadFile(file)
    heads.note({ seq, hash })
    heads.close()
  }
  note(HISTORY.length + 1)
  const cut = await inspect(file)
  t.match([cut.cutShort, cut.findings, exitCodeOf(cut)], [/cut short/, [], 4])
  note(HISTORY.length)
  const other = await inspect(file)
  t.match([other.cutShort, other.findings, exitCodeOf(other)], [null, [/row main:12 is not the one/], 2])
  writeFileSync(headPath(file), 'torn')
  t.equal(exitCodeOf(await inspect(file)), 0)

  const wrong = await honestDatabase(t.testdir(), [...HISTORY, decided(9, { authority: { revision: 1 } })])
  const found = await inspect(wrong)
  t.match(found, { findings: [], authority: { disagree: 1, problems: [{ seq: 13 }] } })
  t.equal(exitCodeOf(found), 5)
  withRaw(wrong, (db) => db.exec('drop trigger audit_rows_update; update internal_agents set is_active = 0'))
  t.equal(exitCodeOf(await inspect(wrong)), 2)
  withRaw(wrong, (db) => db.exec("update audit_rows set status = 'denied' where seq = 9"))
  const bad = await inspect(wrong)
  t.match(bad, { verdict: { first_bad: { seq: 9 } }, findings: [/audit_rows_update/], authority: null })
})

t.test(
  'docs/ledger.md#verifying: rows are read page by page, the last and the tables in one transaction',
  async (t) => {
    const file = await honestDatabase(t.testdir(), [])
    storeRows(file, chainOf([started, ...Array.from({ length: 2_499 }, () => started)]))
    withRaw(file, (db) => {
      const seen: { seq: number; inTransaction: boolean }[] = []
      let atEnd = 0
      for (const row of liveRows(db, () => {
        t.ok(db.inTransaction)
        atEnd = seen.length
      })) {
        if ('damaged' in row) t.fail(row.damaged)
        else seen.push({ seq: row.seq, inTransaction: db.inTransaction })
      }
      t.same([seen.length, atEnd, seen.at(-1)?.seq], [2_500, 2_500, 2_500])
      t.notOk(seen[0]?.inTransaction)
      t.notOk(db.inTransaction, 'it is over')
    })
  },
)

t.test(
  'docs/ledger.md#verifying: what is written meanwhile is read too, and nothing is said of it',
  async (t) => {
    const file = await honestDatabase(t.testdir(), [])
    const rows = chainOf(Array.from({ length: 900 }, () => started))
    storeRows(file, rows.slice(0, 600))
    withRaw(file, (db) => {
      db.pragma('journal_mode = WAL')
      const seen: number[] = []
      for (const row of liveRows(db, () => undefined)) {
        if ('damaged' in row) t.fail(row.damaged)
        else seen.push(row.seq)
        if (seen.length === 300) storeRows(file, rows.slice(600))
      }
      t.same(
        seen,
        Array.from({ length: 900 }, (_, index) => index + 1),
      )
    })
  },
)
