import t from 'tap'
import { META_KEYS } from '../../../../proxy/mcp/protocol/versions.ts'
import { connectingStage } from '../../../support/connecting/stage.ts'
import { press } from '../../../support/dashboard/pressing.ts'
import { signedInAs } from '../../../support/dashboard/signed-in.ts'
import type { Json } from '../../../support/gateway.ts'
import { request } from '../../../support/mcp/stage.ts'
import { operatorNamed } from '../../../support/operators.ts'
import { PEOPLE_URL } from '../../../support/people/door.ts'

const stage = await connectingStage(t)
const { admin, call, connect, person, people, resources, servers } = stage

const textOf = (answer: Json): string => answer.result?.content?.[0]?.text ?? JSON.stringify(answer)
const linkIn = ({ error }: Json): string => error.data.url
const read = (name: 'mail' | 'files') =>
  admin('POST', `/v1/admin/mcp-resources/${resources[name].resource_id}/refresh`, {})
const accountsOf = async (id: string): Promise<readonly Json[]> =>
  (await admin('GET', `/v1/admin/accounts?principal=${id}`)).json.accounts

await t.test(
  'from nothing: the reader connects an account at its own page, and the tools are pinned',
  async (t) => {
    t.match((await read('mail')).json.last_error, /its reader has connected no account there yet/)
    const alice = person('alice')
    const { answer } = await alice.follow(new URL('/account', PEOPLE_URL), stage.provider)
    const links = [...(answer?.text ?? '').matchAll(/href="(\/connect\/[\w-]+)"/g)].map(
      ([, link = '']) => link,
    )
    t.equal(links.length, 2)
    for (const link of links) {
      const done = await connect(person('alice'), link)
      t.match(done, { status: 200, text: /is connected/ })
    }
    for (const name of ['mail', 'files'] as const) {
      const { json } = await read(name)
      t.equal(json.last_error, null)
      t.equal(json.tools.length, 3)
    }
    t.strictSame((await accountsOf(people.alice)).map(({ resource }) => String(resource)).toSorted(), [
      'files',
      'mail',
    ])
    t.equal(textOf(await call('alice', 'mail.whose')), 'alice')
    t.equal(textOf(await call('alice', 'files.whose', { modern: true })), 'alice')
  },
)

const URL_MODE = { elicitation: { url: {} } }

