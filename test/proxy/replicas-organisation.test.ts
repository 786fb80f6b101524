import t from 'tap'
import { twoStages } from '../support/db/postgres/stages.ts'
import { ADMIN_SECRET } from '../support/gateway.ts'
import { eventually } from '../support/settled.ts'
import { atOrganisation, caOf, trusting } from '../support/wizard.ts'

t.test('a CA that one replica makes anew is used by the other, which enrolls by it', async (t) => {
  const { one, other } = await twoStages(t)
  const { send } = await atOrganisation(one)
  t.equal((await send({ org: 'initech', trust_domain: 'initech.example' })).status, 200)
  const ca = await caOf(one.url)
  t.not(ca, one.ca)
  t.equal(
    await eventually(
      () => caOf(other.url),
      (shown) => shown === ca,
    ),
    ca,
  )
  const known = trusting(other, ca)
  const { status, json } = await eventually(
    () =>
      known.call(null, 'POST', '/v1/admin/agents', {
        headers: { 'x-admin-secret': ADMIN_SECRET },
        body: { agent_name: 'bot', capabilities: ['llm.chat'] },
      }),
    (answer) => answer.status !== 503,
  )
  t.equal(status, 201)
  t.equal(json.agent_id, 'initech::bot')
  const bot = { id: json.agent_id, cert: json.cert_chain_pem, key: json.private_key_pem }
  for (const gateway of [one, other])
    t.equal((await trusting(gateway, ca).call(bot, 'GET', '/v1/models')).status, 200)
})
