import t, { type Test } from 'tap'
import { ADMIN_CAPABILITIES, OPERATOR_SETS } from '../../../plugins/operators/capabilities.ts'
import type { TestGateway } from '../../support/gateway.ts'
import type { Jar } from '../../support/oidc/jar.ts'
import { testProvider } from '../../support/oidc/provider.ts'
import { Browser, gatewayOf, operatorsFile, reconfigure, signedIn } from '../../support/oidc/sign-in.ts'
import { as, operatorNamed } from '../../support/operators.ts'

const ADA = 'acme::operator::alice-example.com'
const CAROL = { email: 'carol@example.com', email_verified: true, amr: ['pwd'] }

const sessionOf = async (jar: Jar) => (await jar.ask('GET', '/v1/admin/session')).json

/** Somebody of the provider's gets nothing: a page that says no more, no session, no operator, one row with the reason. */
async function getsNothing(
  t: Test,
  gateway: TestGateway,
  login: string,
  reason: string,
  operator: string | null = null,
): Promise<void> {
  const browser = new Browser(gateway)
  const before = (await gateway.rows({ action: 'admin.sign_in_refused' })).length
  const operators = (await gateway.admin('GET', '/v1/admin/operators')).json.total
  const refused = await browser.signIn(login)
  t.equal(refused.status, 403, reason)
  t.match(refused.text, 'This sign-in was refused. Ask whoever runs this gateway.')
  t.notMatch(refused.text, reason, 'why is nobody’s business')
  t.equal(browser.jar.session, undefined)
  t.equal((await browser.jar.ask('GET', '/v1/admin/session')).status, 403)
  t.equal((await gateway.admin('GET', '/v1/admin/operators')).json.total, operators)
  const rows = await gateway.rows({ action: 'admin.sign_in_refused' })
  t.equal(rows.length, before + 1, reason)
  const row = rows.find(({ detail }) => detail.reason === reason)
  t.match(row, { status: 'denied', principal_id: operator, detail: { via: 'oidc', reason } })
  t.notMatch(JSON.stringify([rows, gateway.log]), `${login}@example.com`, 'no address is kept')
}

await t.test('mapped by e-mail address to a set, a person gets an operator of its own', async (t) => {
  const provider = await testProvider(t)
  const gateway = await gatewayOf(t, provider, { oidc: { map: { 'alice@example.com': 'granter' } } })
  const jar = await signedIn(gateway, 'alice')
  const { operator, capabilities } = await sessionOf(jar)
  t.equal(operator, ADA)
  t.strictSame(new Set(capabilities), new Set(OPERATOR_SETS.granter))
  const [made] = await gateway.rows({ action: 'operator.created' })
  t.match(made, { principal_id: ADA, status: 'success' })
  t.match(made?.detail, { via: 'oidc', issuer: provider.issuer })
  const { json: own } = await gateway.admin('GET', `/v1/admin/operators/${ADA}`)
  t.match(own, { name: 'alice-example.com', enrollment_method: 'oidc', created_by: ADA })
  const again = await sessionOf(await signedIn(gateway, 'alice'))
  t.equal(again.operator, ADA, 'the same one at the next sign-in')
  t.equal((await gateway.rows({ action: 'operator.created' })).length, 1)
})

await t.test('at each sign-in it has exactly the set that the map says then', async (t) => {
  const provider = await testProvider(t)
  const mapped = (set: string) => ({ map: { 'alice@example.com': set } })
  const gateway = await gatewayOf(t, provider, { oidc: mapped('owner') })
  const jar = await signedIn(gateway, 'alice')
  t.equal((await sessionOf(jar)).capabilities.length, ADMIN_CAPABILITIES.length)
  await reconfigure(gateway, operatorsFile(provider.issuer, mapped('viewer')))
  t.equal((await jar.ask('GET', '/v1/admin/session')).status, 403, 'what let her in is no more')
  t.same((await sessionOf(await signedIn(gateway, 'alice'))).capabilities, ['admin.read'])
  const [row] = await gateway.rows({ action: 'operator.capabilities_patched' })
  t.match(row, { principal_id: ADA, detail: { via: 'oidc', capabilities: ['admin.read'] } })

  await reconfigure(gateway, operatorsFile(provider.issuer, { map: {} }))
  await getsNothing(t, gateway, 'alice', 'not_mapped')
})

