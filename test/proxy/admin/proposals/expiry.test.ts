import t from 'tap'
import { openDatabase } from '../../../../db/engine.ts'
import { openLedger } from '../../../../db/ledger/record/ledger.ts'
import { findProposal } from '../../../../db/operators/proposals.ts'
import { proposalDetail } from '../../../../proxy/admin/conditions/propose.ts'
import { expireProposals } from '../../../../proxy/tasks/expire-proposals.ts'
import { leading } from '../../../support/db/leading.ts'
import { past } from '../../../support/db/raw.ts'
import { VERSION } from '../../../support/db/scratch-ledger.ts'
import { type TestGateway, testGateway } from '../../../support/gateway.ts'
import { as, operatorNamed } from '../../../support/operators.ts'

const TWO = { '70-operators.yaml': 'plugin: operators\ntwo_person: [grant]\n' }
const GRANTER = ['admin.read', 'admin.grant', 'admin.enroll']
const DAY_MS = 24 * 3_600_000
const DIGEST = 'cd'.repeat(32)

/** The database of a gateway that is closed, with the task as several of its processes have it. */
async function tasksOf(t: Tap, { settings }: TestGateway, clock: () => number) {
  const database = await openDatabase(settings.databaseUrl)
  const ledger = await openLedger({ database, version: VERSION })
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  await leading(database, 'expire-proposals')
  const task = () =>
    expireProposals({ database, ledger, configDigest: () => DIGEST, clock, detailOf: proposalDetail })
  return { database, one: task(), other: task() }
}

type Tap = { teardown: (end: () => Promise<void>) => void }

await t.test(
  'a proposal is open for 24 hours to the millisecond, whether or not the task has come by',
  async (t) => {
    let at = Date.now()
    const gateway = await testGateway(t, { files: TWO, clock: () => at })
    const alice = as(gateway, await operatorNamed(gateway, 'alice', GRANTER))
    const bob = as(gateway, await operatorNamed(gateway, 'bob', GRANTER))
    const bot = await gateway.enroll('bot', [])
    const path = `/v1/admin/agents/${bot.id}/capabilities`
    const [late, last] = [
      (await alice('PATCH', path, { capabilities: ['x.y'] })).json,
      (await alice('PATCH', path, { capabilities: ['llm.chat'] })).json,
    ]
    t.equal(last.expires_at, new Date(at + DAY_MS).toISOString())
    at += DAY_MS
    for (const verb of ['confirm', 'decline']) {
      const { status, json } = await bob('POST', `/v1/admin/proposals/${late.proposal_id}/${verb}`)
      t.equal(status, 409, verb)
      t.equal(json.message, 'This proposal has expired. Propose the change again.')
    }
    t.same((await bob('GET', `/v1/admin/agents/${bot.id}`)).json.capabilities, [])
    at -= 1
    t.equal((await bob('POST', `/v1/admin/proposals/${last.proposal_id}/confirm`)).status, 200)
  },
)

await t.test(
  'one that nobody has confirmed in time expires, with one row however many processes look',
  async (t) => {
    const began = Date.now()
    let at = began
    const gateway = await testGateway(t, { files: TWO, clock: () => at, editsTables: true })
    const alice = as(gateway, await operatorNamed(gateway, 'alice', GRANTER))
    const bob = as(gateway, await operatorNamed(gateway, 'bob', GRANTER))
    const propose = async (user_name: string): Promise<string> =>
      (await alice('POST', '/v1/admin/users', { user_name, capabilities: ['llm.chat'] })).json.proposal_id
    const [old, declined] = [await propose('ada'), await propose('zoe')]
    await bob('POST', `/v1/admin/proposals/${declined}/decline`)
    at += DAY_MS / 2
    const young = await propose('eve')
    await gateway.close(0)

    at = began + DAY_MS - 1
    const { database, one, other } = await tasksOf(t, gateway, () => at)
    const statuses = () =>
      Promise.all([old, declined, young].map(async (id) => (await findProposal(database, id))?.status))
    await one.run()
    t.same(await statuses(), ['open', 'declined', 'open'], 'not a millisecond before')
    at += 1
    await Promise.all([one.run(), other.run(), one.run(), other.run()])
    t.same(await statuses(), ['expired', 'declined', 'open'])
    t.match(await findProposal(database, old), {
      input: '{}',
      decided_by: null,
      decided_at: new Date(at).toISOString(),
    })
    t.notMatch('ada', 'what it asked for is gone')
    const rows = await gateway.rows({ action: 'proposal.expired' })
    t.match(rows, [{ principal_id: null, request_id: null, status: 'success', config_digest: DIGEST }])
    t.same(rows[0]?.detail, {
      proposal: old,
      change: 'user.created',
      capabilities: ['admin.enroll', 'admin.grant'],
      proposed_by: 'acme::operator::alice',
    })
  },
)

await t.test('more than a round takes expire in those that follow', async (t) => {
  let at = Date.now()
  const gateway = await testGateway(t, { files: TWO, clock: () => at, editsTables: true })
  const alice = as(gateway, await operatorNamed(gateway, 'alice', GRANTER))
  await operatorNamed(gateway, 'bob', GRANTER)
  const bot = await gateway.enroll('bot', [])
  const { json } = await alice('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities: [] })
  await gateway.close(0)
  const { database, one } = await tasksOf(t, gateway, () => at)
  const made = await findProposal(database, json.proposal_id)
  if (!made) throw new Error('it was not stored')
  const copies = `with recursive copies as (select 1 as n union all select n + 1 from copies where n < 149)`
  const same =
    'operation, action, capabilities, input, etag, proposed_by, via, status, created_at, expires_at'
  await past(
    gateway.settings.databaseUrl,
    `${copies} insert into proposals (proposal_id, ${same}) select 'prop_' || n, ${same} from proposals, copies`,
  )
  at += DAY_MS
  const expired = async () => (await gateway.rows({ action: 'proposal.expired', limit: 1000 })).length
  await one.run()
  t.equal(await expired(), 100)
  await one.run()
  t.equal(await expired(), 150)
  await one.run()
  t.equal(await expired(), 150)
})
