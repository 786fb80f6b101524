import { Agent } from 'node:https'
import t from 'tap'
import { nextPage } from '../../proxy/operators/pages/page.ts'
import { ADMIN_SECRET, type Answered } from '../support/gateway.ts'
import { spoiledStage } from '../support/oidc/attempts.ts'
import { Jar, signedInBySecret } from '../support/oidc/jar.ts'
import { Browser, FROM_ELSEWHERE, signedIn } from '../support/oidc/sign-in.ts'

const ALICE = 'acme::operator::alice-example.com'
const SESSION = '__Host-sallyport'
const USER = { user_name: 'ada' }

const nameOf = async (jar: Jar): Promise<string | undefined> =>
  (await jar.ask('GET', '/v1/admin/session')).json.operator

await t.test('session fixation: a cookie from before sign-in is never the session after it', async (t) => {
  const { gateway } = await spoiledStage(t)
  const mallory = await signedInBySecret(gateway)
  for (const planted of ['A'.repeat(43), mallory.session ?? 'none']) {
    const bySecret = new Jar(gateway)
    bySecret.cookies.set(SESSION, planted)
    t.equal((await bySecret.send('/proxy/sign-in', { secret: ADMIN_SECRET })).status, 303)
    t.not(bySecret.session, planted)
    const browser = new Browser(gateway)
    browser.jar.cookies.set(SESSION, planted)
    t.equal((await browser.signIn('alice')).status, 200)
    t.not(browser.jar.session, planted)
    t.equal(await nameOf(browser.jar), ALICE)
    const thief = new Jar(gateway)
    thief.cookies.set(SESSION, planted)
    t.not(await nameOf(thief), ALICE, 'whoever has planted it has gained nothing')
  }
  const [first, second] = [await signedIn(gateway, 'alice'), await signedIn(gateway, 'alice')]
  t.not(first.session, second.session, 'each sign-in has a new one')
})

await t.test('a cookie beside another of its name is nobody’s: a neighbour may have set one', async (t) => {
  const { gateway } = await spoiledStage(t)
  const jar = await signedIn(gateway, 'alice')
  const mallory = await signedInBySecret(gateway)
  jar.cookies.set(SESSION, `${jar.session}; ${SESSION}=${mallory.session}`)
  t.equal(await nameOf(jar), undefined)
})

