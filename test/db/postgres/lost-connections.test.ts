import { sql } from 'kysely'
import t from 'tap'
import { openReadConnections } from '../../../db/postgres/reading.ts'
import { sharedDatabase } from '../../support/cluster/database.ts'
import { linkTo } from '../../support/cluster/link.ts'
import { raw } from '../../support/db/postgres/replica.ts'

const ASLEEP = `select 1 from pg_stat_activity where query like '%pg_sleep(60)' and state = 'active'
  and pid <> pg_backend_pid() and datname = current_database()`

for (const how of ['end', 'reset'] as const) {
  await t.test(
    `F-11 a connection that is lost (${how}) while it is asked fails its question, and nothing else`,
    async (t) => {
      const { name, url, socket } = await sharedDatabase(t)
      const link = await linkTo(t, socket)
      const { kysely } = openReadConnections(`postgres://postgres@127.0.0.1:${link.port}/${name}`)
      t.teardown(() => kysely.destroy())
      const ask = (text: string) => sql.raw(text).execute(kysely)
      const asked = t.rejects(ask('select pg_sleep(60)'), { message: /^the database is away/ })
      while ((await raw(url, ASLEEP)).rows.length === 0);
      link.cut(how)
      await asked
      t.match(await ask('select 1 as one'), { rows: [{ one: 1 }] }, 'the next one is asked on another')
    },
  )
}

await t.test('F-12 a database that takes no connections is away, whatever it says why', async (t) => {
  const { name, socket, server } = await sharedDatabase(t)
  const link = await linkTo(t, socket)
  const { kysely } = openReadConnections(`postgres://postgres@127.0.0.1:${link.port}/${name}`)
  t.teardown(() => kysely.destroy())
  const ask = () => sql.raw('select 1 as one').execute(kysely)
  await raw(server.url('postgres'), `alter database ${name} allow_connections false`)
  await t.rejects(ask(), { message: /^the database is away/ })
  await raw(server.url('postgres'), `alter database ${name} allow_connections true`)
  t.match(await ask(), { rows: [{ one: 1 }] })
})
