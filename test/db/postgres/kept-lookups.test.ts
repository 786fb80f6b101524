import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw, replica } from '../../support/db/postgres/replica.ts'
import { eventually } from '../../support/settled.ts'

const server = await cluster()

t.test(
  'what was read before a change is not kept behind it, and whoever asks is told that it moved',
  async (t) => {
    const url = await server.migrated()
    const { database, ledger } = await replica(t, url)
    const query = database.kysely.selectFrom('settings').select('value').where('key', '=', '')
    const value = database.lookup(query)
    database.notices.on('anything', () => {})
    await eventually(
      () => database.notices.listening,
      (is) => is,
    )
    const write = (text: string) =>
      raw(
        url,
        `insert into settings values ('organisation', $1, '') on conflict (key) do update set value = $1`,
        [text],
      )
    for (let round = 0; round < 50; round += 1) {
      const since = performance.now()
      // Reads and a change at once: what they have read may be from before it.
      await Promise.all([...[1, 2, 3].map(() => value('organisation')), write(`value ${round}`)])
      if (!(await database.current?.(since))) t.same(await value('organisation'), { value: `value ${round}` })
      t.equal(await database.current?.(performance.now()), true)
      t.same(await value('organisation'), { value: `value ${round}` })
    }
    const since = performance.now()
    await ledger.commit({ statements: [], entries: [] })
    t.equal(await database.current?.(since), true, 'nothing has changed')
    await write('other')
    t.equal(await database.current?.(since), false)
    t.equal(await database.current?.(since), false, 'and stays so for who has read before')
  },
)

t.test('rows that nobody asks for make room', async (t) => {
  const url = await server.migrated()
  const database = await openDatabase(url)
  t.teardown(() => database.close())
  // 40 MiB: more than is kept.
  await raw(
    url,
    `insert into settings select 'key ' || n, repeat('x', 1048576), '' from generate_series(1, 40) n`,
  )
  const query = database.kysely.selectFrom('settings').select('value').where('key', '=', '')
  const value = database.lookup(query)
  database.notices.on('anything', () => {})
  await eventually(
    () => database.notices.listening,
    (is) => is,
  )
  for (let n = 1; n <= 40; n += 1) await value(`key ${n}`)
  t.notOk(value('key 40') instanceof Promise, 'the last one is kept')
  t.ok(value('key 1') instanceof Promise, 'the first one is not')
})
