import fc from 'fast-check'
import t from 'tap'
import { ADMIN_CAPABILITIES } from '../../plugins/operators/capabilities.ts'
import { type Asking, askings, deciding, type Things } from '../support/two-people/asking.ts'
import { type Ask, Tally, twoPeopleStage } from '../support/two-people/stage.ts'

const GROUPS = 140
/** The groups after which things are put back where something can be done to them. */
const PUT_BACK = 14

await t.test(
  'docs/operators.md#two-people: nothing that one operator asks, in whatever order and at once, makes a change that takes two',
  async (t) => {
    const { things, as, mallory, machine, judged, stage } = await twoPeopleStage(t, [
      'grant',
      'tools',
      'operators',
    ])
    const alone = (await judged()).people.alone
    const before = (await stage.rows({ order: 'desc', limit: 1 }))[0]?.seq ?? 0
    const ask = as(mallory)
    const tally = new Tally()
    const seed = Date.now() % 2 ** 31
    t.comment(`seed ${seed}`)
    const every = askings({ ...things, certified: things.operators, secret: true })
    const group = fc.array(every, { minLength: 1, maxLength: 4 })
    const [groups = []] = fc.sample(fc.array(group, { minLength: GROUPS, maxLength: GROUPS }), {
      numRuns: 1,
      seed,
    })
    for (const [index, one] of groups.entries()) {
      // Twice what is asked once: copies come together.
      const copied = one.flatMap((asking) => (index % 3 === 0 ? [asking, asking] : [asking]))
      for (const answer of await Promise.all(copied.map(ask))) tally.count(answer)
      if (index % PUT_BACK === 0) await withdrawAll(machine)
    }
    t.comment(String(tally))
    for (const answer of ['202', '403 own_proposal', '409 two_people_required', '204', '409 conflict'])
      t.ok(tally.of(answer) > 0, `answered ${answer}`)
    const { people, differences } = await judged()
    t.same(people.faults, [])
    t.same([people.confirmed, people.alone], [0, alone])
    t.same(differences, [], 'the tables are what the ledger says')
    const made = (await stage.rows({ order: 'asc', limit: 1000 })).filter(
      ({ seq, status, principal_id: who }) => seq > before && status === 'success' && who === mallory.id,
    )
    t.same(
      made.filter((row) => people.kindsOf(row).length > 0).map(({ seq, action }) => `${seq} ${action}`),
      [],
    )
    const [bot] = things.agents
    const { json } = await machine('GET', `/v1/admin/agents/${bot}`)
    t.ok(['["llm.chat"]', '[]'].includes(JSON.stringify(json.capabilities)), 'it holds no more than before')
  },
)

const GRANTER = ['admin.read', 'admin.enroll', 'admin.grant']

