import t from 'tap'
import { timestamp } from '../../../../db/support/statement.ts'
import { past } from '../../../support/db/raw.ts'
import { testGateway } from '../../../support/gateway.ts'
import { signedInBySecret } from '../../../support/oidc/jar.ts'

const HOUR_MS = 3_600_000
const NUMBERS = 'with recursive n(i) as (select 1 union all select i + 1 from n where i < 450)'

await t.test('H5 no number of SVIDs that live for hours hides a certificate that ends', async (t) => {
  const gateway = await testGateway(t, { editsTables: true })
  await gateway.enroll('bot', [])
  await gateway.enroll('late', [])
  const [from, soon, later] = [-1, 1, 100].map((hours) => timestamp(Date.now() + hours * HOUR_MS))
  await past(
    gateway.settings.databaseUrl,
    `update certificate_pins set not_after = '${later}' where principal_id = 'acme::late';
    create table copied as ${NUMBERS} select a.*, n.i from internal_agents a, n where a.agent_id = 'acme::bot';
    update copied set agent_id = 'acme::svid' || i, name = 'svid' || i, enrollment_method = 'spiffe', spiffe_id = 'spiffe://acme.test/svid' || i;
    alter table copied drop column i;
    insert into internal_agents select * from copied;
    drop table copied;
    create table copied as ${NUMBERS} select p.*, n.i from certificate_pins p, n where p.principal_id = 'acme::bot';
    update copied set principal_id = 'acme::svid' || i, thumbprint = 'copy' || i, not_before = '${from}', not_after = '${soon}';
    alter table copied drop column i;
    insert into certificate_pins select * from copied;
    drop table copied`,
  )
  const page = (await (await signedInBySecret(gateway)).ask('GET', '/proxy')).text
  t.match(page, '/proxy/agents/acme%3A%3Alate')
  t.notMatch(page, 'svid')
})
