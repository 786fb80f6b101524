import t from 'tap'
import { insertPin, pinnedPrincipal, pinnedQuery, retirePins } from '../../../db/principals/pins.ts'
import { insertPrincipal, setActive, setCapabilities, setDpopJkt } from '../../../db/principals/write.ts'
import type { PrincipalType } from '../../../db/schema.ts'
import { skipWithoutFile } from '../../support/db/engine.ts'
import { type Opened, opened, planOf, TAKEN } from '../../support/db/writer.ts'

const TYPES: readonly PrincipalType[] = ['agent', 'user', 'workload']
const AT = Date.UTC(2026, 0, 1)
const DAY = 86_400_000
const UNTIL = '2026-01-03T00:00:00.000Z'
const ID = 'acme::bot'

/** A principal of that type under one id, so that a lookup that mixed the types would show. */
const principal = (type: PrincipalType) => ({
  type,
  id: ID,
  ref: `ref-${type}`,
  name: 'bot',
  displayName: null,
  capabilities: [`is.${type}`],
  enrollmentMethod: 'minted' as const,
  spiffeId: null,
  dpopJkt: null,
  federated: false,
  at: AT,
})

const pin = ({ db }: Opened, thumbprint: string, type: PrincipalType = 'agent') =>
  insertPin(db, { thumbprint, type, id: ID, notBefore: AT, notAfter: AT + DAY, at: AT })

t.test('§5.2 a thumbprint leads to its principal, whatever the type, and to that one alone', async (t) => {
  const at = await opened(t)
  const lookup = pinnedPrincipal(at.db)
  for (const type of TYPES) await at.run(insertPrincipal(at.db, principal(type)), pin(at, `of-${type}`, type))
  for (const type of TYPES) {
    t.strictSame(await lookup(`of-${type}`), {
      principal_id: ID,
      principal_type: type,
      principal_ref: type === 'user' ? 'ref-user' : ID,
      capabilities: [`is.${type}`],
      candidate: null,
      is_active: true,
      dpop_jkt: null,
      previous_dpop_jkt: null,
      previous_dpop_jkt_until: null,
      authority_revision: 1,
      is_current: true,
      grace_until: null,
    })
  }
})

t.test('§5.2 a thumbprint that is not pinned leads nowhere', async (t) => {
  const at = await opened(t)
  const lookup = pinnedPrincipal(at.db)
  await at.run(insertPrincipal(at.db, principal('agent')), pin(at, 'aa'))
  for (const thumbprint of ['', 'AA', 'a', 'aaa', '%', "' or 1 = 1 --"])
    t.equal(await lookup(thumbprint), undefined, thumbprint)
})

t.test('a pin whose principal is not there leads nowhere', async (t) => {
  const at = await opened(t)
  await at.run(insertPrincipal(at.db, principal('user')), pin(at, 'aa', 'agent'))
  t.equal(await pinnedPrincipal(at.db)('aa'), undefined)
})

t.test('§3 what changes on a principal holds on the next lookup', async (t) => {
  const at = await opened(t)
  const { db, run } = at
  const lookup = pinnedPrincipal(db)
  await run(insertPrincipal(db, principal('agent')), pin(at, 'aa'))
  t.match(await lookup('aa'), { capabilities: ['is.agent'], is_active: true, dpop_jkt: null })
  await run(
    setCapabilities(db, { type: 'agent', id: ID, revision: 1, capabilities: [], at: AT }),
    setActive(db, { type: 'agent', id: ID, active: false, at: AT }),
    setDpopJkt(db, { type: 'agent', id: ID, jkt: 'thumb', previous: null, graceUntil: null, at: AT }),
  )
  t.strictSame(await lookup('aa'), {
    principal_id: ID,
    principal_ref: ID,
    principal_type: 'agent',
    capabilities: [],
    candidate: null,
    is_active: false,
    dpop_jkt: 'thumb',
    previous_dpop_jkt: null,
    previous_dpop_jkt_until: null,
    authority_revision: 4,
    is_current: true,
    grace_until: null,
  })
})

t.test('a stored capability set that breaks the rules grants nothing: the lookup throws', async (t) => {
  const at = await opened(t)
  await at.run(insertPrincipal(at.db, principal('agent')), pin(at, 'aa'))
  await at.run({ sql: `update internal_agents set capabilities = '"llm.chat"'`, parameters: [] })
  await t.rejects(async () => pinnedPrincipal(at.db)('aa'), {
    message: /^a stored capability set breaks the rules/,
  })
})

