import { join } from 'node:path'
import t from 'tap'
import { openLedger } from '../../../db/audit/ledger.ts'
import { openDatabase } from '../../../db/database.ts'
import { claimOnce, forgetClaims } from '../../../db/single-uses.ts'
import { AnonymousRefusals } from '../../../plugins/audit/anonymous.ts'
import { Outcomes } from '../../../plugins/audit/audit.ts'
import { ledgerTasks } from '../../../proxy/tasks/tend-ledger.ts'

const AT = Date.UTC(2026, 0, 1)
/** What `requestMs` of the listener allows. */
const SLOWEST_BODY_MS = 120_000
/** Any claim is kept so long, whatever the clocks say. */
const KEPT_MS = 480_000

await t.test(
  'D-17 a used proof is remembered for as long as a copy that came in time may be under way',
  async (t) => {
    const database = await openDatabase(`sqlite:${join(t.testdir(), 'sallyport.db')}`)
    const ledger = await openLedger({ file: database.file, version: '0' })
    t.teardown(async () => {
      await ledger.close()
      await database.close()
    })
    let at = AT
    const forget = ledgerTasks({
      database,
      ledger,
      outcomes: new Outcomes(ledger, () => {}),
      anonymous: new AnonymousRefusals(AT),
      seen: new Map(),
      organisation: 'acme',
      configDigest: () => '',
      clock: () => at,
      monotonic: () => at - AT,
    }).find(({ name }) => name === 'forget-claims')
    const claim = (): Promise<unknown> =>
      ledger.commit({ statements: [claimOnce(database, 'proof', AT)], entries: [] })
    await claim()
    at += SLOWEST_BODY_MS
    await forget?.run()
    await t.rejects(claim(), { code: 'duplicate' })
    at += KEPT_MS
    await forget?.run()
    await t.resolves(claim(), 'and then it is forgotten')
  },
)

await t.test(
  'D-18 no more claims are forgotten at once than the ledger can spare the time for',
  async (t) => {
    const database = await openDatabase(`sqlite:${join(t.testdir(), 'sallyport.db')}`)
    const ledger = await openLedger({ file: database.file, version: '0' })
    t.teardown(async () => {
      await ledger.close()
      await database.close()
    })
    const claim = (digest: string, expiresAt: number): Promise<unknown> =>
      ledger.commit({ statements: [claimOnce(database, digest, expiresAt)], entries: [] })
    for (const n of [1, 2, 3]) await claim(`proof ${n}`, AT + n)
    await ledger.commit({ statements: [forgetClaims(database, AT + 10, 2)], entries: [] })
    await t.resolves(claim('proof 2', AT))
    await t.rejects(claim('proof 3', AT), { code: 'duplicate' })
  },
)