await t.test('mapped by groups, a person gets all that the sets of its groups hold', async (t) => {
  const provider = await testProvider(t)
  const map = { staff: 'viewer', platform: 'auditor', others: 'owner' }
  const oidc = { claim: 'groups', scopes: ['openid', 'email', 'groups'], map }
  const gateway = await gatewayOf(t, provider, { oidc })
  t.same((await sessionOf(await signedIn(gateway, 'alice'))).capabilities, ['admin.read', 'admin.audit'])
  t.same((await sessionOf(await signedIn(gateway, 'bob'))).capabilities, ['admin.read'])
  provider.accounts.set('carol', { ...CAROL, groups: ['strangers'] })
  await getsNothing(t, gateway, 'carol', 'not_mapped')
  provider.accounts.set('carol', CAROL)
  await getsNothing(t, gateway, 'carol', 'not_mapped')
})

await t.test(
  'a group that names an operator counts before sets, and two operators are refused',
  async (t) => {
    const provider = await testProvider(t)
    const oidc = { claim: 'groups', scopes: ['openid', 'groups'], map: { staff: 'owner', platform: 'desk' } }
    const gateway = await gatewayOf(t, provider, { oidc })
    await operatorNamed(gateway, 'desk', ['admin.read', 'admin.enroll'])
    await operatorNamed(gateway, 'night', ['admin.read'])
    const session = await sessionOf(await signedIn(gateway, 'alice'))
    t.match(session, { operator: 'acme::operator::desk', capabilities: ['admin.read', 'admin.enroll'] })
    const both = { ...oidc, map: { staff: 'night', platform: 'desk' } }
    await reconfigure(gateway, operatorsFile(provider.issuer, both))
    await getsNothing(t, gateway, 'alice', 'ambiguous')
    t.equal((await sessionOf(await signedIn(gateway, 'bob'))).operator, 'acme::operator::night')
  },
)

await t.test('whoever is not in the map gets nothing, and neither does who turns back', async (t) => {
  const provider = await testProvider(t)
  const gateway = await gatewayOf(t, provider, { oidc: { map: { 'alice@example.com': 'viewer' } } })
  await getsNothing(t, gateway, 'bob', 'not_mapped')
  provider.accounts.set('mallory', { email: 'ALICE@example.com', email_verified: true })
  await getsNothing(t, gateway, 'mallory', 'not_mapped')

  // The provider does not know him, and says access_denied.
  const browser = new Browser(gateway)
  const back = await browser.atProvider(await browser.start(), 'nobody')
  t.equal(back.searchParams.get('error'), 'access_denied')
  t.equal((await browser.callback(back)).status, 403)
  t.equal(browser.jar.session, undefined)
  t.equal((await gateway.rows({ action: 'admin.sign_in_refused' })).length, 2, 'nobody was authenticated')
})

await t.test('nobody grows the chain by being refused: of one person ten rows in a minute', async (t) => {
  const provider = await testProvider(t)
  const gateway = await gatewayOf(t, provider, { oidc: { map: { 'alice@example.com': 'viewer' } } })
  const browser = new Browser(gateway)
  for (let attempt = 0; attempt < 13; attempt += 1) t.equal((await browser.signIn('bob')).status, 403)
  t.equal((await gateway.rows({ action: 'admin.sign_in_refused' })).length, 10)
  t.equal((await sessionOf(await signedIn(gateway, 'alice'))).via, 'oidc', 'and it keeps nobody else out')
})

await t.test('an address that the provider has not verified is nobody’s', async (t) => {
  const provider = await testProvider(t)
  const map = { 'alice@example.com': 'owner' }
  const gateway = await gatewayOf(t, provider, { oidc: { map } })
  provider.accounts.set('mallory', { email: 'alice@example.com', email_verified: false })
  await getsNothing(t, gateway, 'mallory', 'email_not_verified')
  provider.accounts.set('mallory', { email: 'alice@example.com' })
  await getsNothing(t, gateway, 'mallory', 'email_not_verified')

  // Where the operator of the gateway says so; but it names nobody.
  await reconfigure(gateway, operatorsFile(provider.issuer, { map, require_email_verified: false }))
  const { operator } = await sessionOf(await signedIn(gateway, 'mallory'))
  t.match(operator, /^acme::operator::mallory-[0-9a-f]{16}$/)
})

