import t from 'tap'
import {
  findGrant,
  grantLookup,
  grantNotEnded,
  grantsOf,
  insertGrant,
  newGrantId,
  type PeopleGrant,
  removeGrants,
} from '../../../db/people/grants.ts'
import { insertPrincipal, setActive } from '../../../db/principals/write.ts'
import { type Opened, opened, TAKEN } from '../../support/db/writer.ts'

const AT = Date.UTC(2026, 0, 1)
const ALICE = 'acme::user::alice'

const user = ({ db }: Opened) =>
  insertPrincipal(db, {
    ...{ type: 'user', id: ALICE, ref: 'usr_alice', name: 'alice', displayName: null },
    ...{ capabilities: ['llm.chat'], enrollmentMethod: 'oidc', spiffeId: null, dpopJkt: null },
    ...{ federated: false, at: AT },
  })

const grant = (changes: Partial<PeopleGrant> = {}): PeopleGrant => ({
  id: newGrantId(),
  principalId: ALICE,
  client: { host: 'claude.ai', idSha256: 'a'.repeat(64), kind: 'cimd' },
  kind: 'code',
  scope: null,
  resource: 'https://people.example/v1/mcp',
  bound: 'none',
  jkt: null,
  amr: ['pwd', 'otp'],
  issuedAt: AT,
  expiresAt: AT + 1_000,
  ...changes,
})

t.test('a grant leads to its user as the tables say it now, and is as it was issued', async (t) => {
  const at = await opened(t)
  const lookup = grantLookup(at.db)
  const key = grant({ bound: 'key', jkt: 'J'.repeat(43), scope: ['mcp.tools.list', 'files.use'] })
  await at.run(user(at), insertGrant(at.db, key))
  const principal = {
    ...{ principal_id: ALICE, principal_ref: 'usr_alice', principal_type: 'user', candidate: null },
    ...{ capabilities: ['llm.chat'], is_active: true, authority_revision: 1 },
  }
  t.strictSame(await lookup(key.id), { grant: key, principal })
  t.strictSame(await findGrant(at.db, key.id), key)
  await at.run(setActive(at.db, { type: 'user', id: ALICE, at: AT, active: false }))
  t.match(await lookup(key.id), { principal: { is_active: false, authority_revision: 2 } })
  t.equal(await lookup(grant().id), undefined)
})

t.test('the grants of a user are listed, the newest first; one that is removed is none', async (t) => {
  const at = await opened(t)
  const [old, young] = [grant(), grant({ issuedAt: AT + 1 })]
  await at.run(user(at), insertGrant(at.db, old), insertGrant(at.db, young))
  t.strictSame(await grantsOf(at.db, ALICE), [young, old])
  await at.run(removeGrants(at.db, [old.id]))
  t.strictSame(await grantsOf(at.db, ALICE), [young])
  t.equal(await findGrant(at.db, old.id), undefined)
  t.equal(await grantLookup(at.db)(old.id), undefined)
})

t.test('a grant that somebody else has ended is not ended twice', async (t) => {
  const at = await opened(t)
  const one = grant()
  await at.run(user(at), insertGrant(at.db, one), removeGrants(at.db, [one.id]))
  const again = removeGrants(at.db, [one.id])
  t.strictSame([await at.run(again), again.changes], [[0], 1], 'so its unit is rolled back')
})

t.test('one id is one grant, and an assertion names it', async (t) => {
  const at = await opened(t)
  const one = grant()
  await at.run(user(at), insertGrant(at.db, one))
  await t.rejects(at.run(insertGrant(at.db, one)), { code: TAKEN })
  const stands = grantNotEnded(at.db)
  t.strictSame([await at.holds(stands(one.id)), await at.holds(stands('grt_x'))], [true, false])
})

t.test('a grant whose user is gone leads nowhere', async (t) => {
  const at = await opened(t)
  const one = grant()
  await at.run(insertGrant(at.db, one))
  t.equal(await grantLookup(at.db)(one.id), undefined)
})
