import t, { type Test } from 'tap'
import type { Database } from '../../db/database.ts'
import { openDatabase } from '../../db/engine.ts'
import { type Ledger, openLedger } from '../../db/ledger/record/ledger.ts'
import { deleteSubjectKeys, insertSubjectKey } from '../../db/principals/subject-keys.ts'
import {
  deleteStates,
  knownStates,
  nextWithStates,
  pruneStates,
  rememberStates,
} from '../../db/provider-states.ts'
import { commitmentsBy } from '../../plugins/pin/pin.ts'
import { StateMemory } from '../../proxy/llm/state/memory.ts'
import { pruneProviderStates } from '../../proxy/tasks/prune.ts'
import { databaseUrl } from '../support/db/engine.ts'
import { eventually } from '../support/settled.ts'

const AT = Date.UTC(2026, 0, 1)
const DAY_MS = 86_400_000
const [ALICE, BOB] = ['acme::alice', 'acme::bob']

async function opened(t: Test): Promise<{ database: Database; ledger: Ledger }> {
  const database = await openDatabase(await databaseUrl(t.testdir()))
  const ledger = await openLedger({ database, version: '0' })
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  const statements = [ALICE, BOB].map((id) =>
    insertSubjectKey(database, { ref: id, type: 'agent', id, sealed: 'x' }),
  )
  await ledger.commit({ statements, entries: [] })
  return { database, ledger }
}

const states = (ref: string, count: number, expiresAt = (_place: number) => AT) =>
  Array.from({ length: count }, (_, place) => ({ ref, digest: `d${place}`, expiresAt: expiresAt(place) }))

const digestsOf = async ({ kysely }: Database, ref: string): Promise<readonly string[]> => {
  const rows = await kysely
    .selectFrom('provider_states')
    .select('digest')
    .where('principal_ref', '=', ref)
    .execute()
  return rows.map(({ digest }) => digest).toSorted()
}

await t.test('what is remembered is one principal’s, until it expires', async (t) => {
  const { database, ledger } = await opened(t)
  const remember = (...all: Parameters<typeof rememberStates>[1][]) =>
    ledger.commit({ statements: all.flatMap((some) => rememberStates(database, some)), entries: [] })
  await remember(states(ALICE, 450))
  t.equal((await digestsOf(database, ALICE)).length, 450, 'more than one statement takes')
  const all = states(ALICE, 451).map(({ digest }) => digest)
  t.equal((await knownStates(database, ALICE, all, AT - 1)).size, 450)
  t.equal((await knownStates(database, ALICE, all, AT)).size, 0, 'expired')
  t.equal((await knownStates(database, BOB, all, AT - 1)).size, 0, 'another’s')
  await remember(states(ALICE, 1, () => AT + 9))
  t.same([...(await knownStates(database, ALICE, all, AT))], ['d0'], 'stated again')
  await remember(states('acme::nobody', 3))
  t.same(await digestsOf(database, 'acme::nobody'), [], 'without a key nobody could say whose it is')
})

await t.test(
  'a principal’s oldest ids go before there are too many, and those that have expired',
  async (t) => {
    const { database, ledger } = await opened(t)
    const rows = [...states(ALICE, 5, (place) => AT + place), ...states(BOB, 9, (place) => AT + place)]
    await ledger.commit({ statements: rememberStates(database, rows), entries: [] })
    await ledger.commit({ statements: pruneStates(database, ALICE, AT, 3), entries: [] })
    t.same(await digestsOf(database, ALICE), ['d2', 'd3', 'd4'])
    await ledger.commit({ statements: pruneStates(database, ALICE, AT + 3, 3), entries: [] })
    t.same(await digestsOf(database, ALICE), ['d4'])
    t.equal((await digestsOf(database, BOB)).length, 9)
    t.equal(await nextWithStates(database, ''), ALICE)
    t.equal(await nextWithStates(database, ALICE), BOB)
    t.equal(await nextWithStates(database, BOB), null)

    const task = pruneProviderStates({ database, ledger, clock: () => AT + 100 })
    // On PostgreSQL it leads a moment later.
    const left = async (): Promise<string | null> => {
      await task.run()
      return nextWithStates(database, '')
    }
    t.equal(await eventually(left, (ref) => ref === null), null)
    t.same(
      [await digestsOf(database, ALICE), await digestsOf(database, BOB)],
      [[], []],
      'one after the other',
    )
  },
)

await t.test('an erased principal’s ids go with its keys', async (t) => {
  const { database, ledger } = await opened(t)
  const rows = [...states(ALICE, 2), ...states(BOB, 2)]
  await ledger.commit({ statements: rememberStates(database, rows), entries: [] })
  const gone = [deleteStates(database, 'agent', ALICE), deleteSubjectKeys(database, 'agent', ALICE)]
  await ledger.commit({ statements: gone, entries: [] })
  t.same(await digestsOf(database, ALICE), [])
  t.equal((await digestsOf(database, BOB)).length, 2)
})

const owner = (ref: string, byte = 1) => ({
  ref,
  commitments: commitmentsBy(Buffer.alloc(32, byte), 'req_1'),
})

await t.test('an id is known at once, and to every process once it is written', async (t) => {
  const { database, ledger } = await opened(t)
  const [here, there] = [1, 2].map(() => new StateMemory({ database, ledger, clock: () => AT }))
  here?.note(owner(ALICE), 'openai', ['resp_1', 'resp_1', 'resp_2'])
  t.same([...((await here?.known(owner(ALICE), 'openai', ['resp_1', 'resp_9'])) ?? [])], ['resp_1'])
  await here?.flush()
  const known = async (...[who, provider, ids]: Parameters<StateMemory['known']>) => [
    ...((await there?.known(who, provider, ids)) ?? []),
  ]
  t.same(await known(owner(ALICE), 'openai', ['resp_2', 'resp_1']), ['resp_1', 'resp_2'])
  t.same(await known(owner(BOB), 'openai', ['resp_1']), [], 'another principal')
  t.same(await known(owner(ALICE, 2), 'openai', ['resp_1']), [], 'another key')
  t.same(await known(owner(ALICE), 'azure', ['resp_1']), [], 'another provider')
  const [digest = ''] = await digestsOf(database, ALICE)
  t.match(digest, /^[0-9a-f]{32}$/)
  t.equal((await digestsOf(database, ALICE)).length, 2)
  t.equal((await knownStates(database, ALICE, [digest], AT + 60 * DAY_MS)).size, 0, 'for sixty days')
})

await t.test('what the ledger does not take waits, and is written later', async (t) => {
  const { database, ledger } = await opened(t)
  let isFailing = true
  let asked = 0
  const submit: Ledger['submit'] = (unit, done) => {
    asked += 1
    if (isFailing) process.nextTick(done, new Error('away'), [])
    else ledger.submit(unit, done)
  }
  const memory = new StateMemory({ database, ledger: { submit }, clock: () => AT })
  for (let round = 0; round < 25; round += 1)
    memory.note(
      owner(ALICE),
      'openai',
      Array.from({ length: 1_000 }, (_, place) => `resp_${round}_${place}`),
    )
  await memory.flush()
  t.equal(asked, 1, 'the ledger is not asked again for each')
  isFailing = false
  memory.note(owner(ALICE), 'openai', ['resp_last'])
  t.equal(asked, 1, 'the task alone tries again')
  await memory.flush()
  t.equal((await digestsOf(database, ALICE)).length, 20_000, 'of too many, the oldest are not written')
  t.equal((await memory.known(owner(ALICE), 'openai', ['resp_last'])).size, 1)
})
