import { Agent } from 'node:https'
import t from 'tap'
import { ADMIN_SECRET, CHAT, testGateway } from '../../support/gateway.ts'
import { Jar, signedInBySecret } from '../../support/oidc/jar.ts'
import { as, operatorNamed } from '../../support/operators.ts'
import { eventually } from '../../support/settled.ts'

const USER = { user_name: 'ada' }

await t.test('a browser signs in by the secret, administers with its token, and signs out', async (t) => {
  const gateway = await testGateway(t)
  const jar = new Jar(gateway)
  const signedIn = await jar.send('/proxy/sign-in', { secret: ADMIN_SECRET })
  t.equal(signedIn.status, 303, signedIn.text)
  t.equal(signedIn.headers.location, '/proxy')
  t.match(
    String(signedIn.headers['set-cookie']),
    /^__Host-sallyport=[\w-]{43}; Path=\/; Secure; HttpOnly; SameSite=Strict$/,
  )
  const { json } = await jar.ask('GET', '/v1/admin/session')
  t.match(json, { operator: 'admin', via: 'secret', amr: [], csrf: /^[\w-]{43}$/ })
  t.ok(json.capabilities.includes('admin.operators'))
  const made = await jar.ask('POST', '/v1/admin/users', { 'x-csrf-token': json.csrf }, USER)
  t.equal(made.status, 201, made.text)

  const page = await jar.ask('GET', '/proxy')
  t.equal(page.status, 200)
  const [, csrf = ''] = /name="csrf" value="([^"]+)"/.exec(page.text) ?? []
  const out = await jar.send('/proxy/sign-out', { csrf })
  t.equal(out.status, 303, out.text)
  t.equal(out.headers['clear-site-data'], '"cache", "cookies"')
  t.equal(jar.session, undefined, 'the cookie is gone')

  const [row] = await gateway.rows({ action: 'admin.sign_in' })
  t.match(row, { principal_id: 'admin', principal_type: 'operator', status: 'success' })
  t.match(row?.detail, { via: 'secret', session: /^[0-9a-f]{8}$/ })
  const [ended] = await gateway.rows({ action: 'admin.signed_out' })
  t.match(ended, { principal_id: 'admin', detail: { via: 'secret', session: row?.detail.session } })
  const [change] = await gateway.rows({ action: 'user.created' })
  t.match(change, { principal_id: 'admin', detail: { via: 'secret' } })
})

await t.test('a wrong secret signs nobody in, and counts as one in X-Admin-Secret does', async (t) => {
  const gateway = await testGateway(t)
  const jar = new Jar(gateway)
  for (let guess = 0; guess < 10; guess += 1) {
    const refused = await jar.send('/proxy/sign-in', { secret: `wrong-${guess}` })
    t.equal(refused.status, 403)
    t.match(refused.headers['content-type'], 'text/html')
    t.notMatch(refused.text, `wrong-${guess}`)
  }
  t.equal(jar.session, undefined)
  const throttled = await jar.send('/proxy/sign-in', { secret: 'wrong' })
  t.equal(throttled.status, 429)
  t.ok(Number(throttled.headers['retry-after']) > 0)
  const header = await gateway.call(null, 'GET', '/v1/admin/users', { headers: { 'x-admin-secret': 'no' } })
  t.equal(header.json.reason, 'admin_throttled', 'the same throttle')
  t.same(await gateway.rows({ action: 'admin.sign_in' }), [])
})

await t.test(
  'a disabled secret signs nobody in, is not asked for, and its sessions have ended',
  async (t) => {
    const gateway = await testGateway(t)
    const jar = await signedInBySecret(gateway)
    t.match((await jar.ask('GET', '/proxy/sign-in')).text, 'name="secret"')
    const owner = as(gateway, await operatorNamed(gateway, 'alice', ['admin.read', 'admin.operators']))
    t.equal((await owner('POST', '/v1/admin/secret/disable')).status, 204)
    t.equal((await jar.ask('GET', '/v1/admin/session')).status, 403)
    t.equal((await new Jar(gateway).send('/proxy/sign-in', { secret: ADMIN_SECRET })).status, 403)
    t.notMatch((await jar.ask('GET', '/proxy/sign-in')).text, 'name="secret"')
  },
)

await t.test('a session by the secret ends with that secret', async (t) => {
  const gateway = await testGateway(t)
  const jar = await signedInBySecret(gateway)
  t.equal((await jar.ask('GET', '/v1/admin/session')).status, 200)
  const rotated = await gateway.admin('POST', '/v1/admin/secret/rotate', {
    new_secret: 'another-secret-of-ours',
  })
  t.equal(rotated.status, 204)
  t.equal((await jar.ask('GET', '/v1/admin/session')).status, 403)
})