await t.test('CSRF: a page of another site changes nothing by a session, and reads nothing', async (t) => {
  const { gateway } = await spoiledStage(t)
  const jar = await signedIn(gateway, 'alice')
  const { csrf } = (await jar.ask('GET', '/v1/admin/session')).json
  const token = { 'x-csrf-token': csrf }
  const made = (headers: Record<string, string>) => jar.ask('POST', '/v1/admin/users', headers, USER)
  t.equal((await made({})).json.reason, 'csrf_invalid', 'the cookie alone')
  const other = (await (await signedIn(gateway, 'alice')).ask('GET', '/v1/admin/session')).json
  t.equal((await made({ 'x-csrf-token': other.csrf })).json.reason, 'csrf_invalid', 'of another session')
  for (const headers of [
    { origin: 'https://evil.example' },
    { origin: 'null' },
    { origin: `${gateway.url}.evil.example` },
    { origin: 'https://localhost' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
  ]) {
    const what = JSON.stringify(headers)
    t.equal((await made({ ...token, ...headers })).json.reason, 'origin_not_allowed', what)
    const read = await jar.ask('GET', '/v1/admin/session', headers)
    t.equal(read.json.reason, 'origin_not_allowed', what)
    const out = await jar.send('/proxy/sign-out', { csrf }, headers)
    t.equal(out.status, 403, `nobody is signed out: ${what}`)
  }
  t.same(await gateway.rows({ action: 'user.created' }), [])
  t.equal((await made({ ...token, origin: gateway.url, 'sec-fetch-site': 'same-origin' })).status, 201)
  t.equal(await nameOf(jar), ALICE)
})

await t.test('a link of another site shows a page of ours, and nobody’s name', async (t) => {
  const { gateway } = await spoiledStage(t)
  const jar = await signedIn(gateway, 'alice')
  const elsewhere = await jar.ask('GET', '/proxy', FROM_ELSEWHERE)
  t.equal(elsewhere.status, 200)
  t.match(elsewhere.text, 'url=/proxy"')
  t.notMatch(elsewhere.text, ALICE)
  t.match((await jar.ask('GET', '/proxy', { 'sec-fetch-site': 'same-origin' })).text, ALICE)
  t.match((await jar.ask('GET', '/proxy', { 'sec-fetch-site': 'none' })).text, ALICE, 'typed in')
})

await t.test('no page of ours is framed, kept, or runs a script, whatever is written into it', async (t) => {
  const { gateway, provider } = await spoiledStage(t)
  const amr = ['<script>alert(1)</script>', '"><img src=x>']
  provider.person = { ...provider.person, amr }
  const jar = await signedIn(gateway, 'alice')
  const pages: Answered[] = []
  for (const path of [
    '/proxy/settings',
    '/proxy/sign-in?next=/proxy/"><script>',
    '/proxy/oidc/callback?state="><script>',
  ])
    pages.push(await jar.ask('GET', path))
  for (const { headers, text } of pages) {
    t.match(headers['content-security-policy'], "default-src 'none'")
    t.match(headers['content-security-policy'], "frame-ancestors 'none'")
    t.equal(headers['x-frame-options'], 'DENY')
    t.equal(headers['cache-control'], 'no-store')
    t.notMatch(text, /<script>|<img/)
  }
  t.match(pages[0]?.text, '&lt;script&gt;')
})

/** What somebody would like a sign-in to lead to. */
const ELSEWHERE = [
  'https://evil.example',
  '//evil.example',
  '/\\evil.example',
  '\\\\evil.example',
  'javascript:alert(1)',
  'data:text/html,<script>',
  '/',
  '/v1/admin/users',
  '/proxyevil',
  '/proxy@evil.example',
  '/proxy.evil.example',
  '/proxy/../v1/admin/users',
  '/proxy/..//evil.example',
  '/proxy/%2e%2e//evil.example',
  '/proxy/.%2E/%2e./evil',
  '/proxy/\t//evil.example',
  '/proxy/\nlocation: https://evil.example',
  ' /proxy',
  '/proxy/é',
  '/proxy/sign-out',
  '/proxy/sign-in',
  '/proxy/oidc/start',
  '/proxy/x/../sign-out',
  `/proxy/${'a'.repeat(600)}`,
]

await t.test('`next` leads to a page of ours, or home', async (t) => {
  for (const next of ELSEWHERE) t.equal(nextPage(new URLSearchParams({ next }).toString()), '/proxy', next)
  t.equal(
    nextPage('next=%2Fproxy%2Faudit&next=https%3A%2F%2Fevil.example'),
    '/proxy/audit',
    'the first of two',
  )
  for (const next of ['/proxy', '/proxy/audit', '/proxy/audit?from=1&to=2', '/proxy?x=//y'])
    t.equal(nextPage(new URLSearchParams({ next }).toString()), next)

  const { gateway } = await spoiledStage(t)
  for (const next of ['//evil.example', '/proxy/../v1/admin/users', 'javascript:alert(1)']) {
    const last = await new Browser(gateway).signIn('alice', `?next=${encodeURIComponent(next)}`)
    t.match(last.text, 'content="0;url=/proxy"', next)
    t.notMatch(last.text, next)
  }
  const asked = await new Browser(gateway).signIn('alice', '?next=%2Fproxy%2Faudit%3Fa%3D%22%3E')
  t.match(asked.text, 'content="0;url=/proxy/audit?a=&quot;&gt;"', 'as text, whatever it holds')
})

await t.test('the host that a browser names is one of ours, or the answer goes to one that is', async (t) => {
  const { gateway } = await spoiledStage(t)
  const agent = new Agent({ ca: gateway.ca, servername: 'localhost' })
  t.teardown(() => agent.destroy())
  const { port } = new URL(gateway.url)
  const callback = (host: string): string => `https://${host}/proxy/oidc/callback`
  const own = [`localhost:${port}`, `127.0.0.1:${port}`, `[::1]:${port}`]
  for (const host of [...own, 'evil.example', 'localhost:1']) {
    const asked = { headers: { host }, agent }
    const { status, headers } = await gateway.call(null, 'GET', '/proxy/oidc/start', asked)
    t.equal(status, 303)
    const redirect = new URL(String(headers.location)).searchParams.get('redirect_uri') ?? ''
    if (own.includes(host)) t.equal(redirect, callback(host), 'the browser has its cookies for no other')
    else t.ok(own.map(callback).includes(redirect), host)
  }
})