await t.test('another acr, or none of the amr that are asked for, is not good enough', async (t) => {
  const provider = await testProvider(t)
  const map = { 'alice@example.com': 'viewer', 'bob@example.com': 'viewer', 'carol@example.com': 'viewer' }
  const acr = { map, acr_values: ['urn:example:two-factors', 'urn:example:three-factors'] }
  const gateway = await gatewayOf(t, provider, { oidc: acr })
  const { searchParams } = await new Browser(gateway).start()
  t.equal(searchParams.get('acr_values'), 'urn:example:two-factors urn:example:three-factors')
  t.ok((await signedIn(gateway, 'alice')).session)
  await getsNothing(t, gateway, 'bob', 'acr_not_accepted')
  provider.accounts.set('carol', CAROL)
  await getsNothing(t, gateway, 'carol', 'acr_not_accepted')

  await reconfigure(gateway, operatorsFile(provider.issuer, { map, amr_values: ['hwk', 'otp'] }))
  t.same((await sessionOf(await signedIn(gateway, 'alice'))).amr, ['pwd', 'otp'])
  await getsNothing(t, gateway, 'bob', 'amr_not_accepted')
  provider.accounts.set('carol', { email: 'carol@example.com', email_verified: true })
  await getsNothing(t, gateway, 'carol', 'amr_not_accepted')
})

await t.test('an operator that is not there, or was deactivated, is nobody’s', async (t) => {
  const provider = await testProvider(t)
  const map = { 'alice@example.com': 'alice', 'bob@example.com': 'viewer' }
  const gateway = await gatewayOf(t, provider, { oidc: { map } })
  await getsNothing(t, gateway, 'alice', 'operator_unknown')
  await operatorNamed(gateway, 'alice', ['admin.read'])
  await signedIn(gateway, 'alice')
  await gateway.admin('DELETE', '/v1/admin/operators/acme::operator::alice')
  await getsNothing(t, gateway, 'alice', 'operator_deactivated', 'acme::operator::alice')

  const own = 'acme::operator::bob-example.com'
  t.equal((await sessionOf(await signedIn(gateway, 'bob'))).operator, own)
  await gateway.admin('DELETE', `/v1/admin/operators/${own}`)
  await getsNothing(t, gateway, 'bob', 'operator_deactivated', own)
})

await t.test('an operator of that name that is somebody else’s is never taken over', async (t) => {
  const provider = await testProvider(t)
  const gateway = await gatewayOf(t, provider, { oidc: { map: { 'alice@example.com': 'owner' } } })
  await operatorNamed(gateway, 'alice-example.com', ['admin.read'])
  await getsNothing(t, gateway, 'alice', 'name_taken', ADA)
  const { json } = await gateway.admin('GET', `/v1/admin/operators/${ADA}`)
  t.same(json.capabilities, ['admin.read'])
})

await t.test(
  'an address that went to somebody else at the provider does not bring its operator',
  async (t) => {
    const provider = await testProvider(t)
    const gateway = await gatewayOf(t, provider, { oidc: { map: { 'alice@example.com': 'viewer' } } })
    await signedIn(gateway, 'alice')
    const { email, email_verified } = provider.accounts.get('alice') ?? {}
    provider.accounts.set('newcomer', {
      ...(email !== undefined && { email }),
      email_verified: email_verified === true,
    })
    await getsNothing(t, gateway, 'newcomer', 'name_taken', ADA)
  },
)

await t.test('a map that would take the last owner away while the secret is disabled', async (t) => {
  const provider = await testProvider(t)
  const mapped = (set: string) => ({ map: { 'alice@example.com': set } })
  const gateway = await gatewayOf(t, provider, { oidc: mapped('owner') })
  const jar = await signedIn(gateway, 'alice')
  const bob = as(gateway, await operatorNamed(gateway, 'bob', ['admin.read']))
  t.equal((await jar.change('POST', '/v1/admin/secret/disable')).status, 204, 'her sign-in is a way in')
  await reconfigure(gateway, operatorsFile(provider.issuer, mapped('viewer')))
  const browser = new Browser(gateway)
  t.equal((await browser.signIn('alice')).status, 403)
  const [row] = await gateway.rows({ action: 'admin.sign_in_refused' })
  t.match(row, { principal_id: ADA, detail: { reason: 'last_owner' } })
  const { json } = await bob('GET', `/v1/admin/operators/${ADA}`)
  t.equal(json.capabilities.length, ADMIN_CAPABILITIES.length)
})
