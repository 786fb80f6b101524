import { sql } from 'kysely'
import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { openReadConnections, withinDeadline } from '../../../db/postgres/reading.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'

const server = await cluster()

t.test('F-10 nobody waits behind a question that was given up', async (t) => {
  const { kysely } = openReadConnections(await server.fresh())
  t.teardown(() => kysely.destroy())
  const session = async (): Promise<number> => {
    const { rows } = await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(kysely)
    return rows[0]?.pid ?? 0
  }
  const frozen = await session()
  t.equal(await session(), frozen, 'one connection is used again and again')
  process.kill(frozen, 'SIGSTOP')
  t.teardown(() => process.kill(frozen, 'SIGCONT'))
  await t.rejects(session(), { message: /^the database is away: / })
  t.not(await session(), frozen, 'the next one is answered, on a connection of its own')
})

t.test('F-10 an answer that has come is not late because its reader is', async (t) => {
  const { kysely, pool } = openReadConnections(await server.fresh())
  t.teardown(() => kysely.destroy())
  await pool.query('select 1')
  const asked = withinDeadline(pool.query('select 1 as one'), performance.now() + 20)
  // The question is on its way; the answer comes while this process does something else.
  await new Promise((resolve) => process.nextTick(resolve))
  for (const from = performance.now(); performance.now() - from < 300; );
  t.match(await asked, { rows: [{ one: 1 }] })
})

t.test('a question that is wrong costs no connection', async (t) => {
  const { kysely } = openReadConnections(await server.fresh())
  t.teardown(() => kysely.destroy())
  const session = async () => (await sql`select pg_backend_pid() as pid`.execute(kysely)).rows
  const before = await session()
  await t.rejects(sql`select nothing`.execute(kysely), { code: '42703' })
  t.same(await session(), before)
})

t.test('what the service asks is not asked where it names a text that no row can hold', async (t) => {
  const database = await openDatabase(await server.migrated())
  t.teardown(() => database.close())
  const settings = database.kysely.selectFrom('settings').select('value')
  t.same(await settings.where('key', '=', 'a\0').execute(), [])
  t.equal(await database.lookup(settings.where('key', '=', ''))('a\0'), undefined)
})