await t.test('without an account the call is refused, and a link that is stolen does nothing', async (t) => {
  const refused = await call('bob', 'mail.whose')
  t.match(refused.error, { code: -31008, data: { reason: 'consent_required', request_id: /^req_/ } })
  t.match(refused.error.message, /send the call again/)
  const link = linkIn(refused)
  t.ok(link.startsWith(`${PEOPLE_URL}/connect/`))
  const before = servers.mail.of('tools/call').length
  const stolen = await connect(person('alice'), link)
  t.match(stolen, { status: 404, text: /is not for you/ })
  t.equal(textOf(await call('alice', 'mail.whose')), 'alice')
  t.match((await call('bob', 'mail.whose')).error, { code: -31008 })
  t.equal(servers.mail.of('tools/call').length, before + 1)
  const session = await stage.initialize('bob', URL_MODE)
  const asked = await call('bob', 'mail.whose', { headers: { 'mcp-session-id': session } })
  t.match(asked.error, { code: -32042, data: { elicitations: [{ mode: 'url', url: /\/connect\// }] } })
  const spoiled = `${link.slice(0, -4)}AAAA`
  t.match(await connect(person('bob'), spoiled), { status: 404 })
})

const asking = { modern: true, params: { _meta: { [META_KEYS.capabilities]: URL_MODE } } }

await t.test('a stateless client that opens pages is asked to, and its next call passes', async (t) => {
  const { result } = await call('bob', 'mail.whose', asking)
  t.match(result, {
    resultType: 'input_required',
    inputRequests: { account: { method: 'elicitation/create', params: { mode: 'url', url: /\/connect\// } } },
  })
  const { requestState } = result
  const again = { ...asking.params, requestState, inputResponses: { account: { action: 'accept' } } }
  const still = await call('bob', 'mail.whose', { modern: true, params: again })
  t.match(still.error, { code: -31008 }, 'it is asked once')
  const done = await connect(person('bob'), result.inputRequests.account.params.url)
  t.match(done, { status: 200, text: /is connected/ })
  t.equal(textOf(await call('bob', 'mail.whose', { modern: true, params: again })), 'bob')
  t.notOk(
    JSON.stringify(servers.mail.told).includes('inputResponses'),
    'what was sent to us is not passed on',
  )
  const other = await call('alice', 'mail.whose', { modern: true, params: again })
  t.match(other.error, { code: -32602 }, 'a state is of the one that it was given to')
  const link = linkIn(await call('bob', 'files.whose', { modern: true }))
  t.match(await connect(person('bob'), link), { status: 200 })
})

await t.test('two people at one server each see their own, under load', async (t) => {
  const calls = Array.from({ length: 64 }, (_, index) => {
    const who = index % 2 === 0 ? 'alice' : 'bob'
    const name = index % 4 < 2 ? 'mail.whose' : 'files.whose'
    return call(who, name, { modern: index % 8 < 4 }).then((answer) => [who, textOf(answer)] as const)
  })
  for (const [who, text] of await Promise.all(calls)) t.equal(text, who)
  const owners = new Map<string, Set<string>>()
  for (const { session, headers } of servers.mail.told) {
    t.notOk(
      headers.authorization?.includes(stage.tokens.alice) ||
        headers.authorization?.includes(stage.tokens.bob),
    )
    const holder = await stage.issuer.holderOf(headers.authorization)
    if (session !== undefined && holder)
      owners.set(session, (owners.get(session) ?? new Set()).add(holder.subject))
  }
  t.ok(owners.size >= 2)
  for (const [session, of] of owners) t.equal(of.size, 1, session)
})

await t.test('a 401 is one refresh, and the call is sent once more', async (t) => {
  stage.later(11_000)
  const last = servers.mail.of('tools/call').findLast(({ headers }) => headers.authorization)
  const whose = (await stage.issuer.holderOf(last?.headers.authorization))?.subject as 'alice' | 'bob'
  stage.refused.add(last?.headers.authorization ?? '')
  const before = stage.issuer.asked.get('/token') ?? 0
  const answers = await Promise.all(Array.from({ length: 8 }, () => call(whose, 'mail.whose')))
  for (const answer of answers) t.equal(textOf(answer), whose)
  t.equal(stage.issuer.asked.get('/token'), before + 1)
  for (const { headers } of servers.files.told) stage.refused.add(headers.authorization ?? '')
  const { json } = await read('files')
  t.match({ error: json.last_error, tools: json.tools.length }, { error: null, tools: 3 }, 'a reading, too')
})

await t.test('scopes within the settings are asked for again, others are not', async (t) => {
  const beyond = await call('alice', 'mail.rule')
  t.match(beyond.error, { code: -32003 })
  const path = `/v1/admin/mcp-resources/${resources.mail.resource_id}`
  const { oauth } = (await admin('GET', path)).json
  await admin('PATCH', path, { oauth: { ...oauth, scopes: ['mail', 'files'] } })
  const refused = await call('alice', 'mail.send')
  t.match(refused.error, { code: -31008, data: { url: /\/connect\// } })
  const [before] = (await accountsOf(people.alice)).filter(({ resource }) => resource === 'mail')
  t.match(await connect(person('alice'), linkIn(refused)), { status: 200 })
  const [after] = (await accountsOf(people.alice)).filter(({ resource }) => resource === 'mail')
  t.strictSame(after?.scopes, ['files', 'mail'])
  t.not(after?.account, before?.account, 'it is another account, which has replaced the first')
  t.equal(textOf(await call('alice', 'mail.send')), 'alice')
})

await t.test('an answer of the issuer counts once, for the browser and person that began', async (t) => {
  const bob = person('bob')
  const page = await stage.begin(bob, linkIn(await call('bob', 'mail.send')))
  const state = page.searchParams.get('state') ?? ''
  t.equal(page.searchParams.get('code_challenge_method'), 'S256')
  t.equal(page.searchParams.get('redirect_uri'), `${PEOPLE_URL}/oauth/account/callback`)
  t.equal(page.searchParams.get('resource'), servers.mail.url)
  const back = (query: object) =>
    new URL(
      `/oauth/account/callback?${new URLSearchParams({ ...query, state, iss: stage.issuer.url }).toString()}`,
      PEOPLE_URL,
    )
  const alice = person('alice')
  await alice.follow(new URL('/account', PEOPLE_URL), stage.provider)
  t.match(await alice.visit(back({ code: 'x' })), { status: 400 }, 'another browser')
  const refused = await bob.visit(back({ error: 'access_denied' }))
  t.match(refused, { status: 403, text: /access_denied/ })
  const again = await bob.visit(back({ error: 'access_denied' }))
  t.equal(again.status, 400, 'it came before')
  t.notMatch(again.text, /access_denied/)
})

/** Its binding to `mail`. */
let ofBot = ''

await t.test('an operator connects an account for an agent', async (t) => {
  const bot = await stage.gateway.enroll('bot', ['mcp.tools.call'])
  const bind = ({ resource_id }: Json) =>
    admin('POST', '/v1/admin/mcp-resources/bindings', { agent_id: 'acme::bot', resource_id })
  ofBot = (await bind(resources.mail)).json.binding_id
  const ask = (name = 'mail.whose') =>
    stage.gateway.call(bot, 'POST', '/v1/mcp', request('tools/call', { params: { name, arguments: {} } }))
  const refused = (await ask()).json
  t.match(refused.error, { code: -31008, data: { url: /\/proxy\/connect\// }, message: /An operator/ })
  const path = new URL(linkIn(refused)).pathname
  const helper = await signedInAs(stage.gateway, await operatorNamed(stage.gateway, 'eve', ['admin.read']))
  t.equal((await helper.ask('GET', path)).status, 403, 'who may not enrol')
  const jar = await signedInAs(
    stage.gateway,
    await operatorNamed(stage.gateway, 'ann', ['admin.read', 'admin.enroll']),
  )
  const { text: page } = await jar.ask('GET', path)
  t.match(page, /acme::bot/)
  const handedOver = async (text: string): Promise<string> =>
    /content="0;url=([^"]+)"/.exec((await press(jar, text, 'Go on')).text)?.[1] ?? ''
  const next = await handedOver(page)
  t.ok(next.startsWith(`${PEOPLE_URL}/connect/as/`), next)
  t.match(await connect(person('robot'), next), { status: 200, text: /is connected/ })
  t.equal(textOf((await ask()).json), 'robot')
  await bind(resources.files)
  const second = new URL(linkIn((await ask('files.whose')).json)).pathname
  const toFiles = await handedOver((await jar.ask('GET', second)).text)
  t.match(await connect(person('robot'), toFiles), { status: 200 })
  t.match((await jar.ask('GET', '/proxy/agents/acme::bot')).text, 'Accounts at servers')
  const link = linkIn(
    await call('alice', 'files.send', { modern: true }).then(() => call('bob', 'mail.send')),
  )
  const others = new URL(link).pathname.replace('/connect/', '/proxy/connect/')
  t.equal((await jar.ask('GET', others)).status, 404, 'a person’s account is connected by that person alone')
})

await t.test('an account ends by its person, by an operator, and with its principal', async (t) => {
  const bob = person('bob')
  const { answer } = await bob.follow(new URL('/account', PEOPLE_URL), stage.provider)
  const token = /name="token" value="([^"]+)"/.exec(answer?.text ?? '')?.[1] ?? ''
  const [own] = (await accountsOf(people.bob)).filter(({ resource }) => resource === 'files')
  const [others] = await accountsOf(people.alice)
  const end = (account: string) => bob.visit(new URL('/account/accounts/end', PEOPLE_URL), { token, account })
  t.equal((await end(others?.account)).status, 404, 'nobody ends somebody else’s')
  t.equal((await end(own?.account)).status, 200)
  t.match((await call('bob', 'files.whose')).error, { code: -31008 })
  t.equal((await admin('DELETE', `/v1/admin/accounts/${others?.account}`)).status, 204)
  t.equal((await admin('DELETE', `/v1/admin/accounts/${others?.account}`)).status, 404)
  await admin('DELETE', `/v1/admin/mcp-resources/bindings/${ofBot}`)
  const left = await accountsOf('acme::bot')
  t.match(left, [{ resource: 'files' }], 'without its binding an account is over')
  await admin('DELETE', '/v1/admin/agents/acme::bot')
  t.strictSame(await accountsOf('acme::bot'), [])
  await admin('DELETE', `/v1/admin/mcp-resources/${resources.mail.resource_id}`)
  t.strictSame(await accountsOf(people.bob), [], 'and with its server')
  await admin('POST', `/v1/admin/users/${people.alice}/erase`, {})
  await stage.gateway.close()
  const rows = await stage.gateway.rows({ order: 'desc', limit: 1_000 })
  t.ok(rows.some(({ detail }) => detail.account_refreshed === true))
  t.ok(
    rows.some(
      ({ detail, status }) =>
        status === 'allowed' && typeof detail.account === 'string' && detail.account.startsWith('ua_'),
    ),
  )
  const ended = rows.filter(({ action }) => action === 'upstream_account.ended')
  t.strictSame(
    [...new Set(ended.map(({ detail: { why } }) => (typeof why === 'string' ? why : '')))].toSorted(),
    ['deactivated', 'erased', 'operator', 'person', 'replaced', 'resource_removed', 'unbound'],
  )
})
