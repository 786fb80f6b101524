import t from 'tap'
import {
  consumePeopleState,
  findPeopleState,
  openShares,
  type PeopleState,
  prunePeopleStates,
  putIdentity,
  putPeopleState,
  removeGrantStates,
  removeOldest,
  userOfIdentity,
} from '../../../db/people/states.ts'
import { opened } from '../../support/db/writer.ts'

const AT = Date.UTC(2026, 0, 1)

const code = (changes: Partial<PeopleState> = {}): PeopleState => ({
  ...{ kind: 'AuthorizationCode', idSha256: 'a'.repeat(64), grantId: 'grt_a', uid: null, userCode: null },
  ...{ sender: null, payload: 'sealed', consumedAt: null, expiresAt: AT + 1_000 },
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
  t.match(await openShares(db, ['Interaction'], null, AT), { total: 0, fullest: null })
  t.match(await openShares(db, ['RefreshToken', 'AuthorizationCode'], null, AT), { total: 2 })
  await run(removeGrantStates(db, ['grt_a'], 'RefreshToken'))
  t.match(await openShares(db, ['RefreshToken', 'AuthorizationCode'], null, AT), { total: 1 })
  await run(...prunePeopleStates(db, AT))
  const left = await db.kysely.selectFrom('people_states').select('kind').execute()
  t.same(left, [{ kind: 'AuthorizationCode' }])
  t.equal(await userOfIdentity(db, 'digest'), undefined, 'nor who had a user')
})

t.test('whoever has most loses its oldest, until all have equal shares', async (t) => {
  const { db, run } = await opened(t)
  const KINDS = ['Interaction']
  let count = 0
  const begin = async (sender: string) => {
    count += 1
    const idSha256 = count.toString(16).padStart(64, '0')
    const state = code({ kind: 'Interaction', idSha256, grantId: null, sender, expiresAt: AT + count })
    const { total, fullest } = await openShares(db, KINDS, sender, AT)
    const room = total < 60 ? [] : [removeOldest(db, KINDS, fullest, total - 59)]
    await run(...room, putPeopleState(db, state))
  }
  const agesOf = async (sender: string) => {
    const rows = db.kysely.selectFrom('people_states').select('expires_at').where('sender', '=', sender)
    return (await rows.execute()).map(({ expires_at: at }) => Number(at) - AT).sort((one, two) => one - two)
  }
  for (let nth = 0; nth < 70; nth += 1) await begin('a crowd')
  t.equal((await agesOf('a crowd')).length, 60, 'all, while nobody else wants any')
  for (let nth = 0; nth < 25; nth += 1) await begin('another crowd')
  t.equal((await agesOf('another crowd')).length, 25)
  for (let nth = 0; nth < 200; nth += 1) await begin('a stranger')
  const left = await Promise.all(['a crowd', 'another crowd', 'a stranger'].map(agesOf))
  t.same(
    left.map(({ length }) => length),
    [20, 20, 20],
  )
  t.same(
    left[1],
    Array.from({ length: 20 }, (_, nth) => 76 + nth),
    'the oldest have gone',
  )
  await begin('a person')
  for (let nth = 0; nth < 100; nth += 1) await begin('a stranger')
  t.equal((await agesOf('a person')).length, 1, 'somebody who has one keeps it')
  t.match(await openShares(db, KINDS, null, AT), { total: 60 })
})
