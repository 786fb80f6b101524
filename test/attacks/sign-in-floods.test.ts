import { hash, randomBytes } from 'node:crypto'
import t from 'tap'
import { timestamp } from '../../db/support/statement.ts'
import { past } from '../support/db/raw.ts'
import {
  ADMIN_SECRET,
  type Answered,
  type Identity,
  type TestGateway,
  testGateway,
} from '../support/gateway.ts'
import { spoiledStage } from '../support/oidc/attempts.ts'
import { Jar, signedInBySecret } from '../support/oidc/jar.ts'
import { CLIENT_ID } from '../support/oidc/provider.ts'
import { Browser, FROM_ELSEWHERE, signedIn } from '../support/oidc/sign-in.ts'
import { operatorNamed } from '../support/operators.ts'
import { eventually } from '../support/settled.ts'

const FORM = { 'content-type': 'application/x-www-form-urlencoded' }
const MINUTE_MS = 60_000

const byCertificate = (gateway: TestGateway, who: Identity, cookie?: string): Promise<Answered> => {
  const headers = { ...FORM, ...(cookie !== undefined && { cookie }) }
  return gateway.call(who, 'POST', '/proxy/sign-in/certificate', { headers, body: '' })
}

const cookieOf = ({ headers }: Answered): string => String(headers['set-cookie']).split(';')[0] ?? ''

/** Sessions of somebody as an earlier version has left them, in bulk. */
async function planted(
  { settings }: TestGateway,
  count: number,
  of: { readonly principal: string; readonly issuer: string; readonly subject: string },
): Promise<void> {
  const values = Array.from({ length: count }, (_, number) => {
    const at = timestamp(Date.now() - 1000 - number)
    const ends = timestamp(Date.now() + MINUTE_MS)
    const digest = hash('sha256', randomBytes(32))
    return `('${digest}','${of.principal}','oidc','[]','${of.issuer}','${of.subject}','[]','${at}','${at}','${ends}')`
  })
  const columns = 'id_sha256,principal_id,via,amr,issuer,subject,mapped_by,created_at,used_at,expires_at'
  await past(settings.databaseUrl, `insert into operator_sessions (${columns}) values ${values.join()}`)
}

await t.test(
  'H10 an operator that holds nothing signs in ten times a minute, and all beyond it are one row',
  async (t) => {
    let now = 0
    const gateway = await testGateway(t, { monotonic: () => now })
    const [empty, other] = [
      await operatorNamed(gateway, 'empty', []),
      await operatorNamed(gateway, 'other', ['admin.read']),
    ]
    const statuses: number[] = []
    for (let time = 0; time < 25; time += 1) statuses.push((await byCertificate(gateway, empty)).status)
    t.same(statuses, [...Array<number>(10).fill(303), ...Array<number>(15).fill(429)])
    const refused = await byCertificate(gateway, empty)
    t.equal(refused.headers['retry-after'], '60')
    t.match(refused.text, 'This operator has signed in too often. Wait a minute.')
    t.equal((await byCertificate(gateway, other)).status, 303, 'nobody else waits')
    t.equal((await gateway.rows({ action: 'admin.sign_in', principal: empty.id })).length, 10)
    now += MINUTE_MS
    t.equal((await byCertificate(gateway, empty)).status, 303, 'a minute later')
    const rows = () => gateway.rows({ action: 'admin.sign_in_refused' })
    const [row, ...more] = await eventually(rows, (all) => all.length > 0)
    t.match(row, {
      ...{ principal_id: empty.id, principal_type: 'operator', status: 'denied', request_id: null },
      detail: { reason: 'sign_in_throttled', refused_by: 'sign_in', summarised: { count: 16 } },
    })
    t.same(more, [])
  },
)

await t.test('H10 by the secret too: ten a minute, whoever it is', async (t) => {
  let now = 0
  const gateway = await testGateway(t, { monotonic: () => now })
  for (let time = 0; time < 10; time += 1) await signedInBySecret(gateway)
  const jar = new Jar(gateway)
  t.equal((await jar.send('/proxy/sign-in', { secret: ADMIN_SECRET })).status, 429)
  t.equal(jar.session, undefined)
  t.equal((await gateway.admin('GET', '/v1/admin/users')).status, 200, 'the secret itself goes on')
  now += MINUTE_MS
  t.ok((await signedInBySecret(gateway)).session)
})

await t.test('H10 a browser that signs in again has one session: the one before has ended', async (t) => {
  const { gateway } = await spoiledStage(t)
  const owner = await operatorNamed(gateway, 'owner', ['admin.read'])
  const first = cookieOf(await byCertificate(gateway, owner))
  const second = cookieOf(await byCertificate(gateway, owner, first))
  const page = (cookie: string) => gateway.call(owner, 'GET', '/proxy', { headers: { cookie } })
  t.same([(await page(first)).status, (await page(second)).status], [303, 200])
  const [row, before] = await gateway.rows({ action: 'admin.sign_in' })
  t.equal(row?.detail.replaces, before?.detail.session)

  const jar = await signedInBySecret(gateway)
  await jar.send('/proxy/sign-in', { secret: ADMIN_SECRET })
  const browser = new Browser(gateway)
  await browser.signIn('alice')
  const thief = new Jar(gateway)
  for (const [name, value] of browser.jar.cookies) thief.cookies.set(name, value)
  await browser.signIn('alice')
  t.equal((await thief.ask('GET', '/v1/admin/session')).status, 403, 'by the identity provider, too')
  t.equal((await browser.jar.ask('GET', '/v1/admin/session')).status, 200)
  t.equal((await gateway.admin('GET', '/v1/admin/sessions')).json.sessions.length, 3)
  const elsewhere = cookieOf(await byCertificate(gateway, owner, '__Host-sallyport=nobody-has-this'))
  t.equal((await page(second)).status, 200, 'another browser of the same operator is another session')
  t.equal((await page(elsewhere)).status, 200)
})

