import { hash } from 'node:crypto'
import { join } from 'node:path'
import SQLite from 'better-sqlite3'
import { Kysely, SqliteDialect } from 'kysely'
import { Migrator } from 'kysely/migration'
import t, { type Test } from 'tap'
import type { Database } from '../../db/database.ts'
import { openDatabase } from '../../db/engine.ts'
import { type Ledger, openLedger } from '../../db/ledger/record/ledger.ts'
import type { DatabaseSchema } from '../../db/schema.ts'
import { CLAIM_SLICES, claimOnce, forgetClaims } from '../../db/single-uses.ts'
import { SQLITE_MIGRATIONS } from '../../db/sqlite/migrations.ts'
import { databaseUrl } from '../support/db/engine.ts'

const AT = Date.UTC(2026, 0, 1)

async function opened(
  t: Test,
): Promise<{ database: Database; ledger: Ledger; restart: () => Promise<Ledger> }> {
  const database = await openDatabase(await databaseUrl(t.testdir()))
  let ledger = await openLedger({ database, version: '0' })
  const restart = async (): Promise<Ledger> => {
    await ledger.close()
    ledger = await openLedger({ database, version: '0' })
    return ledger
  }
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  return { database, ledger, restart }
}

const claim = (ledger: Ledger, database: Database, name: string, expiresAt = AT): Promise<unknown> =>
  ledger.commit({ statements: [claimOnce(database, hash('sha256', name), expiresAt)], entries: [] })

async function forgetAll(ledger: Ledger, database: Database, at: number): Promise<void> {
  const slices = Array.from({ length: CLAIM_SLICES }, (_, slice) => forgetClaims(database, at, slice))
  await ledger.commit({ statements: slices, entries: [] })
}

await t.test('D-17 RFC 9449 §11.1 a digest is claimed once, also after a restart', async (t) => {
  const { database, ledger, restart } = await opened(t)
  await claim(ledger, database, 'a')
  await t.rejects(claim(ledger, database, 'a'), { code: 'duplicate' })
  await claim(ledger, database, 'b')
  await t.rejects(claim(await restart(), database, 'a'), { code: 'duplicate' })
})

await t.test(
  'D-17 of a thousand claims at once exactly one holds, and none takes another with it',
  async (t) => {
    const { database, ledger } = await opened(t)
    const same = Array.from({ length: 1_000 }, () => claim(ledger, database, 'same'))
    const others = Array.from({ length: 1_000 }, (_, i) => claim(ledger, database, `other ${i}`))
    const settled = await Promise.allSettled(same)
    t.equal(settled.filter(({ status }) => status === 'fulfilled').length, 1)
    t.ok((await Promise.allSettled(others)).every(({ status }) => status === 'fulfilled'))
  },
)

await t.test('D-18 claims are forgotten once they have expired, and not before', async (t) => {
  const { database, ledger } = await opened(t)
  // In every slice some.
  const names = Array.from({ length: 3_000 }, (_, i) => `${i}`)
  await Promise.all(names.map((name) => claim(ledger, database, `old ${name}`, AT - 1)))
  await Promise.all(names.map((name) => claim(ledger, database, `now ${name}`, AT)))
  await forgetAll(ledger, database, AT)
  const left = await database.kysely.selectFrom('single_uses').selectAll().execute()
  t.equal(left.length, names.length)
  for (const name of names.slice(0, 50)) {
    await t.resolves(claim(ledger, database, `old ${name}`))
    await t.rejects(claim(ledger, database, `now ${name}`), { code: 'duplicate' })
  }
})

await t.test(
  'D-18 no more claims are forgotten at once than the ledger can spare the time for',
  async (t) => {
    const { database, ledger } = await opened(t)
    const digests = ['a', 'b', 'c'].map((digit) => `07${digit.repeat(62)}`)
    const again = (digest: string) =>
      ledger.commit({ statements: [claimOnce(database, digest, AT + 20)], entries: [] })
    for (const digest of digests) await again(digest)
    await ledger.commit({ statements: [forgetClaims(database, AT + 30, 7, 2)], entries: [] })
    const settled = await Promise.allSettled(digests.map(again))
    t.equal(settled.filter(({ status }) => status === 'fulfilled').length, 2)
  },
)

await t.test('D-17 0052 what an earlier version had claimed stays claimed until it expires', async (t) => {
  const file = join(t.testdir(), 'old.db')
  const connection = new SQLite(file)
  const db = new Kysely<DatabaseSchema>({ dialect: new SqliteDialect({ database: connection }) })
  const migrator = new Migrator({ db, provider: { getMigrations: async () => ({ ...SQLITE_MIGRATIONS }) } })
  t.equal((await migrator.migrateTo('0050_record')).error, undefined)
  const insert = connection.prepare('insert into single_uses (digest, expires_at) values (?, ?)')
  for (let i = 0; i < 1_000; i += 1) insert.run(hash('sha256', `${i}`), new Date(AT + i).toISOString())
  await db.destroy()

  const database = await openDatabase(`sqlite:${file}`)
  const ledger = await openLedger({ database, version: '0' })
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  const settled = await Promise.allSettled(
    Array.from({ length: 1_000 }, (_, i) => claim(ledger, database, `${i}`, AT + i)),
  )
  t.ok(settled.every((claimed) => claimed.status === 'rejected' && claimed.reason.code === 'duplicate'))
  await forgetAll(ledger, database, AT)
  await t.rejects(claim(ledger, database, '0'), { code: 'duplicate' }, 'none is forgotten before its time')
  await forgetAll(ledger, database, AT + 3_000)
  t.same(await database.kysely.selectFrom('single_uses').selectAll().execute(), [])
})
