import t from 'tap'
import { insertPin, retirePins } from '../../../db/principals/pins.ts'
import { countPrincipals, findPrincipal, listPrincipals } from '../../../db/principals/read.ts'
import { PRINCIPAL_TABLES } from '../../../db/principals/tables.ts'
import {
  clearCandidateSet,
  insertPrincipal,
  reEnroll,
  setActive,
  setCandidate,
  setCapabilities,
  setDpopJkt,
  touchLastSeen,
  touchRevision,
} from '../../../db/principals/write.ts'
import type { PrincipalType } from '../../../db/schema.ts'
import { parseListCursor } from '../../../db/support/cursor.ts'
import { opened, TAKEN } from '../../support/db/writer.ts'

const TYPES: readonly PrincipalType[] = ['agent', 'user', 'workload']
const AT = Date.UTC(2026, 0, 1)
const LATER = AT + 1000

const newcomer = (type: PrincipalType, name: string, at = AT) => ({
  type,
  id: type === 'agent' ? `acme::${name}` : `acme::${type}::${name}`,
  ref: type === 'agent' ? `acme::${name}` : `acme::${type}::${name}`,
  name,
  displayName: null,
  capabilities: [],
  enrollmentMethod: 'minted' as const,
  spiffeId: null,
  dpopJkt: null,
  federated: false,
  at,
})

