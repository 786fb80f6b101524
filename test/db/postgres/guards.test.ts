import t from 'tap'
import { openLedger } from '../../../db/audit/ledger.ts'
import { openDatabase } from '../../../db/engine.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw, replica } from '../../support/db/postgres/replica.ts'
import { entry, VERSION } from '../../support/db/scratch-ledger.ts'

const server = await cluster()

const REFUSED: readonly (readonly [string, RegExp])[] = [
  ["update audit_rows set status = 'denied'", /append-only/],
  ['delete from audit_rows', /append-only/],
  ['truncate audit_rows', /append-only/],
  ["set session_replication_role = replica; update audit_rows set status = 'denied'", /append-only/],
  ['set session_replication_role = replica; delete from audit_rows', /append-only/],
  [
    "insert into audit_rows select stream, 9, recorded_at, request_id, principal_id, action, status, row_hash, row_hash || 'x', leaf from audit_rows",
    /only the next row/,
  ],
  [
    "insert into audit_rows select 'another', 2, recorded_at, request_id, principal_id, action, status, row_hash, row_hash || 'x', leaf from audit_rows",
    /only the next row/,
  ],
  [
    "insert into audit_rows select stream, seq, recorded_at, request_id, principal_id, action, 'denied', prev_hash, row_hash, leaf from audit_rows on conflict (stream, seq) do update set status = 'denied'",
    /append-only/,
  ],
  [
    "merge into audit_rows r using (select 1) s on true when matched then update set status = 'denied'",
    /append-only/,
  ],
  [
    "insert into audit_rows select 'another', 1, recorded_at, request_id, principal_id, action, status, prev_hash, row_hash, 'no json' from audit_rows",
    /json/,
  ],
]

for (const [statement, why] of REFUSED) {
  t.test(`T12 the ledger refuses: ${statement}`, async (t) => {
    const url = await server.fresh()
    const { ledger } = await replica(t, url)
    await ledger.commit({ entries: [entry()] })
    await t.rejects(raw(url, statement), { message: why })
    t.match((await raw(url, 'select status from audit_rows')).rows, [{ status: 'allowed' }])
  })
}

const TAMPERED: readonly (readonly [string, RegExp])[] = [
  ['drop trigger audit_rows_delete on audit_rows', /audit_rows_delete is missing/],
  [
    'alter table audit_rows disable trigger audit_rows_update',
    /audit_rows_update was changed or switched off/,
  ],
  [
    'alter table audit_rows enable trigger audit_rows_insert',
    /audit_rows_insert was changed or switched off/,
  ],
  [
    'create or replace function audit_rows_refuse() returns trigger language plpgsql as $$begin return new; end$$',
    /audit_rows_update was changed/,
  ],
  [
    'create trigger more before insert on audit_rows for each row execute function audit_rows_refuse()',
    /more was added/,
  ],
  ['create rule quiet as on delete to audit_rows do instead nothing', /quiet was added/],
]

for (const [statement, problem] of TAMPERED) {
  t.test(`T12 the gateway does not write a ledger after: ${statement}`, async (t) => {
    const url = await server.fresh()
    const database = await openDatabase(url)
    t.teardown(() => database.close())
    await raw(url, statement)
    await t.rejects(openLedger({ database, version: VERSION }), { message: problem })
  })
}

t.test('what reads the database cannot write it', async (t) => {
  const { database } = await replica(t, await server.fresh())
  const written = database.kysely.insertInto('settings').values({ key: 'a', value: 'b', updated_at: 'c' })
  await t.rejects(written.execute(), { message: /read-only transaction/ })
})

for (const setting of ['fsync', 'full_page_writes', 'synchronous_commit']) {
  t.test(`a server that may lose what it acknowledges is refused: ${setting} = off`, async (t) => {
    const url = await server.fresh()
    const database = await openDatabase(url)
    t.teardown(() => database.close())
    await raw(url, `alter system set ${setting} = off`)
    await raw(url, 'select pg_reload_conf()')
    t.teardown(async () => {
      await raw(url, `alter system reset ${setting}`)
      await raw(url, 'select pg_reload_conf()')
    })
    await t.rejects(openLedger({ database, version: VERSION }), { message: new RegExp(`${setting} = off`) })
  })
}
