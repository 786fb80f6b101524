import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import { GUARD_FUNCTIONS } from '../../../db/postgres/ledger/guards.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw, replica } from '../../support/db/postgres/replica.ts'
import { entry, VERSION } from '../../support/db/scratch-ledger.ts'

const server = await cluster()

const COLUMNS = 'recorded_at, request_id, principal_id, action, status, model, detail, config_digest, version'

const REFUSED: readonly (readonly [string, RegExp])[] = [
  ["update audit_rows set status = 'denied'", /append-only/],
  ['delete from audit_rows', /append-only/],
  ['truncate audit_rows', /append-only/],
  ["set session_replication_role = replica; update audit_rows set status = 'denied'", /append-only/],
  ['set session_replication_role = replica; delete from audit_rows', /append-only/],
  [
    "insert into audit_rows select stream, 9, recorded_at, request_id, principal_id, action, status, row_hash, row_hash || 'x', leaf from audit_log",
    /only the next row/,
  ],
  [
    "insert into audit_rows select 'another', 2, recorded_at, request_id, principal_id, action, status, row_hash, row_hash || 'x', leaf from audit_log",
    /only the next row/,
  ],
  [
    "insert into audit_rows select 'another', 1, recorded_at, request_id, principal_id, action, status, row_hash, row_hash, leaf from audit_log",
    /only the next row/,
  ],
  [
    'insert into audit_rows select stream, seq, recorded_at, request_id, principal_id, action, status, prev_hash, row_hash, leaf from audit_log',
    /audit_rows_pk/,
  ],
  [
    'insert into audit_rows select stream, seq + n, recorded_at, request_id, principal_id, action, status, row_hash, row_hash || n, replace(leaf, prev_hash, row_hash) from audit_log, generate_series(1, 2) n',
    /only the next row/,
  ],
  [
    "insert into audit_rows select stream, seq, recorded_at, request_id, principal_id, action, 'denied', prev_hash, row_hash, leaf from audit_log on conflict (stream, seq) do update set status = 'denied'",
    /append-only/,
  ],
  [
    "merge into audit_rows r using (select 1) s on true when matched then update set status = 'denied'",
    /append-only/,
  ],
  ...[
    [`stream, 9, prev_sha256, row_sha256`, ''],
    [`stream, 2, prev_sha256, row_sha256`, ''],
    [`stream, 3, row_sha256, row_sha256`, ''],
    [`'another', 1, row_sha256, row_sha256`, ''],
    [`'another', 2, row_sha256, row_sha256`, ''],
    [`'another', 1, prev_sha256, row_sha256 || 'x'`, ''],
    [`stream, seq + n, row_sha256, sha256(n::text::bytea)`, ', generate_series(1, 2) n'],
    [`'another', 1, null, row_sha256`, ''],
    [`'another', 1, prev_sha256, null`, ''],
  ].map(
    ([place, more]) =>
      [
        `insert into audit_rows (${COLUMNS}, stream, seq, prev_sha256, row_sha256) select ${COLUMNS}, ${place} from audit_rows${more}`,
        /only the next row/,
      ] as const,
  ),
  [
    `insert into audit_rows (${COLUMNS}, stream, seq, prev_sha256, row_sha256) select ${COLUMNS}, stream, seq, prev_sha256, row_sha256 from audit_rows`,
    /audit_rows_pk/,
  ],
  [
    `insert into audit_rows (${COLUMNS}, stream, seq, prev_sha256, row_sha256, leaf, prev_hash, row_hash) select ${COLUMNS.split(
      ', ',
    )
      .map((name) => `r.${name}`)
      .join(
        ', ',
      )}, 'another', 1, r.prev_sha256, r.row_sha256, l.leaf, l.prev_hash, l.row_hash from audit_rows r, audit_log l`,
    /only the next row/,
  ],
  [
    `insert into audit_rows (stream, seq, recorded_at, action, status, version, config_digest, prev_sha256, row_sha256, detail) select 'another', 1, recorded_at, action, status, version, config_digest, prev_sha256, row_sha256, 'no json' from audit_rows`,
    /json/,
  ],
  [
    "insert into audit_rows select 'another', 1, recorded_at, request_id, principal_id, action, status, prev_hash, row_hash, 'no json' from audit_log",
    /json/,
  ],
]