for (const type of TYPES) {
  const { id } = newcomer(type, 'bot')

  t.test(`§2.1 a new ${type} is found as it was written, active and without a certificate`, async (t) => {
    const { db, run } = await opened(t)
    const insert = insertPrincipal(db, {
      ...newcomer(type, 'bot'),
      displayName: 'The bot',
      capabilities: ['llm.chat', '__proto__'],
      enrollmentMethod: 'spiffe',
      spiffeId: 'spiffe://sallyport.local/acme/bot',
      dpopJkt: 'jkt',
      federated: true,
    })
    t.equal(insert.changes, 1)
    t.same(await run(insert), [1])
    t.strictSame(await findPrincipal(db, type, id), {
      principal_id: id,
      principal_ref: id,
      principal_type: type,
      name: 'bot',
      display_name: 'The bot',
      capabilities: ['llm.chat', '__proto__'],
      candidate: null,
      is_active: true,
      enrollment_method: 'spiffe',
      spiffe_id: 'spiffe://sallyport.local/acme/bot',
      cert_thumbprint: null,
      cert_not_after: null,
      previous_cert_until: null,
      cert_issuer: null,
      dpop_jkt: 'jkt',
      previous_dpop_jkt: null,
      previous_dpop_jkt_until: null,
      federated: true,
      federation_revision: 1,
      revision: 1,
      authority_revision: 1,
      created_at: '2026-01-01T00:00:00.000Z',
      updated_at: '2026-01-01T00:00:00.000Z',
      last_seen_at: null,
      created_by: null,
      changed_by: null,
      labels: {},
      capability_set: null,
    })
  })

  t.test(`a second ${type} of the same name is refused, and so is one of the same id`, async (t) => {
    const { db, run } = await opened(t)
    await run(insertPrincipal(db, newcomer(type, 'bot')))
    await t.rejects(run(insertPrincipal(db, { ...newcomer(type, 'bot'), id: 'acme::other' })), {
      code: TAKEN,
    })
    await t.rejects(run(insertPrincipal(db, { ...newcomer(type, 'other'), id })), { code: TAKEN })
    t.equal(await countPrincipals(db, type), 1)
  })

  t.test(`§4.4 the capability set of one ${type} is replaced whole`, async (t) => {
    const { db, run } = await opened(t)
    await run(insertPrincipal(db, { ...newcomer(type, 'bot'), capabilities: ['llm.chat', 'http.get'] }))
    await run(insertPrincipal(db, newcomer(type, 'other')))
    const set = setCapabilities(db, { type, id, revision: 1, capabilities: ['mcp.tools.list'], at: LATER })
    t.equal(set.changes, 1)
    t.same(await run(set), [1])
    t.match(await findPrincipal(db, type, id), {
      capabilities: ['mcp.tools.list'],
      revision: 2,
      created_at: '2026-01-01T00:00:00.000Z',
      updated_at: '2026-01-01T00:00:01.000Z',
    })
    t.equal((await findPrincipal(db, type, id))?.capabilities.length, 1)
    t.same((await findPrincipal(db, type, newcomer(type, 'other').id))?.capabilities, [])
  })

  t.test(`a set made from a stale read of the ${type} changes nothing`, async (t) => {
    const { db, run } = await opened(t)
    await run(insertPrincipal(db, newcomer(type, 'bot')))
    const grant = (capability: string) =>
      setCapabilities(db, { type, id, revision: 1, capabilities: [capability], at: LATER })
    t.same(await run(grant('llm.chat')), [1])
    t.same(await run(grant('http.get')), [0], 'the ledger rolls the unit back: it asks for 1')
    t.match(await findPrincipal(db, type, id), { capabilities: ['llm.chat'], revision: 2 })
  })

  t.test(`a ${type} is deactivated, twice too, and reactivated: its row is kept`, async (t) => {
    const { db, run } = await opened(t)
    await run(insertPrincipal(db, { ...newcomer(type, 'bot'), capabilities: ['llm.chat'] }))
    const off = setActive(db, { type, id, active: false, at: LATER })
    t.same(await run(off, off), [1, 1])
    t.match(await findPrincipal(db, type, id), { is_active: false, revision: 3, capabilities: ['llm.chat'] })
    await run(setActive(db, { type, id, active: true, at: LATER }))
    t.match(await findPrincipal(db, type, id), { is_active: true, revision: 4 })
  })

  t.test(`a DPoP key of a ${type} is registered, and replaced with and without grace`, async (t) => {
    const { db, run } = await opened(t)
    await run(insertPrincipal(db, newcomer(type, 'bot')))
    const keys = async () => {
      const { dpop_jkt, previous_dpop_jkt, previous_dpop_jkt_until } = await db.kysely
        .selectFrom(PRINCIPAL_TABLES[type].table)
        .selectAll()
        .executeTakeFirstOrThrow()
      return [dpop_jkt, previous_dpop_jkt, previous_dpop_jkt_until]
    }
    await run(setDpopJkt(db, { type, id, jkt: 'one', previous: null, graceUntil: LATER, at: LATER }))
    t.same(await keys(), ['one', null, null])
    await run(setDpopJkt(db, { type, id, jkt: 'two', previous: 'one', graceUntil: LATER, at: LATER }))
    t.same(await keys(), ['two', 'one', new Date(LATER).toISOString()])
    await run(setDpopJkt(db, { type, id, jkt: 'two', previous: 'two', graceUntil: LATER, at: LATER }))
    t.same(await keys(), ['two', null, null])
    await run(setDpopJkt(db, { type, id, jkt: 'three', previous: 'two', graceUntil: null, at: LATER }))
    t.same(await keys(), ['three', null, null])
    t.match(await findPrincipal(db, type, id), { dpop_jkt: 'three', revision: 5 })
  })

  t.test(`a ${type} is enrolled anew only once it was deactivated`, async (t) => {
    const { db, run } = await opened(t)
    await run(insertPrincipal(db, { ...newcomer(type, 'bot'), capabilities: ['llm.chat'] }))
    const { displayName, dpopJkt, federated, spiffeId } = newcomer(type, 'bot')
    const again = reEnroll(db, {
      ...{ type, id, displayName, dpopJkt, federated, spiffeId, at: LATER },
      capabilities: [],
      enrollmentMethod: 'byoca',
    })
    t.same(await run(again), [0])
    await run(setActive(db, { type, id, active: false, at: LATER }))
    t.same(await run(again), [1])
    t.match(await findPrincipal(db, type, id), {
      is_active: true,
      capabilities: [],
      enrollment_method: 'byoca',
    })
  })

  t.test(
    `a candidate set of a ${type} is no change of its authority, and counts from each change`,
    async (t) => {
      const { db, run } = await opened(t)
      await run(insertPrincipal(db, newcomer(type, 'bot')))
      const found = async () => {
        const record = await findPrincipal(db, type, id)
        return [record?.candidate, record?.revision, record?.authority_revision]
      }
      const put = setCandidate(db, { type, id, revision: 1, capabilities: ['llm.chat'], at: AT })
      t.same(await run(put), [1])
      t.same(await run(put), [0], 'from a stale read')
      t.same(await found(), [{ capabilities: ['llm.chat'], since: '2026-01-01T00:00:00.000Z' }, 2, 1])
      await run(setCapabilities(db, { type, id, revision: 2, capabilities: [], at: LATER }))
      t.same(await found(), [{ capabilities: ['llm.chat'], since: '2026-01-01T00:00:01.000Z' }, 3, 2])
      await run(clearCandidateSet(db, { type, id, at: LATER }))
      t.same(await found(), [null, 3, 2])
      await run(setCapabilities(db, { type, id, revision: 3, capabilities: [], at: LATER }))
      t.same(await found(), [null, 4, 3], 'who has none gets none')
      await run(
        setCandidate(db, { type, id, revision: 4, capabilities: ['x'], at: AT }),
        setActive(db, { type, id, active: false, at: LATER }),
      )
      const { displayName, dpopJkt, federated, spiffeId } = newcomer(type, 'bot')
      const anew = { type, id, displayName, dpopJkt, federated, spiffeId, at: LATER }
      await run(reEnroll(db, { ...anew, capabilities: [], enrollmentMethod: 'byoca' }))
      t.same(await found(), [null, 7, 5], 'nothing is left of who had the name before')
    },
  )

  t.test(`seeing a ${type} is no change of it; a change kept elsewhere is`, async (t) => {
    const { db, run } = await opened(t)
    await run(insertPrincipal(db, newcomer(type, 'bot')), touchLastSeen(db, { type, id, at: LATER }))
    t.match(await findPrincipal(db, type, id), {
      last_seen_at: '2026-01-01T00:00:01.000Z',
      updated_at: '2026-01-01T00:00:00.000Z',
      revision: 1,
    })
    await run(touchRevision(db, { type, id, at: LATER }))
    t.match(await findPrincipal(db, type, id), { updated_at: '2026-01-01T00:00:01.000Z', revision: 2 })
  })

  t.test(`writes to a ${type} that is not there change no row`, async (t) => {
    const { db, run } = await opened(t)
    const nobody = { type, id: 'acme::nobody', at: AT }
    const guarded = [
      setCapabilities(db, { ...nobody, revision: 1, capabilities: [] }),
      setActive(db, { ...nobody, active: false }),
      setDpopJkt(db, { ...nobody, jkt: 'x', previous: null, graceUntil: null }),
      touchRevision(db, nobody),
    ]
    t.same(await run(...guarded), [0, 0, 0, 0])
    t.same(
      guarded.map(({ changes }) => changes),
      [1, 1, 1, 1],
      'and so roll their unit back',
    )
    const seen = touchLastSeen(db, nobody)
    t.same(await run(seen), [0])
    t.notOk('changes' in seen)
  })

  t.test(`the ${type}s are listed newest first, page by page, each once`, async (t) => {
    const { db, run } = await opened(t)
    // Two of each instant: within one, the id decides.
    const names = Array.from({ length: 7 }, (_, index) => `n${index}`)
    await run(
      ...names.map((name, index) => insertPrincipal(db, newcomer(type, name, AT + Math.floor(index / 2)))),
    )
    const all = await listPrincipals(db, type)
    t.same(
      all.items.map(({ name }) => name),
      names.toReversed(),
    )
    t.equal(all.nextCursor, null)

    const seen: string[] = []
    let next: string | null = null
    do {
      const cursor = next === null ? undefined : parseListCursor(next)
      if (cursor === null) throw new Error('our own cursor was refused')
      const page = await listPrincipals(db, type, { limit: 3, cursor })
      t.ok(page.items.length <= 3)
      seen.push(...page.items.map(({ name }) => name))
      next = page.nextCursor
    } while (next !== null)
    t.same(seen, names.toReversed())
    t.equal((await listPrincipals(db, type, { limit: 7 })).nextCursor, null, 'a full last page is the last')
  })
}

