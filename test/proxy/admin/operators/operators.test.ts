import t from 'tap'
import { testGateway } from '../../../support/gateway.ts'
import { as, operatorNamed } from '../../../support/operators.ts'

await t.test(
  'two operators with different sets work side by side, and each row names the right one',
  async (t) => {
    const gateway = await testGateway(t)
    const alice = as(
      gateway,
      await operatorNamed(gateway, 'alice', ['admin.read', 'admin.enroll', 'admin.grant']),
    )
    const bob = as(gateway, await operatorNamed(gateway, 'bob', ['admin.read', 'admin.tools']))

    const made = await alice('POST', '/v1/admin/users', { user_name: 'ada', capabilities: ['llm.chat'] })
    t.equal(made.status, 201, made.text)
    t.match(made.json, { created_by: 'acme::operator::alice', changed_by: 'acme::operator::alice' })
    const refused = await bob('POST', '/v1/admin/users', { user_name: 'eve' })
    t.equal(refused.status, 403)
    t.match(refused.json, { detail: { required_capability: 'admin.enroll' } })
    t.equal((await bob('GET', '/v1/admin/users')).json.total, 1)
    const [row] = await gateway.rows({ action: 'user.created', status: 'success' })
    t.match(row, {
      principal_id: 'acme::operator::alice',
      principal_type: 'operator',
      detail: { via: 'certificate' },
    })
    const [denied] = await gateway.rows({ action: 'user.created', status: 'denied' })
    t.match(denied, {
      principal_id: 'acme::operator::bob',
      detail: { via: 'certificate', reason: 'capability_missing', required_capability: 'admin.enroll' },
    })
  },
)
