import t from 'tap'
import { eventually } from '../../support/settled.ts'
import { atOrganisation, caOf, trusting } from '../../support/wizard.ts'
import { atEachWorker, startWorkers, stopped } from '../../support/workers.ts'

await t.test('a CA that one worker makes anew is used by all of them at once', async (t) => {
  const gateway = await startWorkers(t, { engine: 'sqlite' })
  const { send } = await atOrganisation(gateway)
  t.equal((await send({ org: 'initech', trust_domain: 'initech.example' })).status, 200)
  const shown = async () => new Set(await Promise.all([1, 2, 3, 4].map(() => caOf(gateway.url))))
  const [ca = ''] = await eventually(shown, (cas) => cas.size === 1 && !cas.has(gateway.ca))
  t.not(ca, gateway.ca)
  const known = { ...gateway, ...trusting(gateway, ca) }
  const answers = await atEachWorker(known, null, 'GET', '/health')
  t.same(new Set(answers.map(({ status }) => status)), new Set([200]), 'each shows a certificate of it')
  const rows = await stopped(t, gateway)
  t.equal(rows.filter(({ action }) => action === 'service.organisation_set').length, 1)
})