await t.test('CSRF: a change needs the token of its own session, and a page of ours', async (t) => {
  const gateway = await testGateway(t)
  const jar = await signedInBySecret(gateway)
  const other = await signedInBySecret(gateway)
  const { csrf } = (await jar.ask('GET', '/v1/admin/session')).json
  const { csrf: others } = (await other.ask('GET', '/v1/admin/session')).json
  const tried = (headers: Record<string, string>) => jar.ask('POST', '/v1/admin/users', headers, USER)

  t.equal((await tried({})).json.reason, 'csrf_invalid', 'no token')
  t.equal((await tried({ 'x-csrf-token': others })).json.reason, 'csrf_invalid', "another session's token")
  t.equal((await tried({ 'x-csrf-token': `${csrf}x` })).json.reason, 'csrf_invalid', 'another length')
  const own = { 'x-csrf-token': csrf }
  for (const headers of [
    { origin: 'https://evil.example' },
    { origin: 'null' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
  ]) {
    const refused = await tried({ ...own, ...headers })
    t.equal(refused.status, 403, JSON.stringify(headers))
    t.equal(refused.json.reason, 'origin_not_allowed', JSON.stringify(headers))
  }
  const agent = new Agent({ ca: gateway.ca, servername: 'localhost' })
  t.teardown(() => agent.destroy())
  const named = { host: 'evil.example', origin: 'https://evil.example' }
  const cookie = `__Host-sallyport=${jar.session}`
  const byHost = { headers: { ...own, ...named, cookie }, body: USER, agent }
  const rebound = await gateway.call(null, 'POST', '/v1/admin/users', byHost)
  t.equal(rebound.json.reason, 'origin_not_allowed', 'what Host says is nobody’s origin')
  const foreignGet = await jar.ask('GET', '/v1/admin/users', { 'sec-fetch-site': 'cross-site' })
  t.equal(foreignGet.json.reason, 'origin_not_allowed', 'a GET for a page of another site')
  t.same(await gateway.rows({ action: 'user.created' }), [])

  t.equal((await tried({ ...own, origin: gateway.url })).status, 201, 'an own origin')
  const made = (user_name: string, headers: Record<string, string>) =>
    jar.ask('POST', '/v1/admin/users', { ...own, ...headers }, { user_name })
  t.equal((await made('bob', { 'sec-fetch-site': 'same-origin' })).status, 201)
  t.equal((await made('cid', {})).status, 201, 'the token alone decides where a browser says nothing')
  const out = await jar.send('/proxy/sign-out', { csrf: others })
  t.equal(out.status, 403, 'nobody is signed out by another page')
  // As a browser sends the form of another site: without the Strict cookie, and it would do what the answer says.
  const strange = await new Jar(gateway).send('/proxy/sign-out', {}, { 'sec-fetch-site': 'cross-site' })
  t.equal(strange.status, 403)
  for (const header of ['set-cookie', 'clear-site-data']) t.equal(strange.headers[header], undefined, header)
  t.ok(jar.session)
})

await t.test('login CSRF: a page of another site signs nobody in', async (t) => {
  const gateway = await testGateway(t)
  const jar = new Jar(gateway)
  const fields = { secret: ADMIN_SECRET }
  t.equal((await jar.send('/proxy/sign-in', fields, { origin: 'https://evil.example' })).status, 403)
  t.equal((await jar.send('/proxy/sign-in', fields, { 'sec-fetch-site': 'cross-site' })).status, 403)
  t.equal((await jar.send('/proxy/sign-in', fields, { origin: gateway.url })).status, 303)
})

await t.test('a further origin of administration signs in and changes, and opens nothing else', async (t) => {
  const forwarded = 'https://localhost:19444'
  const gateway = await testGateway(t, { settings: { MCP_PROXY_ADMIN_ORIGINS: forwarded } })
  const page = { origin: forwarded, 'sec-fetch-site': 'same-origin' }
  const fields = { secret: ADMIN_SECRET }
  const jar = new Jar(gateway)
  const refused = [
    ...['https://localhost:19445', 'http://localhost:19444', 'https://127.0.0.1:19444'].map((origin) => ({
      origin,
    })),
    ...['cross-site', 'same-site'].map((site) => ({ origin: forwarded, 'sec-fetch-site': site })),
  ]
  for (const headers of refused)
    t.equal((await jar.send('/proxy/sign-in', fields, headers)).status, 403, JSON.stringify(headers))
  t.equal((await jar.send('/proxy/sign-in', fields, page)).status, 303)

  const { csrf } = (await jar.ask('GET', '/v1/admin/session')).json
  const made = (headers: Record<string, string>) => jar.ask('POST', '/v1/admin/users', headers, USER)
  t.equal((await made(page)).json.reason, 'csrf_invalid', 'the token is asked for there too')
  for (const headers of refused)
    t.equal((await made({ ...headers, 'x-csrf-token': csrf })).json.reason, 'origin_not_allowed')
  t.equal((await made({ ...page, 'x-csrf-token': csrf })).status, 201)

  const bot = await gateway.enroll('bot', ['llm.chat', 'mcp.tools.list'])
  for (const [method, path, body] of [
    ['POST', '/v1/chat/completions', CHAT],
    ['GET', '/v1/models'],
    ['POST', '/v1/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/list' }],
    ['POST', '/v1/auth/token', 'grant_type=client_credentials'],
  ] as const) {
    const answer = await gateway.call(bot, method, path, {
      headers: page,
      ...(body !== undefined && { body }),
    })
    t.match(answer, { status: 403, json: { reason: 'origin_not_allowed' } }, path)
  }
  t.equal((await jar.send('/proxy/sign-out', { csrf }, page)).status, 303)
})

