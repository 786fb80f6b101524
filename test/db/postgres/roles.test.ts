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
const as = (url: string, role: string): string => url.replace('user=postgres', `user=${role}`)

// Roles are of the whole server.
const url = await server.fresh()
await raw(url, sql('roles.sql'))
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

const REFUSED = [
  "update audit_rows set status = 'denied'",
  'delete from audit_rows',
  'truncate audit_rows',
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
]

for (const statement of REFUSED) {
  t.test(`T12 the role of a gateway may not: ${statement}`, async (t) => {
    await t.rejects(raw(gateway, statement), { message: /permission denied|must be owner/ })
  })
}

t.test('a gateway whose database lacks a migration says so, and may not run it', async (t) => {
  const bare = as(await server.fresh(), 'sallyport_gateway')
  await t.rejects(openDatabase(bare), { message: /^the database cannot be opened: .*permission denied/ })
})