for (const [statement, why] of REFUSED) {
  t.test(`T12 the ledger refuses: ${statement}`, async (t) => {
    const url = await server.migrated()
    const { ledger } = await replica(t, url)
    await ledger.commit({ entries: [entry()] })
    await t.rejects(raw(url, statement), { message: why })
    t.match((await raw(url, 'select status from audit_rows')).rows, [{ status: 'allowed' }])
  })
}

/** A row without one before it, and the loss of a row that no segment has, beside tables that only the session has. */
const SHADOWED = [
  `create temporary table audit_rows as select * from audit_rows;
update pg_temp.audit_rows set stream = 'another', row_sha256 = sha256('x');
insert into public.audit_rows (${COLUMNS}, stream, seq, prev_sha256, row_sha256)
  select ${COLUMNS}, 'another', 2, sha256('x'), sha256('y') from public.audit_rows`,
  `create temporary table audit_rows as select * from audit_rows;
update pg_temp.audit_rows set seq = 9;
create temporary table audit_segments as select 9::bigint as last_place;
delete from public.audit_rows`,
]

t.test('T12 no table of a session stands in the place of one that a trigger asks', async (t) => {
  const url = await server.migrated()
  const { ledger } = await replica(t, url)
  await ledger.commit({ entries: [entry()] })
  for (const statement of SHADOWED)
    await t.rejects(raw(url, statement), { message: /only the next row|append-only/ })
  const generation = async () => (await raw(url, 'select generation from authority_generation')).rows
  const before = await generation()
  await raw(
    url,
    `create temporary table authority_generation as select * from authority_generation;
insert into settings values ('a', 'b', 'c')`,
  )
  t.notSame(await generation(), before, 'a change of authority is told')
})

const TAMPERED: readonly (readonly [string, RegExp])[] = [
  ['drop trigger audit_checkpoints_insert on audit_checkpoints', /audit_checkpoints_insert is missing/],
  [
    'alter table audit_checkpoints disable trigger audit_checkpoints_insert',
    /audit_checkpoints_insert was changed or switched off/,
  ],
  ['alter function audit_rows_only_the_next() set search_path = elsewhere', /audit_rows_insert was changed/],
  [
    `create or replace function audit_rows_only_the_next() returns trigger language plpgsql as $$${GUARD_FUNCTIONS.audit_rows_only_the_next}$$`,
    /audit_rows_insert was changed/,
  ],
  ['drop trigger audit_rows_delete on audit_rows', /audit_rows_delete is missing/],
  ['alter function audit_rows_only_archived() reset search_path', /audit_rows_delete was changed/],
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
  ['alter table audit_rows alter column place drop identity', /column place is missing/],
  [
    'alter table audit_rows alter column place set generated by default',
    /column place was changed or switched off/,
  ],
  ['alter sequence audit_rows_place_seq cache 10', /column place was changed or switched off/],
  ['drop index audit_rows_place', /column place was changed or switched off/],
]

for (const [statement, problem] of TAMPERED) {
  t.test(`T12 the gateway does not write a ledger after: ${statement}`, async (t) => {
    const url = await server.migrated()
    const database = await openDatabase(url)
    t.teardown(() => database.close())
    await raw(url, statement)
    await t.rejects(openLedger({ database, version: VERSION }), { message: problem })
  })
}

t.test('what reads the database cannot write it', async (t) => {
  const { database } = await replica(t, await server.migrated())
  const written = database.kysely.insertInto('settings').values({ key: 'a', value: 'b', updated_at: 'c' })
  await t.rejects(written.execute(), { message: /read-only transaction/ })
})

for (const setting of ['fsync', 'full_page_writes', 'synchronous_commit']) {
  t.test(`a server that may lose what it acknowledges is refused: ${setting} = off`, async (t) => {
    const url = await server.migrated()
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
