import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type Ledger, openLedger } from '../../db/audit/ledger.ts'
import { type Database, openDatabase } from '../../db/database.ts'
import { claimOnce, forgetClaims } from '../../db/single-uses.ts'

const AT = Date.UTC(2026, 0, 1)

async function opened(
  t: Test,
): Promise<{ database: Database; ledger: Ledger; restart: () => Promise<Ledger> }> {
  const database = await openDatabase(`sqlite:${join(t.testdir(), 'sallyport.db')}`)
  let ledger = await openLedger({ file: database.file, version: '0' })
  const restart = async (): Promise<Ledger> => {
    await ledger.close()
    ledger = await openLedger({ file: database.file, version: '0' })
    return ledger
  }
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  return { database, ledger, restart }
}

const claim = (ledger: Ledger, database: Database, digest: string, expiresAt = AT): Promise<unknown> =>
  ledger.commit({ statements: [claimOnce(database, digest, expiresAt)], entries: [] })

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
  await claim(ledger, database, 'old', AT - 1)
  await claim(ledger, database, 'now', AT)
  await ledger.commit({ statements: [forgetClaims(database, AT)], entries: [] })
  await t.resolves(claim(ledger, database, 'old'))
  await t.rejects(claim(ledger, database, 'now'), { code: 'duplicate' })
})
