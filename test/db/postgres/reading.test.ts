import { sql } from 'kysely'
import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { openReadConnections } from '../../../db/postgres/reading.ts'
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

t.test('a question that is wrong costs no connection', async (t) => {
  const { kysely } = openReadConnections(await server.fresh())
  t.teardown(() => kysely.destroy())
  const session = async () => (await sql`select pg_backend_pid() as pid`.execute(kysely)).rows
  const before = await session()
  await t.rejects(sql`select nothing`.execute(kysely), { code: '42703' })
  t.same(await session(), before)
})

t.test('what the service asks is not asked where it names a text that no row can hold', async (t) => {
  const database = await openDatabase(await server.fresh())
  t.teardown(() => database.close())
  const settings = database.kysely.selectFrom('settings').select('value')
  t.same(await settings.where('key', '=', 'a\0').execute(), [])
  t.equal(await database.lookup(settings.where('key', '=', ''))('a\0'), undefined)
})