await t.test(
  'docs/operators.md#two-people: of what several operators, the secret and the machine do at once, each change that takes two has two',
  async (t) => {
    const { things, as, mallory, bob, machine, judged, bySecret, byMachine } = await twoPeopleStage(t, [
      'grant',
      'tools',
      'operators',
    ])
    const askers: readonly Ask[] = [as(mallory), as(mallory), as(bob), as(bob), bySecret, byMachine]
    const tally = new Tally()
    const seed = Date.now() % 2 ** 31
    t.comment(`seed ${seed}`)
    const one = fc.record({
      who: fc.nat(askers.length - 1),
      asking: fc.oneof(
        { arbitrary: askings(things), weight: 4 },
        { arbitrary: deciding, weight: 3 },
        { arbitrary: shaking(things), weight: 1 },
      ),
    })
    const [groups = []] = fc.sample(
      fc.array(fc.array(one, { minLength: 1, maxLength: 5 }), { minLength: GROUPS, maxLength: GROUPS }),
      { numRuns: 1, seed },
    )
    const putBack = async (): Promise<void> => {
      await withdrawAll(machine)
      for (const { id } of [mallory, bob]) {
        await machine('POST', `/v1/admin/operators/${id}/reactivate`)
        await machine('PATCH', `/v1/admin/operators/${id}/capabilities`, { capabilities: ADMIN_CAPABILITIES })
      }
      for (const id of things.agents) await machine('POST', `/v1/admin/agents/${id}/reactivate`)
    }
    for (const [index, group] of groups.entries()) {
      const asked = group.map(({ who, asking }) => (askers[who] ?? byMachine)(asking))
      for (const answer of await Promise.all(asked)) tally.count(answer)
      if (index % PUT_BACK === 0) await putBack()
    }
    // What chance may have left out: changes made alone, and one that is confirmed.
    await putBack()
    const grant: Asking = {
      method: 'PATCH',
      path: `/v1/admin/agents/${things.agents[0]}/capabilities`,
      body: { capabilities: ['llm.chat'] },
    }
    // The histories may have made operators who could be the second one.
    const { operators } = (await machine('GET', '/v1/admin/operators')).json
    for (const { principal_id: id } of operators)
      if (id !== mallory.id) await machine('DELETE', `/v1/admin/operators/${id}`)
    for (let times = 0; times < 4; times += 1) t.equal((await as(mallory)(grant)).status, 200)
    await machine('POST', `/v1/admin/operators/${bob.id}/reactivate`)
    const { status, json: proposed } = await as(mallory)(grant)
    t.equal(status, 202)
    const path = `/v1/admin/proposals/${proposed.proposal_id}/confirm`
    t.equal((await as(bob)({ method: 'POST', path })).status, 200)
    t.comment(String(tally))
    const { people, differences } = await judged()
    t.comment(`${people.confirmed} confirmed, ${people.alone} alone`)
    t.same(people.faults, [])
    t.same(differences, [], 'the tables are what the ledger says')
    t.equal(tally.of('500 internal'), 0)
    t.ok(people.confirmed > 0, 'some were confirmed')
    t.ok(people.alone > 3, 'and some made alone, while there was nobody else')
  },
)

await t.test(
  'docs/operators.md#two-people: a change that overtakes the second person is made before they come, or waits, or is asked for again',
  async (t) => {
    const { things, as, mallory, bob, byMachine, judged } = await twoPeopleStage(t, ['grant'])
    const ask = as(mallory)
    const [bot = ''] = things.agents
    const grant: Asking = {
      method: 'PATCH',
      path: `/v1/admin/agents/${bot}/capabilities`,
      body: { capabilities: [] },
    }
    const tally = new Tally()
    const bobs = `/v1/admin/operators/${bob.id}`
    for (let round = 0; round < 30; round += 1) {
      t.equal((await byMachine({ method: 'DELETE', path: bobs })).status, 204)
      const asked = [grant, grant, grant, grant, grant].map(ask)
      const back = byMachine({ method: 'POST', path: `${bobs}/reactivate` })
      for (const answer of await Promise.all(asked)) tally.count(answer)
      t.equal((await back).status, 200)
    }
    t.comment(String(tally))
    const { people } = await judged()
    t.same(people.faults, [])
  },
)

/** Takes people out of service, and back, so that there is a second one now and then. */
function shaking({ operators: [mallory = '', bob = ''] }: Things): fc.Arbitrary<Asking> {
  return fc.constantFrom(
    { method: 'DELETE', path: `/v1/admin/operators/${bob}` },
    { method: 'POST', path: `/v1/admin/operators/${bob}/reactivate` },
    { method: 'PATCH', path: `/v1/admin/operators/${bob}/capabilities`, body: { capabilities: GRANTER } },
    { method: 'PATCH', path: `/v1/admin/operators/${mallory}/capabilities`, body: { capabilities: GRANTER } },
  )
}

/** Ends what is open, so that more can be proposed. */
async function withdrawAll(machine: Machine): Promise<void> {
  const { json } = await machine('GET', '/v1/admin/proposals?status=open&limit=999')
  for (const { id } of json.proposals) await machine('POST', `/v1/admin/proposals/${id}/decline`)
}

type Machine = Awaited<ReturnType<typeof twoPeopleStage>>['machine']
