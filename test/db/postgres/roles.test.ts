import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { claimOnce, forgetClaims } from '../../../db/single-uses.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw, replica } from '../../support/db/postgres/replica.ts'
import { AT, entry } from '../../support/db/scratch-ledger.ts'

const server = await cluster()
const sql = (name: string): string =>
  readFileSync(join(import.meta.dirname, '../../../deploy/postgres', name), 'utf8')
/** What a role is told that neither owns a thing nor was given it. */
const NOT_ITS_OWN = /permission denied|must be (owner|superuser)|must be able to SET ROLE|must have/i
const as = (url: string, role: string): string => url.replace('user=postgres', `user=${role}`)

// Roles are of the whole server.
const url = await server.fresh()
await raw(url, sql('roles.sql'))
await raw(url, sql('audit-guard.sql'))
const owner = as(url, 'sallyport_owner')
const gateway = as(url, 'sallyport_gateway')
await (await openDatabase(owner)).close()
await raw(owner, sql('grants.sql'))

t.test('a gateway writes as a role that owns nothing', async (t) => {
  const { database, ledger } = await replica(t, gateway)
  const statements = [claimOnce(database, 'ab'.repeat(32), AT)]
  t.match(await ledger.commit({ statements, entries: [entry()] }), [{ seq: 1 }])
  await ledger.commit({ statements: [forgetClaims(database, AT + 1, 0xab)], entries: [] })
  t.same(await ledger.recover(AT, 'cd'.repeat(32)), 0)
})

t.test('a role that was not given the columns of rows yet keeps a leaf in each', async (t) => {
  const hasLeaf = async () => {
    const { ledger } = await replica(t, gateway)
    const [sealed] = await ledger.commit({ entries: [entry()] })
    const { rows } = await raw(url, 'select leaf is not null as has from audit_rows where stream = $1', [
      sealed?.stream,
    ])
    return rows[0].has
  }
  t.equal(await hasLeaf(), false)
  await raw(owner, 'revoke insert (row_sha256) on audit_rows from sallyport_gateway')
  t.equal(await hasLeaf(), true)
  await raw(owner, sql('grants.sql'))
  t.equal(await hasLeaf(), false)
})

const REFUSED = [
  "update audit_rows set status = 'denied'",
  'delete from audit_rows',
  'truncate audit_rows',
  "update audit_checkpoints set root = ''",
  'delete from audit_checkpoints',
  "update audit_cosignatures set proof = ''",
  'drop table audit_rows cascade',
  'drop trigger audit_rows_update on audit_rows',
  'alter table audit_rows disable trigger all',
  'alter table audit_rows add column more text',
  'drop function audit_rows_refuse() cascade',
  'create or replace function audit_rows_refuse() returns trigger language plpgsql as $$begin return new; end$$',
  'set session_replication_role = replica',
  'create rule quiet as on delete to audit_rows do instead nothing',
  'create table mine (id int)',
  'drop schema public cascade',
  'delete from kysely_migration',
  `insert into audit_rows (stream, seq, recorded_at, action, status, prev_hash, row_hash, leaf, place)
overriding system value values ('other', 1, '', '', '', repeat('0', 64), '', '{}', 1)`,
  "select setval('audit_rows_place_seq', 1)",
  // The same by other ways.
  `insert into audit_rows (stream, seq, recorded_at, action, status, prev_hash, row_hash, leaf)
select stream, seq, recorded_at, action, status, prev_hash, row_hash, leaf from audit_rows
on conflict (stream, seq) do update set status = 'denied'`,
  "merge into audit_rows a using audit_rows b on a.seq = b.seq when matched then update set status = 'denied'",
  "copy audit_rows from program 'true'",
  'alter table audit_rows alter column leaf type varchar(1)',
  'alter table audit_rows drop column leaf',
  'alter table audit_rows drop constraint audit_rows_parent',
  'alter table audit_rows owner to sallyport_gateway',
  'alter table audit_rows rename to other',
  'alter view audit_log rename to other',
  "create or replace view audit_log as select 'none' as leaf",
  'create trigger mine before insert on audit_rows for each row execute function audit_rows_refuse()',
  'create policy mine on audit_rows using (false)',
  'begin; lock table audit_rows in access exclusive mode',
  'reassign owned by sallyport_owner to sallyport_gateway',
  'set role sallyport_owner',
  'alter role sallyport_gateway superuser',
  'grant sallyport_owner to sallyport_gateway',
  'create schema mine',
  // What guards the guards.
  'drop schema audit_guard cascade',
  'drop function audit_guard.refuse_drop() cascade',
  'create or replace function audit_guard.refuse_drop() returns event_trigger language plpgsql as $$begin end$$',
  'alter event trigger audit_guard_drop disable',
  'drop event trigger audit_guard_drop',
  'create event trigger mine on sql_drop execute function audit_guard.refuse_drop()',
  'set event_triggers = off',
]