t.test('§3 federation_revision counts every change of an agent, what it was seen doing aside', async (t) => {
  const { db, run } = await opened(t)
  for (const type of TYPES) {
    const one = newcomer(type, 'bot')
    const changes = [
      setCapabilities(db, { ...one, revision: 1, capabilities: ['llm.chat'] }),
      setActive(db, { ...one, active: false }),
      setActive(db, { ...one, active: true }),
      touchRevision(db, one),
    ]
    await run(insertPrincipal(db, one))
    for (const [index, change] of changes.entries()) {
      await run(change, touchLastSeen(db, one))
      const { federation_revision } = (await findPrincipal(db, type, one.id)) ?? {}
      t.equal(federation_revision, type === 'agent' ? index + 2 : 1, `${type} ${index}`)
    }
  }
})

t.test('§2.1 the three types do not mix', async (t) => {
  const { db, run } = await opened(t)
  await run(...TYPES.map((type) => insertPrincipal(db, { ...newcomer(type, 'bot'), id: 'acme::same' })))
  await run(setActive(db, { type: 'user', id: 'acme::same', active: false, at: LATER }))
  const active = await Promise.all(
    TYPES.map(async (type) => (await findPrincipal(db, type, 'acme::same'))?.is_active),
  )
  t.same(active, [true, false, true])
  t.same(await Promise.all(TYPES.map((type) => countPrincipals(db, type))), [1, 1, 1])
})

t.test('a principal shows the certificate that is current, once', async (t) => {
  const { db, run } = await opened(t)
  const agent = newcomer('agent', 'bot')
  const pin = (thumbprint: string, notAfter: number) =>
    insertPin(db, { thumbprint, type: 'agent', id: agent.id, notBefore: AT, notAfter, at: AT })
  await run(insertPrincipal(db, agent), pin('aa', AT))
  await run(retirePins(db, { type: 'agent', id: agent.id, graceUntil: LATER }), pin('bb', LATER))
  const { items } = await listPrincipals(db, 'agent')
  t.equal(items.length, 1)
  t.match(items, [{ cert_thumbprint: 'bb', cert_not_after: '2026-01-01T00:00:01.000Z' }])
  t.match(await findPrincipal(db, 'agent', agent.id), { cert_thumbprint: 'bb' })
})

t.test('an id is a value, never SQL', async (t) => {
  const { db, run } = await opened(t)
  await run(insertPrincipal(db, newcomer('agent', 'bot')))
  t.equal(await findPrincipal(db, 'agent', "' or '1' = '1"), undefined)
  t.same(await run(setActive(db, { type: 'agent', id: "' or '1' = '1", active: false, at: AT })), [0])
})
