import { hash } from 'node:crypto'
import t, { type Test } from 'tap'
import { openDatabase } from '../../db/engine.ts'
import { openLedger } from '../../db/ledger/record/ledger.ts'
import { claimOnce } from '../../db/single-uses.ts'
import { AnonymousRefusals } from '../../plugins/audit/anonymous.ts'
import { OutcomeWriter } from '../../plugins/audit/audit.ts'
import { ledgerTasks } from '../../proxy/tasks/tend-ledger.ts'
import { databaseUrl } from '../support/db/engine.ts'
import { leading } from '../support/db/leading.ts'
import { ADMIN_SECRET, scratch, testGateway } from '../support/gateway.ts'

const AT = Date.UTC(2026, 0, 1)
const SECOND_MS = 1_000
const DAY_MS = 86_400_000
/** A proof is believed for a minute, and its request may take two. */
const LIFE_MS = 70_000
/** After so long every claim that has expired is gone. */
const LONG_MS = 900_000

/** The ledger of a process whose clock is set at will, while its time passes as it does. */
async function bench(t: Test) {
  const database = await openDatabase(await databaseUrl(await scratch(t)))
  const ledger = await openLedger({ database, version: '0' })
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  await leading(database, 'forget-claims')
  let wall = AT
  let passed = 0
  const start = () =>
    ledgerTasks({
      database,
      ledger,
      outcomes: new OutcomeWriter(ledger, database, () => {}),
      anonymous: new AnonymousRefusals(AT),
      seen: new Map(),
      configDigest: () => '',
      clock: () => wall,
      monotonic: () => passed,
    }).find(({ name }) => name === 'forget-claims')
  let forget = start()
  return {
    claim: (expiresAt: number): Promise<unknown> =>
      ledger.commit({ statements: [claimOnce(database, hash('sha256', 'proof'), expiresAt)], entries: [] }),
    /** Time passes, and the task runs every second of it. */
    pass: async (ms: number): Promise<void> => {
      for (let left = ms; left > 0; left -= SECOND_MS) {
        const step = Math.min(left, SECOND_MS)
        wall += step
        passed += step
        await forget?.run()
      }
    },
    /** Somebody sets the clock, and the task runs. */
    set: async (by: number): Promise<void> => {
      wall += by
      await forget?.run()
    },
    restart: (): void => {
      forget = start()
    },
  }
}

await t.test('E6 a clock that jumps a day ahead and back lets no proof pass twice', async (t) => {
  const { claim, pass, set } = await bench(t)
  await pass(LONG_MS)
  await claim(AT + LONG_MS + LIFE_MS)
  await pass(SECOND_MS)
  await set(DAY_MS)
  await pass(30 * SECOND_MS)
  await set(-DAY_MS)
  await t.rejects(claim(AT + LONG_MS + LIFE_MS), { code: 'duplicate' })
})

await t.test('E6 nor one that jumps again and again, nor one that jumps before a restart', async (t) => {
  const { claim, pass, set, restart } = await bench(t)
  await pass(LONG_MS)
  const expiresAt = AT + LONG_MS + LIFE_MS
  await claim(expiresAt)
  for (let jump = 0; jump < 5; jump += 1) {
    await set(DAY_MS)
    await set(-DAY_MS)
  }
  await set(DAY_MS)
  restart()
  await pass(30 * SECOND_MS)
  await set(-DAY_MS)
  await t.rejects(claim(expiresAt), { code: 'duplicate' })
})

await t.test('E6 a clock that was set right for good does not keep claims for ever', async (t) => {
  for (const by of [DAY_MS, -60 * SECOND_MS]) {
    const { claim, pass, set } = await bench(t)
    await claim(AT + LIFE_MS)
    await set(by)
    await pass(LONG_MS)
    await t.resolves(claim(AT + LIFE_MS), `set by ${by} ms`)
  }
})

await t.test('E6 who waits for guessing waits as long, however the clock is set', async (t) => {
  let wall = Date.now()
  let passed = 0
  const gateway = await testGateway(t, { clock: () => wall, monotonic: () => passed })
  const ask = async (secret: string): Promise<number> =>
    (await gateway.call(null, 'GET', '/v1/admin/agents', { headers: { 'x-admin-secret': secret } })).status
  for (let guess = 0; guess < 10; guess += 1) t.equal(await ask('wrong'), 403)
  t.equal(await ask('wrong'), 429)
  wall += DAY_MS
  t.equal(await ask('wrong'), 429, 'a day later by the clock, no time has passed')
  wall -= 2 * DAY_MS
  passed += 60 * SECOND_MS
  t.equal(await ask(ADMIN_SECRET), 200, 'and a clock that was set back keeps nobody out')
})