/** What the owner, and a superuser who does not mean it, may not do either. */
const UNMEANT = [
  'drop table audit_rows cascade',
  'drop table audit_streams',
  'drop trigger audit_rows_update on audit_rows',
  'drop function audit_rows_refuse() cascade',
  'alter table audit_rows drop column leaf cascade',
  'alter table audit_rows disable trigger all',
  'alter table audit_rows disable trigger user',
  'alter table audit_rows disable trigger audit_rows_delete',
  'alter table audit_rows enable replica trigger audit_rows_truncate',
  'create rule quiet as on delete to audit_rows do instead nothing',
]

for (const statement of REFUSED) {
  t.test(`T12 the role of a gateway may not: ${statement}`, async (t) => {
    await t.rejects(raw(gateway, statement), { message: NOT_ITS_OWN })
  })
}

const KEPT = {
  message: /^the audit ledger is not dropped|^the guards of the audit ledger are not switched off/,
}

for (const [who, by] of [
  ['the owner', owner],
  ['a superuser who does not mean it', url],
] as const) {
  for (const statement of UNMEANT)
    t.test(`T12 ${who} may not: ${statement}`, (t) => t.rejects(raw(by, statement), KEPT))
}

t.test('T12 what guards the ledger does not go with its schema, nor with its owner', async (t) => {
  await t.rejects(raw(url, 'drop schema public cascade'), KEPT, 'a superuser')
  await t.rejects(raw(url, 'set session_replication_role = replica; drop schema public cascade'), KEPT)
  await t.rejects(raw(owner, 'drop owned by sallyport_owner cascade'), KEPT)
  for (const statement of REFUSED.filter((each) => each.includes('audit_guard')))
    await t.rejects(raw(owner, statement), { message: NOT_ITS_OWN }, statement)
})

t.test('what is not of the ledger is dropped, and the ledger’s guards are replaced, as before', async (t) => {
  await raw(owner, 'create table mine (id int); alter table mine add column more text; drop table mine')
  await raw(
    owner,
    'create or replace trigger audit_rows_update before update on audit_rows for each row execute function audit_rows_refuse()',
  )
  await raw(owner, 'alter table audit_rows enable always trigger audit_rows_update')
  await raw(url, sql('audit-guard.sql'))
  const { database } = await replica(t, gateway)
  t.equal(database.engine, 'postgres', 'and a gateway finds all as it should be')
})

t.test(
  'T12 without the event triggers, as where nobody is a superuser, the gateways’ role is stopped all the same',
  async (t) => {
    const managed = await server.fresh()
    const withoutRoles = sql('roles.sql').replaceAll(/^create role .*$/gm, '')
    await raw(managed, withoutRoles)
    await (await openDatabase(as(managed, 'sallyport_owner'))).close()
    await raw(as(managed, 'sallyport_owner'), sql('grants.sql'))
    for (const statement of REFUSED.filter((each) => !each.includes('audit_guard')))
      await t.rejects(raw(as(managed, 'sallyport_gateway'), statement), { message: NOT_ITS_OWN }, statement)
  },
)

t.test('a gateway whose database lacks a migration says so, and may not run it', async (t) => {
  const bare = as(await server.fresh(), 'sallyport_gateway')
  await t.rejects(openDatabase(bare), { message: /^the database cannot be opened: .*permission denied/ })
})
