import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import { claimOnce } from '../../../db/single-uses.ts'
import { singleUse } from '../../../plugins/dpop/single-use.ts'
import { scratchDatabase } from '../../support/db/scratch-ledger.ts'
import { refused } from '../../support/refused.ts'

const LIMIT = 64

await t.test('H2: the proof of a change is claimed while calls fill the ledger’s queue', async (t) => {
  const database = await openDatabase(`sqlite:${await scratchDatabase(t.testdir())}`)
  t.teardown(() => database.close())
  const ledger = await openLedger({ database, version: '0', queueLimit: LIMIT })
  t.teardown(() => ledger.close())
  const proof = (digit: string) => ({
    proof: { jkt: 'thumb', replayKey: digit.repeat(64), expiresAt: Date.now() + 60_000 },
  })
  const claims = { ledger, database }
  const key = (index: number): string => index.toString(16).padStart(2, '0').repeat(32)
  // In one turn of the loop: nothing of it is stored meanwhile.
  const calls = Array.from({ length: LIMIT }, (_, index) =>
    ledger.commit({ statements: [claimOnce(database, key(index), Date.now() + 60_000)], entries: [] }),
  )
  const ofCall = singleUse(claims).admit(proof('a'))
  const ofChange = singleUse(claims, 'change').admit(proof('b'))
  const told = await Promise.allSettled([ofCall, ofChange, ...calls])
  t.match(
    told[0],
    { status: 'rejected', reason: { reason: 'audit_unavailable' } },
    'for its caller to ask again: no check has failed',
  )
  t.match(told[1], { status: 'fulfilled' })
  t.equal(told.filter(({ status }) => status === 'rejected').length, 1 + LIMIT / 4)
  await t.rejects(async () => singleUse(claims, 'change').admit(proof('b')), refused('proof_invalid'))
})
