import t, { type Test } from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { spanName } from '../../../db/ledger/meters/span.ts'
import { verifyDatabase } from '../../../db/ledger/read/read.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import type { LimitTerms } from '../../../db/limits/limit.ts'
import { PresentRules } from '../../../db/limits/present-rules.ts'
import { deleteLimit, findLimit, insertLimit, listLimits, updateLimit } from '../../../db/limits/store.ts'
import { alertLimits } from '../../../proxy/tasks/alert-limits.ts'
import { databaseUrl } from '../../support/db/engine.ts'
import { reserve } from '../../support/db/metered-calls.ts'
import { AT, VERSION } from '../../support/db/scratch-ledger.ts'

const TERMS: LimitTerms = {
  ...{ for: {}, each: false, measure: 'calls', amount: 10, per: 'day' },
  ...{ strict: false, on: 'refuse', show: true },
}
const DAY_MS = 86_400_000
const BY = { at: AT, by: 'admin' }

async function opened(t: Test) {
  const database = await openDatabase(await databaseUrl(t.testdir()))
  const ledger = await openLedger({ database, version: VERSION })
  let now = AT
  const task = alertLimits({
    ...{ database, ledger, rules: new PresentRules(database) },
    ...{ configDigest: () => 'cd'.repeat(32), clock: () => now },
  })
  let calls = 0
  const used = async (count: number, who = '', id = 'lim_a') => {
    const meter = { limit: id, who, span: spanName('day', now), took: 1, most: 1_000, refuses: false }
    for (let call = 0; call < count; call += 1) {
      calls += 1
      t.equal(await reserve(ledger, `req_${calls}`, [meter]), true)
    }
  }
  const made = (terms: Partial<LimitTerms> = {}, id = 'lim_a') =>
    ledger.commit({
      statements: insertLimit(database, { id, name: id.slice(4), terms: { ...TERMS, ...terms }, ...BY }),
      entries: [],
    })
  const alerts = async () => {
    // The first question begins to want the lead.
    while (!database.leads('alert-limits')) await new Promise(setImmediate)
    await task.run()
    const rows = await database.kysely
      .selectFrom('audit_log')
      .select(['detail', 'principal_id'])
      .where('action', '=', 'limit.alert')
      .orderBy('seq')
      .execute()
    return rows.map(({ detail }) => JSON.parse(detail))
  }
  const end = async () => {
    await ledger.close()
    t.match(await verifyDatabase(database.kysely), { ok: true })
    await database.close()
  }
  const goOn = (ms: number) => {
    now += ms
  }
  return { database, ledger, made, used, alerts, goOn, end }
}

t.test('each step of a window has one row, with the limit as it is', async (t) => {
  const { made, used, alerts, goOn, end } = await opened(t)
  await made()
  await used(4)
  t.same(await alerts(), [], 'less than half')
  await used(1)
  const half = { step: 50, used: 5, spent: 0, amount: 10, span: spanName('day', AT) }
  t.match(await alerts(), [{ ...half, limit: { id: 'lim_a', name: 'a', revision: 1, amount: 10 } }])
  t.equal((await alerts()).length, 1, 'once')
  await used(5)
  t.match((await alerts()).slice(1), [{ step: 100, used: 10 }], 'of two steps at once the higher')
  await used(3)
  t.equal((await alerts()).length, 2, 'and no more in this window')
  goOn(DAY_MS)
  t.equal((await alerts()).length, 2)
  await used(8)
  t.match((await alerts()).slice(2), [{ step: 80, span: spanName('day', AT + DAY_MS) }], 'a new window')
  await end()
})

t.test('a limit of each principal says who was first, once', async (t) => {
  const { made, used, alerts, end } = await opened(t)
  await made({ each: true, amount: 2 })
  await used(1, 'acme::one')
  await used(2, 'acme::two')
  t.match(await alerts(), [{ step: 100, principal: 'acme::two', used: 2, amount: 2 }])
  await used(1, 'acme::one')
  t.equal((await alerts()).length, 1)
  await end()
})

t.test('another amount is asked about again, and what is of no window never', async (t) => {
  const { database, ledger, made, used, alerts, end } = await opened(t)
  await made()
  await made({ amount: 0 }, 'lim_zero')
  await made({ per: 'minute' }, 'lim_rate')
  await used(5)
  await used(9, '', 'lim_rate')
  t.equal((await alerts()).length, 1)
  const found = await findLimit(database, 'lim_a')
  if (!found) throw new Error('the limit is there')
  const { name, override, revision } = found
  const change = { id: 'lim_a', name, override, revision, terms: { ...TERMS, amount: 6 }, ...BY }
  await ledger.commit({ statements: updateLimit(database, change), entries: [] })
  t.match((await alerts()).slice(1), [{ step: 80, amount: 6, limit: { revision: 2 } }])
  t.equal((await listLimits(database)).length, 3, 'lists show no more than they did')
  await ledger.commit({ statements: deleteLimit(database, { id: 'lim_a', revision: 2 }), entries: [] })
  t.equal((await alerts()).length, 2)
  await end()
})
