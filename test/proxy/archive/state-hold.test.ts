import { pino } from 'pino'
import t from 'tap'
import { statesUpTo, textOfState } from '../../../db/ledger/tree/states.ts'
import { currentTree } from '../../../db/ledger/tree/store.ts'
import { recordState } from '../../../proxy/proofs/state-recorder.ts'
import { openArchivedLog } from '../../support/archive.ts'
import { databaseUrl } from '../../support/db/engine.ts'
import { changed } from '../../support/db/history.ts'
import { holdOf } from '../../support/loop-hold.ts'

const PRINCIPALS = 6_144
/** No input holds the loop for longer. ms. */
const MAX_HOLD_MS = 20

t.test('the state of a log with thousands of principals is made without holding the loop', async (t) => {
  const log = await openArchivedLog(t, await databaseUrl(t.testdir({})))
  const given = { ...log, log: pino({ level: 'silent' }) }
  const signal = new AbortController().signal
  const record = async (revision: number): Promise<void> => {
    const action = revision === 1 ? 'agent.created' : 'agent.capabilities_patched'
    for (let from = 0; from < PRINCIPALS; from += 256) {
      const some = Array.from({ length: 256 }, (_, n) => `acme::bot-${from + n}`)
      await log.ledger.commit({ entries: some.map((subject) => changed(action, revision, { subject })) })
    }
    await log.sealer.seal()
  }
  const stateAt = async (leaf: number) => {
    const { tree = 0 } = (await currentTree(log.database.kysely)) ?? {}
    return holdOf(() => recordState(given, { tree, leaf }, signal))
  }
  await record(1)
  const first = await stateAt(PRINCIPALS)
  t.ok(first.ownMs < MAX_HOLD_MS, `it was held for ${first.ownMs.toFixed(1)} ms`)
  await record(2)
  const second = await stateAt(2 * PRINCIPALS)
  t.ok(second.ownMs < MAX_HOLD_MS, `behind another, it was held for ${second.ownMs.toFixed(1)} ms`)
  const [stored] = await statesUpTo(log.database, second.value.tree, 2 * PRINCIPALS, 1)
  if (!stored) throw new Error('there is no state')
  t.ok((await textOfState(log.database, stored)).includes(`acme::bot-${PRINCIPALS - 2}`))
})
