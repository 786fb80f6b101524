import { hash } from 'node:crypto'
import { join } from 'node:path'
import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import type { LedgerUnit } from '../../../db/ledger/record/entry.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import { listPrincipals } from '../../../db/principals/read.ts'
import { CLAIM_SLICES, claimOnce } from '../../../db/single-uses.ts'
import { openSqliteDatabase } from '../../../db/sqlite/database.ts'
import { AnonymousRefusals } from '../../../plugins/audit/anonymous.ts'
import { OutcomeWriter } from '../../../plugins/audit/audit.ts'
import { ledgerTasks, touchSeen } from '../../../proxy/tasks/tend-ledger.ts'
import { databaseUrl, skipWithoutFile } from '../../support/db/engine.ts'
import { leading } from '../../support/db/leading.ts'
import { fillTables } from '../../support/db/many-principals.ts'
import { commitsInLog } from '../../support/db/scratch-ledger.ts'

const AT = Date.UTC(2026, 0, 1)
/** What `requestMs` of the listener allows. */
const SLOWEST_BODY_MS = 120_000
/** Any claim is kept so long, whatever the clocks say. */
const KEPT_MS = 480_000

await t.test(
  'D-17 a used proof is remembered for as long as a copy that came in time may be under way',
  async (t) => {
    const database = await openDatabase(await databaseUrl(t.testdir()))
    const ledger = await openLedger({ database, version: '0' })
    t.teardown(async () => {
      await ledger.close()
      await database.close()
    })
    await leading(database, 'forget-claims')
    let at = AT
    const forget = ledgerTasks({
      database,
      ledger,
      outcomes: new OutcomeWriter(ledger, database, () => {}),
      anonymous: new AnonymousRefusals(AT),
      seen: new Map(),
      configDigest: () => '',
      clock: () => at,
      monotonic: () => at - AT,
    }).find(({ name }) => name === 'forget-claims')
    const claim = (): Promise<unknown> =>
      ledger.commit({ statements: [claimOnce(database, hash('sha256', 'proof'), AT)], entries: [] })
    const forgetAll = async (): Promise<void> => {
      for (let run = 0; run < CLAIM_SLICES; run += 1) await forget?.run()
    }
    await claim()
    at += SLOWEST_BODY_MS
    await forgetAll()
    await t.rejects(claim(), { code: 'duplicate' })
    at += KEPT_MS
    await forgetAll()
    await t.resolves(claim(), 'and then it is forgotten')
  },
)

await t.test(
  'A7: last_seen of many principals is written in several transactions',
  { skip: skipWithoutFile },
  async (t) => {
    const database = await openSqliteDatabase(join(t.testdir(), 'sallyport.db'))
    const ledger = await openLedger({ database, version: '0' })
    t.teardown(async () => {
      await ledger.close()
      await database.close()
    })
    fillTables(database.file, { principals: 250, servers: 1, tools: 0, bindings: 0 })
    const ids = Array.from({ length: 250 }, (_, n) => `acme::agent-${n}`)
    const touch = ledgerTasks({
      database,
      ledger,
      outcomes: new OutcomeWriter(ledger, database, () => {}),
      anonymous: new AnonymousRefusals(AT),
      seen: new Map(ids.map((id) => [id, { type: 'agent' as const, at: AT }])),
      configDigest: () => '',
      clock: () => AT,
      monotonic: () => 0,
    }).find(({ name }) => name === 'touch-last-seen')
    const before = commitsInLog(`${database.file}-wal`)
    await touch?.run()
    t.equal(commitsInLog(`${database.file}-wal`) - before, 3)
    const { items } = await listPrincipals(database, 'agent')
    t.same(
      items.filter(({ last_seen_at: at }) => at === null),
      [],
    )
  },
)

await t.test(
  'who is seen all the time keeps nobody else from being written, and all lock in one order',
  async (t) => {
    const database = await openDatabase(await databaseUrl(t.testdir()))
    t.teardown(() => database.close())
    const seen = new Map(['c', 'a', 'd', 'b'].map((id) => [id, { type: 'agent' as const, at: AT }]))
    const written: string[] = []
    const ledger = {
      commit: ({ statements = [] }: LedgerUnit) => {
        for (const id of statements.map(({ parameters }) => String(parameters[1]))) {
          written.push(id)
          if (id < 'd') seen.set(id, { type: 'agent', at: AT + written.length })
        }
        return Promise.resolve([])
      },
    }
    for (let run = 0; run < 2; run += 1) await touchSeen({ ledger, seen, database }, 2)
    t.same(written, ['a', 'c', 'b', 'd'])
    t.same([...seen.keys()], ['a', 'c', 'b'], 'seen again')
  },
)
