import t from 'tap'
import { timestamp } from '../../db/support/statement.ts'
import { personOf } from '../../proxy/operators/oidc/person.ts'
import { operatorsOptions } from '../../proxy/operators/options.ts'
import { past } from '../support/db/raw.ts'
import { spoiledStage } from '../support/oidc/attempts.ts'
import { signedIn } from '../support/oidc/sign-in.ts'

const OF_GROUPS = { oidc: { claim: 'groups', map: { staff: 'viewer' } } }
const CEO = 'acme::operator::ceo-example.com'

await t.test('H8 a name that its bearer likes is never the one that a verified address makes', async (t) => {
  const { gateway, provider } = await spoiledStage(t, OF_GROUPS)
  const signIn = async (person: Readonly<Record<string, unknown>> & { sub: string }): Promise<string> => {
    provider.person = { amr: ['pwd'], groups: ['staff'], ...person }
    const jar = await signedIn(gateway, person.sub)
    return (await jar.ask('GET', '/v1/admin/session')).json.operator
  }
  const liked = { preferred_username: 'ceo@example.com' }
  const mallory = await signIn({ sub: 'mallory', ...liked })
  t.match(mallory, /^acme::operator::ceo-example\.com-[0-9a-f]{16}$/)
  for (const [what, claims] of Object.entries({
    'an address that nobody has verified': { email: 'ceo@example.com', email_verified: false },
    'an address of which nobody says it': { email: 'ceo@example.com' },
    'the text true': { email: 'ceo@example.com', email_verified: 'true' },
    'a name in the place of the subject': { preferred_username: '' },
    'the name itself': { preferred_username: 'ceo-example.com' },
  })) {
    const operator = await signIn({
      sub: what === 'a name in the place of the subject' ? 'ceo-example.com' : what,
      ...claims,
    })
    t.match(operator, /-[0-9a-f]{16}$/, what)
  }
  t.equal(await signIn({ sub: 'the CEO', email: 'ceo@example.com', email_verified: true }), CEO, 'who has it')
  t.equal(await signIn({ sub: 'mallory', ...liked }), mallory, 'and everybody stays who they are')
  const address = { email: 'ceo@example.com', email_verified: true }
  t.equal(await signIn({ sub: 'the CEO', ...liked, ...address }), CEO)
  t.equal(
    await signIn({ sub: 'the CEO', ...liked }),
    CEO,
    'by issuer and subject, whatever the names are by now',
  )
})

await t.test(
  'H8 whom an earlier version has named by its own wish keeps that name, and its rows',
  async (t) => {
    const { gateway, provider } = await spoiledStage(t, { ...OF_GROUPS, editsTables: true })
    provider.person = { sub: 'ada', amr: ['pwd'], groups: ['staff'], preferred_username: 'ada' }
    const first = await signedIn(gateway, 'ada')
    const { operator } = (await first.ask('GET', '/v1/admin/session')).json
    t.match(operator, /^acme::operator::ada-[0-9a-f]{16}$/)
    const old = (
      await gateway.admin('POST', '/v1/admin/operators', { operator_name: 'ada', capabilities: [] })
    ).json
    await past(
      gateway.settings.databaseUrl,
      `update operator_identities set principal_id = '${old.principal_id}', created_at = '${timestamp(0)}'`,
    )
    const again = await signedIn(gateway, 'ada')
    t.equal((await again.ask('GET', '/v1/admin/session')).json.operator, 'acme::operator::ada')
  },
)

await t.test('H8 no two verified addresses make one name, and none makes one with a digest', (t) => {
  const { oidc } = operatorsOptions.parse({
    oidc: { issuer: 'https://login.example.com', client_id: 'a', client_secret: 'b', map: {} },
  })
  if (!oidc) throw new Error('no options')
  const nameOf = (email: string, sub = email): string =>
    personOf({ sub, email, email_verified: true }, oidc).name
  const parts = ['a', 'b', 'a-b', 'a.b', 'a_b', '-a', 'a-', 'A', 'a+b', 'a%b', 'ä', '0123456789abcdef']
  const domains = [
    'c',
    'b.c',
    'a.b.c',
    'b-b.c',
    'a-b.c',
    'c-0123456789abcdef',
    'b.c-0123456789abcdef',
    'B.c',
    '..',
    'c.',
  ]
  const addresses = parts.flatMap((local) => domains.map((domain) => `${local}@${domain}`))
  addresses.push(
    'a@b@c.d',
    'a',
    'a-b.c',
    '@b.c',
    'a@',
    '..@..',
    `${'x'.repeat(60)}@b.c`,
    `${'x'.repeat(60)}@b.cc`,
  )
  const names = new Map<string, string>()
  for (const email of addresses) {
    const name = nameOf(email)
    t.match(name, /^[a-zA-Z0-9._-]{1,64}$/, email)
    t.equal(names.get(name), undefined, `${email}: ${name}`)
    names.set(name, email)
    // One with a digest is another person's with another subject; a bare one is that of the address.
    t.equal(nameOf(email, 'another') === name, !/-[0-9a-f]{16}$/.test(name), email)
  }
  t.equal(nameOf('ada@example.com'), 'ada-example.com')
  t.equal(nameOf('ada.king@my-company.example.com'), 'ada.king-my-company.example.com')
  t.end()
})
