import t from 'tap'
import { openDatabase } from '../../db/engine.ts'
import { openLedger } from '../../db/ledger/record/ledger.ts'
import { proposalDetail } from '../../proxy/admin/conditions/propose.ts'
import { expireProposals } from '../../proxy/tasks/expire-proposals.ts'
import { twoStages } from '../support/db/postgres/stages.ts'
import { VERSION } from '../support/db/scratch-ledger.ts'
import { as, operatorNamed, ownerOnTheMachine } from '../support/operators.ts'
import { eventually } from '../support/settled.ts'

const files = { '70-operators.yaml': 'plugin: operators\ntwo_person: [grant]\n' }
const GRANTER = ['admin.read', 'admin.grant', 'admin.enroll']

t.test('what is proposed at one replica is confirmed at the other, once', async (t) => {
  const { one, other } = await twoStages(t, { files })
  const alice = await operatorNamed(one, 'alice', GRANTER)
  const bob = await operatorNamed(other, 'bob', GRANTER)
  const bot = await one.enroll('bot', [])
  const path = `/v1/admin/agents/${bot.id}/capabilities`
  for (let round = 0; round < 5; round += 1) {
    const capabilities = [`tool.n${round}`]
    const proposed = await as(one, alice)('PATCH', path, { capabilities })
    t.equal(proposed.status, 202, proposed.text)
    const confirm = `/v1/admin/proposals/${proposed.json.proposal_id}/confirm`
    t.equal((await as(other, alice)('POST', confirm)).json.reason, 'own_proposal', 'whoever it asks')
    const answers = await Promise.all(
      [other, one, other, one].map((replica) => as(replica, bob)('POST', confirm)),
    )
    t.same(
      answers.map(({ status }) => status).toSorted((a, b) => a - b),
      [200, 409, 409, 409],
      answers.map(({ text }) => text).join('\n'),
    )
    t.same((await one.admin('GET', `/v1/admin/agents/${bot.id}`)).json.capabilities, capabilities)
  }
  t.equal((await one.rows({ action: 'agent.capabilities_patched' })).length, 5)
  t.equal((await one.rows({ action: 'proposal.confirmed', status: 'success' })).length, 5)
})

t.test('the second person counts for both replicas from the moment that one has stored it', async (t) => {
  const { one, other } = await twoStages(t, { files })
  const alice = as(one, await operatorNamed(one, 'alice', GRANTER))
  const { id } = await ownerOnTheMachine(other, 'bob')
  const bot = await one.enroll('bot', [])
  const grant = (n: number) =>
    alice('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities: [`tool.n${n}`] })
  for (let round = 0; round < 8; round += 1) {
    t.equal((await other.admin('DELETE', `/v1/admin/operators/${id}`)).status, 204)
    const asked = [grant(1), grant(2), grant(3)]
    const back = await other.admin('POST', `/v1/admin/operators/${id}/reactivate`)
    t.equal(back.status, 200)
    t.equal((await grant(0)).status, 202, 'who asks after it waits')
    for (const { status, text } of await Promise.all(asked)) t.ok([200, 202, 503].includes(status), text)
  }
})

t.test('a proposal expires once, whichever replica sees to it', async (t) => {
  const { url, one, other } = await twoStages(t, { files, editsTables: true })
  const alice = as(one, await operatorNamed(one, 'alice', GRANTER))
  await operatorNamed(other, 'bob', GRANTER)
  const bot = await one.enroll('bot', [])
  const path = `/v1/admin/agents/${bot.id}/capabilities`
  const made = []
  for (let n = 0; n < 5; n += 1)
    made.push((await alice('PATCH', path, { capabilities: [] })).json.proposal_id)
  const at = Date.now() + 25 * 3_600_000
  const replicas = await Promise.all(
    [1, 2].map(async () => {
      const database = await openDatabase(url)
      const ledger = await openLedger({ database, version: VERSION })
      t.teardown(async () => {
        await ledger.close()
        await database.close()
      })
      return {
        database,
        ledger,
        configDigest: () => 'cd'.repeat(32),
        clock: () => at,
        detailOf: proposalDetail,
      }
    }),
  )
  await Promise.all([one.close(0), other.close(0)])
  const leaders = () => replicas.filter(({ database }) => database.leads('expire-proposals')).length
  t.equal(await eventually(leaders, (count) => count > 0), 1)
  await Promise.all([...replicas, ...replicas].map((replica) => expireProposals(replica).run()))
  const rows = await one.rows({ action: 'proposal.expired' })
  t.equal(rows.length, made.length)
  t.same(new Set(rows.map(({ detail }) => detail.proposal)), new Set(made))
})