await t.test('a session ends when it is unused for long, and when its time is over', async (t) => {
  let at = Date.now()
  const gateway = await testGateway(t, { clock: () => at })
  const idle = await signedInBySecret(gateway)
  const used = await signedInBySecret(gateway)
  const minutes = (count: number) => {
    at += count * 60_000
  }
  const status = async (jar: Jar): Promise<number> => (await jar.ask('GET', '/v1/admin/session')).status
  /** The use of a session is written behind its answer. */
  const noted = (): Promise<unknown> =>
    eventually(
      async () => (await gateway.admin('GET', '/v1/admin/sessions')).json.sessions,
      (all) => all.some((one: { used_at: string }) => one.used_at === new Date(at).toISOString()),
    )
  minutes(14)
  t.equal(await status(used), 200)
  await noted()
  minutes(2)
  t.equal(await status(idle), 403, 'unused for 16 minutes')
  t.equal(await status(used), 200, 'used in between')
  await noted()
  for (let quarter = 0; quarter < 32; quarter += 1) {
    minutes(14)
    await status(used)
    await noted()
  }
  t.equal(await status(used), 200, 'after 7 hours and three quarters')
  minutes(14)
  await status(used)
  await noted()
  minutes(3)
  t.equal(await status(used), 403, 'after 8 hours, however much it is used')
})

await t.test('sessions are listed and ended: one’s own by anybody, others’ by admin.operators', async (t) => {
  const gateway = await testGateway(t)
  const jar = await signedInBySecret(gateway)
  const other = await signedInBySecret(gateway)
  const reader = as(gateway, await operatorNamed(gateway, 'reader', ['admin.read']))
  const { sessions } = (await jar.ask('GET', '/v1/admin/sessions')).json
  t.equal(sessions.length, 2)
  const current = sessions.find((one: { current: boolean }) => one.current)
  const elsewhere = sessions.find((one: { current: boolean }) => !one.current)
  t.match(current, { id: /^[0-9a-f]{16}$/, operator: 'admin', via: 'secret' })
  t.same((await reader('GET', '/v1/admin/sessions')).json.sessions, [], 'nobody else’s')

  const refused = await reader('DELETE', `/v1/admin/sessions/${elsewhere.id}`)
  t.equal(refused.status, 403)
  t.equal(refused.json.detail.required_capability, 'admin.operators')
  t.equal((await reader('DELETE', `/v1/admin/sessions/${'0'.repeat(16)}`)).status, 403, 'nor whether it is')
  t.equal((await other.ask('GET', '/v1/admin/session')).status, 200)

  t.equal((await jar.change('DELETE', `/v1/admin/sessions/${elsewhere.id}`)).status, 204)
  t.equal((await other.ask('GET', '/v1/admin/session')).status, 403)
  t.equal((await gateway.admin('DELETE', `/v1/admin/sessions/${current.id}`)).status, 204)
  t.equal((await jar.ask('GET', '/v1/admin/session')).status, 403)
  t.equal((await gateway.admin('DELETE', `/v1/admin/sessions/${current.id}`)).status, 404)
  t.equal((await gateway.rows({ action: 'admin.signed_out', status: 'success' })).length, 2)
})

await t.test('nothing of a session’s cookie is stored or logged', async (t) => {
  const gateway = await testGateway(t)
  const jar = await signedInBySecret(gateway)
  const { csrf } = (await jar.ask('GET', '/v1/admin/session')).json
  const written = JSON.stringify([gateway.log, await gateway.rows()])
  for (const secret of [jar.session ?? 'none', csrf, ADMIN_SECRET]) t.notMatch(written, secret)
})
