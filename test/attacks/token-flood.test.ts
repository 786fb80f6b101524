import t from 'tap'
import { NO_NOTICES } from '../../db/support/notices.ts'
import { tokenQuota } from '../../proxy/auth/token-quota.ts'
import { tokenFor } from '../support/dpop.ts'
import { flood } from '../support/flood.ts'
import { testGateway } from '../support/gateway.ts'

/** The tokens of one principal in a minute. */
const MOST = 600

await t.test(
  'D3: an agent that may do nothing does not fill the ledger with the rows of its tokens',
  async (t) => {
    const clocks = { wall: Date.now(), passed: 0 }
    const gateway = await testGateway(t, { clock: () => clocks.wall, monotonic: () => clocks.passed })
    const nobody = await gateway.enroll('nobody', [])
    const other = await gateway.enroll('other', ['llm.chat'])
    const asked = {
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: 'grant_type=client_credentials',
    }
    const answers = await flood(
      gateway,
      nobody,
      MOST + 20,
      (agent) => () => gateway.call(nobody, 'POST', '/v1/auth/token', { ...asked, agent }),
    )
    const statuses = [200, 429].map((wanted) => answers.filter(({ status }) => status === wanted).length)
    t.strictSame(statuses, [MOST, 20])
    t.match(
      answers.find(({ status }) => status === 429),
      {
        headers: { 'retry-after': '60' },
        json: { error: 'temporarily_unavailable', reason: 'token_throttled' },
      },
    )
    t.equal((await tokenFor(gateway, other, null)).status, 200, 'others have theirs')
    clocks.wall += 120_000
    t.equal((await tokenFor(gateway, nobody, null)).status, 429, 'no time has passed')
    clocks.passed += 60_000
    t.equal((await tokenFor(gateway, nobody, null)).status, 200)
    const rows = await gateway.rows({ action: 'token.issued', principal: nobody.id, limit: 1000 })
    t.equal(rows.length, MOST + 1)
  },
)

await t.test('D3: while the disk is low there are fewer', (t) => {
  let low = true
  const quota = tokenQuota(
    () => 0,
    () => low,
    NO_NOTICES,
  )
  const taken = Array.from({ length: 100 }, () => quota.consume('nobody'))
  t.equal(taken.filter((waitS) => waitS === 0).length, 60)
  t.equal(quota.consume('other'), 0)
  low = false
  t.equal(quota.consume('nobody'), 0)
  t.end()
})