t.test('after a rotation the previous pin is honoured until its grace ends', async (t) => {
  const at = await opened(t)
  const lookup = pinnedPrincipal(at.db)
  await at.run(insertPrincipal(at.db, principal('agent')), pin(at, 'old'))
  const retire = retirePins(at.db, { type: 'agent', id: ID, graceUntil: AT + 2 * DAY })
  t.notOk('changes' in retire, 'a principal without a pin may be given its first')
  t.same(await at.run(retire, pin(at, 'new')), [1, 1])
  t.match(await lookup('old'), { is_current: false, grace_until: UNTIL })
  t.match(await lookup('new'), { is_current: true, grace_until: null })
})

for (const graceUntil of [null, 0]) {
  t.test(`a rotation with grace ${graceUntil} ends every earlier pin at once`, async (t) => {
    const at = await opened(t)
    const lookup = pinnedPrincipal(at.db)
    await at.run(insertPrincipal(at.db, principal('agent')), pin(at, 'first'))
    await at.run(retirePins(at.db, { type: 'agent', id: ID, graceUntil: AT + 2 * DAY }), pin(at, 'second'))
    await at.run(retirePins(at.db, { type: 'agent', id: ID, graceUntil }), pin(at, 'third'))
    for (const old of ['first', 'second'])
      t.match(await lookup(old), { is_current: false, grace_until: null })
    t.match(await lookup('third'), { is_current: true })
  })
}

t.test('a second rotation within grace does not lengthen the first', async (t) => {
  const at = await opened(t)
  await at.run(insertPrincipal(at.db, principal('agent')), pin(at, 'first'))
  await at.run(retirePins(at.db, { type: 'agent', id: ID, graceUntil: AT + 2 * DAY }), pin(at, 'second'))
  await at.run(retirePins(at.db, { type: 'agent', id: ID, graceUntil: AT + 9 * DAY }), pin(at, 'third'))
  t.match(await pinnedPrincipal(at.db)('first'), { grace_until: UNTIL })
})

t.test('retiring the pins of one principal leaves those of every other', async (t) => {
  const at = await opened(t)
  const other = { ...principal('agent'), id: 'acme::other', name: 'other' }
  await at.run(...[principal('agent'), principal('user'), other].map((one) => insertPrincipal(at.db, one)))
  await at.run(pin(at, 'agent', 'agent'), pin(at, 'user', 'user'))
  await at.run(insertPin(at.db, { ...other, thumbprint: 'other', notBefore: AT, notAfter: AT + DAY }))
  for (const graceUntil of [AT + DAY, null]) {
    t.same(await at.run(retirePins(at.db, { type: 'agent', id: ID, graceUntil })), [1])
    t.match(await pinnedPrincipal(at.db)('user'), { is_current: true, principal_type: 'user' })
    t.match(await pinnedPrincipal(at.db)('other'), { is_current: true, principal_id: 'acme::other' })
  }
})

t.test('a certificate is pinned once, and a principal has one current pin', async (t) => {
  const at = await opened(t)
  await at.run(
    insertPrincipal(at.db, principal('agent')),
    insertPrincipal(at.db, principal('user')),
    pin(at, 'aa'),
  )
  await t.rejects(at.run(pin(at, 'aa', 'user')), { code: TAKEN }, 'to nobody else')
  await t.rejects(at.run(pin(at, 'bb')), { code: TAKEN }, 'not beside a current one')
  await at.run(retirePins(at.db, { type: 'agent', id: ID, graceUntil: null }))
  await t.rejects(at.run(pin(at, 'aa')), { code: TAKEN }, 'not again')
})

t.test(
  'the question of every request reads no table from end to end',
  { skip: skipWithoutFile },
  async (t) => {
    const { db } = await opened(t)
    const plan = planOf(db.file, pinnedQuery(db).compile().sql, 'aa').map(({ detail }) => detail)
    t.equal(plan.filter((step) => step.startsWith('SEARCH ')).length, 5, plan.join('; '))
    t.notOk(
      plan.some((step) => /\bSCAN\b|TEMP B-TREE|AUTOMATIC/.test(step)),
      plan.join('; '),
    )
  },
)

t.test('its one parameter is the thumbprint', async (t) => {
  const { db } = await opened(t)
  t.same(pinnedQuery(db).compile().parameters, [''])
})
