import t from 'tap'
import {
  consumePeopleState,
  countPeopleStates,
  findPeopleState,
  type PeopleState,
  prunePeopleStates,
  putIdentity,
  putPeopleState,
  removeGrantStates,
  userOfIdentity,
} from '../../../db/people/states.ts'
import { opened } from '../../support/db/writer.ts'

const AT = Date.UTC(2026, 0, 1)

const code = (changes: Partial<PeopleState> = {}): PeopleState => ({
  ...{ kind: 'AuthorizationCode', idSha256: 'a'.repeat(64), grantId: 'grt_a', uid: null, userCode: null },
  ...{ payload: 'sealed', consumedAt: null, expiresAt: AT + 1_000 },
  ...changes,
})

t.test('a state is found until it expires, and used up once', async (t) => {
  const { db, run } = await opened(t)
  const find = (at: number) => findPeopleState(db, 'AuthorizationCode', 'id_sha256', code().idSha256, at)
  await run(putPeopleState(db, code()))
  t.strictSame(await find(AT), code())
  t.equal(await find(AT + 1_000), undefined)
  const consume = () => run(consumePeopleState(db, code(), 'used', AT + 5))
  t.same(await consume(), [1])
  t.strictSame(await find(AT), code({ payload: 'used', consumedAt: AT + 5 }))
  t.same(await consume(), [0], 'the unit of the second is rolled back')
})

t.test('the states of a grant go together, and those that have expired are forgotten', async (t) => {
  const { db, run } = await opened(t)
  const other = code({ kind: 'RefreshToken', idSha256: 'b'.repeat(64) })
  const late = code({ kind: 'Interaction', idSha256: 'c'.repeat(64), grantId: null, expiresAt: AT - 1 })
  const all = [code(), other, late].map((state) => putPeopleState(db, state))
  await run(...all, putIdentity(db, 'digest', 'acme::user::gone'))
  t.equal(await countPeopleStates(db, ['Interaction'], AT), 0)
  t.equal(await countPeopleStates(db, ['RefreshToken', 'AuthorizationCode'], AT), 2)
  await run(removeGrantStates(db, ['grt_a'], 'RefreshToken'))
  t.equal(await countPeopleStates(db, ['RefreshToken', 'AuthorizationCode'], AT), 1)
  await run(...prunePeopleStates(db, AT))
  const left = await db.kysely.selectFrom('people_states').select('kind').execute()
  t.same(left, [{ kind: 'AuthorizationCode' }])
  t.equal(await userOfIdentity(db, 'digest'), undefined, 'nor who had a user')
})
