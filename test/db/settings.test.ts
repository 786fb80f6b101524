import t from 'tap'
import { readSetting, writeSetting } from '../../db/settings.ts'
import { opened } from '../support/db/writer.ts'

t.test('a setting that was never written is undefined', async (t) => {
  const { db } = await opened(t)
  t.equal(await readSetting(db, 'admin_secret_hash'), undefined)
})

t.test('a setting is written, and written again, and no other with it', async (t) => {
  const { db, run } = await opened(t)
  t.same(
    await run(
      writeSetting(db, 'organisation', 'acme', 0),
      writeSetting(db, 'trust_domain', 'sallyport.local', 0),
    ),
    [1, 1],
  )
  const again = writeSetting(db, 'organisation', '', 1000)
  t.equal(again.changes, 1)
  t.same(await run(again), [1])
  t.equal(await readSetting(db, 'organisation'), '', 'empty is not absent')
  t.equal(await readSetting(db, 'trust_domain'), 'sallyport.local')
  const stored = db.kysely.selectFrom('settings').select('updated_at').where('key', '=', 'organisation')
  t.same(await stored.execute(), [{ updated_at: '1970-01-01T00:00:01.000Z' }])
})