await t.test(
  'H10 a page of another site that signs a browser in again ends no other browser’s session',
  async (t) => {
    const { gateway, pass } = await spoiledStage(t)
    const elsewhere = await signedIn(gateway, 'alice')
    const lured = new Browser(gateway)
    await lured.signIn('alice')
    const sessions = async (): Promise<unknown[]> =>
      (await gateway.admin('GET', '/v1/admin/sessions')).json.sessions
    for (let time = 0; time < 20; time += 1) {
      pass(MINUTE_MS)
      // As a browser follows a link of another site: without its Strict cookie.
      const stranger = new Jar(gateway)
      const led = await stranger.ask('GET', '/proxy/oidc/start?next=/proxy/agents', FROM_ELSEWHERE)
      t.equal(led.status, 200)
      t.equal(led.headers['set-cookie'], undefined, 'nothing has begun')
      t.match(led.text, 'url=/proxy/oidc/start?next=%2Fproxy%2Fagents"')
      // And as it follows the page that leads on.
      t.match((await lured.signIn('alice', '?next=/proxy/agents')).text, 'url=/proxy/agents"')
      t.equal((await sessions()).length, 2)
    }
    t.equal((await elsewhere.ask('GET', '/v1/admin/session')).status, 200)
  },
)

await t.test('H5 an operator has twenty sessions: with the next one the oldest ends', async (t) => {
  let now = 0
  const gateway = await testGateway(t, { monotonic: () => now })
  const owner = await operatorNamed(gateway, 'owner', ['admin.read', 'admin.operators'])
  const other = await operatorNamed(gateway, 'other', ['admin.read'])
  const others = cookieOf(await byCertificate(gateway, other))
  const cookies: string[] = []
  for (let time = 0; time < 22; time += 1) {
    now += 10_000
    cookies.push(cookieOf(await byCertificate(gateway, owner)))
  }
  const open = async (cookie: string, who: Identity): Promise<boolean> =>
    (await gateway.call(who, 'GET', '/proxy', { headers: { cookie } })).status === 200
  const held = await Promise.all(cookies.map((cookie) => open(cookie, owner)))
  t.same(held, [false, false, ...Array<boolean>(20).fill(true)])
  t.ok(await open(others, other), 'nobody else’s')
  const shown = async (operator: string) =>
    (await gateway.admin('GET', `/v1/admin/sessions?operator=${encodeURIComponent(operator)}`)).json.sessions
  t.same([(await shown(owner.id)).length, (await shown(other.id)).length], [20, 1], 'an owner sees them all')
  const asked = await gateway.call(other, 'GET', `/v1/admin/sessions?operator=${owner.id}`)
  t.match(asked.json.sessions, [{ operator: other.id }], 'others see their own')
  const rows = await gateway.rows({ action: 'admin.sign_in', principal: owner.id })
  const [last] = rows
  t.same(last?.detail.ends, [rows.at(-2)?.detail.session], 'the row says which')
})

await t.test(
  'H5 a logout of the identity provider ends all of 518 sessions, and nobody else’s',
  async (t) => {
    const { gateway, provider } = await spoiledStage(t, { editsTables: true })
    const alice = await signedIn(gateway, 'alice')
    const { issuer } = provider
    const [principal, subject] = ['acme::operator::alice-example.com', 'alice']
    await planted(gateway, 517, { principal, issuer, subject })
    await planted(gateway, 3, { principal, issuer, subject: 'bob' })
    await planted(gateway, 3, { principal, issuer: 'https://login.other.example', subject })
    const now = Math.floor(Date.now() / 1000)
    const events = { 'http://schemas.openid.net/event/backchannel-logout': {} }
    const claims = { iss: issuer, aud: CLIENT_ID, iat: now, exp: now + 60, jti: 'one', sub: subject, events }
    const told = await gateway.call(null, 'POST', '/proxy/oidc/backchannel-logout', {
      headers: FORM,
      body: new URLSearchParams({ logout_token: await provider.sign(claims) }).toString(),
    })
    t.equal(told.status, 200, told.text)
    t.equal((await alice.ask('GET', '/v1/admin/session')).status, 403)
    const rows = await gateway.rows({ action: 'admin.signed_out', order: 'asc', limit: 1000 })
    t.equal(rows.length, 500)
    t.equal(rows[0]?.detail.others, 18, 'and says how many more')
    const { sessions } = (await gateway.admin('GET', '/v1/admin/sessions')).json
    t.equal(sessions.length, 6)
    // One that the next sign-in finds is brought down to the bound as well.
    await planted(gateway, 100, { principal, issuer, subject })
    await signedIn(gateway, 'alice')
    t.equal((await gateway.admin('GET', '/v1/admin/sessions')).json.sessions.length, 20)
  },
)
