import { generateKeyPairSync } from 'node:crypto'
import t, { type Test } from 'tap'
import { standingCards } from '../../../proxy/dashboard/attention/standing.ts'
import { freePort } from '../../../scripts/free-port.ts'
import { signedInAs } from '../../support/dashboard/signed-in.ts'
import { asOwner } from '../../support/db/owner.ts'
import { proof, proofSigner } from '../../support/dpop.ts'
import { trustDomain } from '../../support/foreign.ts'
import { type TestGateway, testGateway, writeFiles } from '../../support/gateway.ts'
import { mcpStage, tool, toolServer } from '../../support/mcp/stage.ts'
import { type Jar, signedInBySecret } from '../../support/oidc/jar.ts'
import { operatorNamed } from '../../support/operators.ts'
import { eventually } from '../../support/settled.ts'

t.setTimeout(120_000)

const CHAT = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }
const FORM = { 'content-type': 'application/x-www-form-urlencoded' }
const FINE = {
  diskLow: false,
  clockOffS: 0,
  ledgerFailing: false,
  rejected: null,
  providers: [],
  unserved: [],
  told: [],
}
const DAY_MS = 86_400_000

const namesIn = (page: string): readonly string[] =>
  [...page.matchAll(/<a class="row"[^>]*>([^<]+)</g)].map(([, name = '']) => name)

const found = async (t: Test, jar: Jar, q: string): Promise<readonly string[]> => {
  const { status, text } = await jar.ask('GET', `/proxy/agents?${new URLSearchParams({ q }).toString()}`)
  t.equal(status, 200, q)
  return namesIn(text)
}

await t.test(
  'while proofs are optional, whoever has no proof key is counted on one card, which leads to the search',
  async (t) => {
    const gateway = await testGateway(t)
    const jar = await signedInBySecret(gateway)
    t.match((await jar.ask('GET', '/proxy')).text, 'All is well')
    for (const name of ['a', 'b', 'gone']) await gateway.enroll(name, [])
    await gateway.admin('DELETE', '/v1/admin/agents/acme::gone')
    await gateway.admin('POST', '/v1/admin/users', { user_name: 'ada' })
    const { text } = await jar.ask('GET', '/proxy')
    const [, link = ''] = /href="([^"]+)">2 agents</.exec(text) ?? []
    t.match(text, '>1 user<')
    t.notMatch(text, 'workload<')
    t.same(namesIn((await jar.ask('GET', link)).text), ['b', 'a'])
    t.same(await found(t, jar, 'is:keyless is:inactive'), ['gone'])
    const jwk = generateKeyPairSync('ed25519').publicKey.export({ format: 'jwk' })
    const set = await gateway.admin('POST', '/v1/admin/agents/acme::a/dpop-jwk', jwk)
    t.equal(set.status, 200, set.text)
    t.same(await found(t, jar, 'is:keyless is:active'), ['b'])
    t.match((await jar.ask('GET', '/proxy')).text, '>1 agent<')
  },
)

await t.test('where proofs are required there is no such card: nobody calls without one', async (t) => {
  const gateway = await testGateway(t, { settings: { MCP_PROXY_EGRESS_DPOP_MODE: 'required' } })
  await gateway.enroll('a', [])
  t.match((await (await signedInBySecret(gateway)).ask('GET', '/proxy')).text, 'All is well')
})

await t.test(
  'denied:today and denied:1d find who was refused then, and tell it to whoever may read the ledger alone',
  async (t) => {
    const noon = Math.floor(Date.now() / DAY_MS) * DAY_MS + DAY_MS / 2
    let at = noon - DAY_MS
    const gateway = await testGateway(t, { clock: () => at })
    const [none, bot] = [await gateway.enroll('none', []), await gateway.enroll('bot', ['llm.chat'])]
    const call = (who: typeof none) => gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })
    t.equal((await call(none)).status, 403)
    at = noon
    t.equal((await call(bot)).status, 200)
    const jar = await signedInBySecret(gateway)
    for (const [q, names] of [
      ['denied:today', []],
      ['denied:23h', []],
      ['denied:2d', ['none']],
      ['denied:<2d bot', []],
      ['denied:2d is:empty', ['none']],
    ] as const)
      t.same(await found(t, jar, q), names, q)
    await gateway.admin('PATCH', '/v1/admin/agents/acme::bot/capabilities', { capabilities: [] })
    t.equal((await call(bot)).status, 403)
    t.same(await found(t, jar, 'denied:today'), ['bot'])
    t.same(await found(t, jar, 'denied:1h'), ['bot'])
    for (const wrong of ['denied:soon', 'denied:']) {
      const { status } = await gateway.admin('GET', `/v1/admin/agents?q=${wrong}`)
      t.equal(status, 422, wrong)
    }
    const reader = await operatorNamed(gateway, 'reader', ['admin.read'])
    const own = await signedInAs(gateway, reader)
    const refused = await own.ask('GET', '/proxy/agents?q=denied:today')
    t.equal(refused.status, 403)
    t.match(refused.text, 'admin.audit')
    t.equal((await own.ask('GET', '/v1/admin/users?q=denied:today')).status, 403)
    t.equal((await own.ask('GET', '/proxy/agents?q=is:keyless')).status, 200)
  },
)

await t.test(
  'an attached CA that ends is shown, and an SVID once it has ended: until then its issuer renews it',
  async (t) => {
    let at = Date.now()
    const gateway = await testGateway(t, { clock: () => at })
    const spire = await trustDomain()
    await gateway.admin('POST', '/v1/admin/ca/attach', { ca_pem: spire.caPem, kind: 'spiffe' })
    const { certPem, keyPem } = await spire.svid('spiffe://spire.test/bot')
    const body = { agent_name: 'bot', svid_pem: certPem, svid_key_pem: keyPem }
    t.equal((await gateway.admin('POST', '/v1/admin/agents/enroll/spiffe', body)).status, 201)
    const attention = async () => (await (await signedInBySecret(gateway)).ask('GET', '/proxy')).text
    const before = await attention()
    t.match(before, 'Attached CAs that end within 30 days')
    t.notMatch(before, 'Certificates that end within 30 days')
    // Certificates count in seconds: an hour less, so that it is one day for sure.
    at += 3 * DAY_MS - 3_600_000
    t.match(
      await attention(),
      /acme%3A%3Abot">bot<\/a> <time[^>]*>1 d ago<\/time> <span class="faint">its SVID/,
    )
    t.match((await (await signedInBySecret(gateway)).ask('GET', '/proxy/pki')).text, 'ends soon')
  },
)

await t.test(
  'last seen is the second of the last proven call, also of a refused one, and survives a stop',
  async (t) => {
    let at = Date.UTC(2026, 10, 20, 12, 10, 7)
    const gateway = await testGateway(t, { clock: () => at })
    const none = await gateway.enroll('none', [])
    const call = (headers = {}) => gateway.call(none, 'POST', '/v1/chat/completions', { body: CHAT, headers })
    const seen = async (): Promise<string> =>
      (await gateway.admin('GET', '/v1/admin/agents/acme::none')).json.last_seen_at
    t.equal((await call()).status, 403)
    const first = new Date(at).toISOString()
    t.equal(await eventually(seen, (is) => is !== null), first)
    at += 61_000
    t.equal((await call({ dpop: 'no.proof.here' })).status, 401)
    t.equal((await gateway.call(none, 'POST', '/v1/chat/completions', { body: 'no json' })).status, 400)
    const second = new Date(at).toISOString()
    t.equal(await eventually(seen, (is) => is === second), second)
    at += 61_000
    t.equal((await call({ dpop: 'no.proof.here' })).status, 401, 'who has not proven who it is')
    at += 61_000
    t.equal((await gateway.call(none, 'GET', '/v1/models')).status, 200, 'of which there is no row')
    const last = new Date(at).toISOString()
    await gateway.close()
    const settings = { MCP_PROXY_DATA_DIR: gateway.settings.dataDir }
    const again = await testGateway(t, { clock: () => at, settings })
    const jar = await signedInBySecret(again)
    for (const path of ['/proxy/agents', '/proxy/agents/acme::none'])
      t.match((await jar.ask('GET', path)).text, `>${last.slice(0, 19).replace('T', ' ')}<`, path)
  },
)

await t.test(
  'pages of the signed-out and nonce challenges are no refusals; a form of the signed-out is one',
  async (t) => {
    const gateway = await testGateway(t, { settings: { MCP_PROXY_EGRESS_DPOP_MODE: 'required' } })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    for (const path of ['/proxy', '/proxy/activity', '/proxy/agents/acme::bot'])
      t.equal((await gateway.call(null, 'GET', path)).status, 303, path)
    t.equal(
      (await gateway.call(null, 'POST', '/proxy/agents', { body: 'agent_name=x', headers: FORM })).status,
      303,
    )
    t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 401)
    const signer = proofSigner()
    const proven = (htu: string) => ({ dpop: proof(signer, { htm: 'POST', htu }) })
    const chat = `${gateway.url}/v1/chat/completions`
    const nonceless = { body: CHAT, headers: proven(chat) }
    t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', nonceless)).status, 401)
    const headers = { ...FORM, ...proven(`${gateway.url}/v1/auth/token`) }
    const token = { body: 'grant_type=client_credentials', headers }
    t.equal((await gateway.call(bot, 'POST', '/v1/auth/token', token)).json.error, 'use_dpop_nonce')
    await gateway.close()
    const reasons = (await gateway.rows({ status: 'denied' })).map(({ detail }) => detail.reason)
    t.same(new Set(reasons), new Set(['proof_required', 'signed_out']))
  },
)

/** What Attention shows, and the number that stands in the navigation of another page. */
async function attentionOf(gateway: TestGateway, signedIn?: Jar) {
  const jar = signedIn ?? (await signedInBySecret(gateway))
  const { text } = await jar.ask('GET', '/proxy')
  const other = (await jar.ask('GET', '/proxy/agents')).text
  const count = (page: string) => Number(/id="attention-count"[^>]*>(\d+)</.exec(page)?.[1] ?? 0)
  t.equal(count(text), count(other), 'both pages count the same')
  return { jar, text, count: count(other), lines: namesIn(text) }
}

await t.test(
  'equal refusals are one line with a count, and what was granted or given a call since is gone',
  async (t) => {
    let at = Date.UTC(2026, 10, 20, 12)
    const files = { '20-dpop.yaml': 'plugin: dpop\negress_dpop_mode: optional\n' }
    const gateway = await testGateway(t, { clock: () => at, files })
    const [bot, other] = [await gateway.enroll('bot', []), await gateway.enroll('other', [])]
    const chat = (who: typeof bot) => gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })
    for (let n = 0; n < 3; n += 1) {
      t.equal((await chat(bot)).status, 403)
      at += 60_000
    }
    t.equal((await chat(other)).status, 403)
    const before = await attentionOf(gateway)
    t.same(before.lines, ['model call gpt-4o-mini', 'model call gpt-4o-mini'])
    t.equal(before.count, 3, 'two kinds of refusals, and the card of no proof keys')
    t.match(before.text, /acme::bot<.*lacks llm\.chat.*capability_missing.*<td class="number">3<\/td>/s)
    t.match(before.text, 'title="2026-11-20T12:00:00.000Z"')
    t.match(before.text, 'title="2026-11-20T12:02:00.000Z"')
    await gateway.admin('PATCH', '/v1/admin/agents/acme::bot/capabilities', { capabilities: ['llm.chat'] })
    const after = await attentionOf(gateway)
    t.same([after.lines.length, after.count], [1, 2], 'granted')
    t.notMatch(after.text, 'acme::bot<')
    await gateway.admin('DELETE', '/v1/admin/agents/acme::other')
    const { lines, count } = await attentionOf(gateway)
    t.same([lines.length, count], [0, 1], 'whoever cannot call any more needs nothing')
  },
)

await t.test(
  'Not now hides one card until then, for everybody, with a row, and its next news not',
  async (t) => {
    let at = Date.UTC(2026, 10, 20, 12)
    const gateway = await testGateway(t, { clock: () => at })
    const bot = await gateway.enroll('bot', [])
    await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    const { jar, text } = await attentionOf(gateway)
    const { csrf } = (await jar.ask('GET', '/v1/admin/session')).json
    const [, card = '', title = ''] =
      /name="card" value="(\w+)"><input type="hidden" name="title" value="(acme::bot[^"]+)"/.exec(text) ?? []
    const put = (fields: Record<string, string>, by = jar) =>
      by.send('/proxy/attention/not-now', {
        csrf,
        card,
        title,
        hours: '24',
        reason: 'Bob is on it',
        ...fields,
      })
    for (const wrong of [
      { reason: '' },
      { reason: '  ' },
      { hours: 'soon' },
      { hours: '9999' },
      { card: 'x' },
    ])
      t.equal((await put(wrong)).status, 422, JSON.stringify(wrong))
    t.equal((await put({})).status, 303)
    const hidden = await attentionOf(gateway)
    t.same(hidden.lines, [])
    t.match(hidden.text, /by admin: Bob is on it/)
    t.equal(hidden.count, 1, 'the other card stays')
    t.match((await gateway.rows({ action: 'admin.attention_deferred' })).at(0)?.detail, {
      ...{ title, reason: 'Bob is on it', until: '2026-11-21T12:00:00.000Z' },
    })
    await gateway.call(bot, 'POST', '/v1/chat/completions', { body: { ...CHAT, model: 'gpt-5' } })
    t.same((await attentionOf(gateway)).lines, ['model call gpt-5'], 'another refusal is shown')
    t.equal((await put({ hours: '0' })).status, 303)
    t.equal((await attentionOf(gateway)).lines.length, 2, 'shown again')
    t.equal((await gateway.rows({ action: 'admin.attention_restored' })).length, 1)
    await put({ hours: '4' })
    at += 5 * 3_600_000
    t.equal((await attentionOf(gateway)).lines.length, 2, 'its time is over')
    const reader = await operatorNamed(gateway, 'reader', ['admin.read', 'admin.audit'])
    const own = await signedInAs(gateway, reader)
    t.notMatch((await own.ask('GET', '/proxy')).text, 'name="hours"')
    const ownToken = (await own.ask('GET', '/v1/admin/session')).json.csrf
    t.equal((await put({ csrf: ownToken }, own)).status, 403)
  },
)

await t.test(
  'Attention knows a provider without a key or that fails, a model of nobody, a full disk, a bad file',
  async (t) => {
    const provider = (name: string, key: string, url: string, models: string) =>
      `  - { name: ${name}, dialect: openai, base_url: "${url}", api_key: "${key}", models: ["${models}"] }\n`
    const llm = (more: string): string =>
      `plugin: llm\nproviders:\n${provider('openai', 'sk-upstream-openai', 'UPSTREAM/v1', 'gpt-*')}${more}`
    const dead = `http://127.0.0.1:${await freePort()}`
    const gateway = await testGateway(t, {
      files: {
        '50-llm.yaml': llm(
          provider('bare', '', 'UPSTREAM/v1', 'bare-*') + provider('dead', 'sk-x', dead, 'dead-*'),
        ),
      },
      settings: { MCP_PROXY_DISK_RESERVE_MIB: '900000000' },
    })
    const jar = await signedInBySecret(gateway)
    const failing = await eventually(
      async () => (await attentionOf(gateway, jar)).text,
      (text) => text.includes('The provider dead fails'),
    )
    t.match(failing, 'The provider dead fails')
    t.match(failing, 'The provider bare has no key')
    t.match(failing, 'The disk is low')
    t.notMatch(failing, 'The provider openai')
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const asked = { body: { ...CHAT, model: 'llama-9' } }
    const unserved = await gateway.call(bot, 'POST', '/v1/chat/completions', asked)
    t.equal(unserved.json.error.code, 'model_unknown')
    t.match(
      (await attentionOf(gateway, jar)).text,
      /1 model that nobody serves.*<code>llama-9<\/code>: 1 call,/s,
    )
    const write = (text: string) =>
      writeFiles(gateway.pluginsDir, { '50-llm.yaml': text }, gateway.upstream.url)
    await write('plugin: llm\nproviders: nonsense\n')
    t.equal(await gateway.reload(), false)
    t.match((await attentionOf(gateway, jar)).text, /The configuration did not load.*50-llm\.yaml/s)
    await write(llm(provider('local', 'sk-x', 'UPSTREAM/v1', 'llama-*')))
    t.equal(await gateway.reload(), true)
    const settled = (await attentionOf(gateway, jar)).text
    for (const gone of ['did not load', 'nobody serves', 'The provider']) t.notMatch(settled, gone)
    t.match(settled, 'The disk is low')
    const broken = { ...FINE, ledgerFailing: true }
    const [card] = standingCards({ standing: () => broken }, { at: 0 })
    t.equal(card?.title.text, 'The ledger cannot be written')
  },
)

await t.test('a word that a search does not know, and a filter that is none, are said', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const jar = await signedInBySecret(gateway)
  for (const q of ['cpa:llm.chat', 'name:bot', 'team=red'])
    for (const path of ['/proxy/agents', '/v1/admin/agents', '/v1/admin/users']) {
      const { status, text } = await jar.ask('GET', `${path}?${new URLSearchParams({ q }).toString()}`)
      t.equal(status, 422, `${path} ${q}`)
      t.match(text, 'knows no', q)
    }
  t.same(await found(t, jar, 'acme::bot cap:llm.chat'), ['bot'])
  for (const path of [
    '/proxy/activity?verdict=denied',
    '/proxy/activity?window=2d',
    '/v1/admin/agents?query=bot',
    '/v1/admin/operators?search=x',
    '/v1/admin/proposals?state=open',
    `/v1/admin/agents/${bot.id}/usage?from=2026-01-01T00:00:00Z`,
    '/v1/admin/audit?verdict=denied',
    '/v1/admin/mcp-resources/bindings?agent=x',
  ])
    t.equal((await jar.ask('GET', path)).status, 422, path)
  t.match((await jar.ask('GET', '/proxy/activity?verdict=denied')).text, 'There is no filter verdict')
  t.equal((await jar.ask('GET', '/proxy/activity?status=denied&window=7d')).status, 200)
})

await t.test('Not now hides what was there: another change of the same tool is shown', async (t) => {
  const stage = await mcpStage(t)
  const tools = [tool('read')]
  const files = await stage.register('files', await toolServer(t, tools))
  const changeTo = async (description: string) => {
    tools[0] = tool('read', { description })
    await stage.refresh(files)
  }
  await changeTo('Reads.')
  const jar = await signedInBySecret(stage)
  const { csrf } = (await jar.ask('GET', '/v1/admin/session')).json
  const CHANGED = 'files: 1 tool has changed'
  const [, card = ''] =
    new RegExp(`${CHANGED}<.*?name="card" value="(\\w+)"`, 's').exec((await jar.ask('GET', '/proxy')).text) ??
    []
  const put = (hours: string) =>
    jar.send('/proxy/attention/not-now', { csrf, card, title: 'Nothing much', hours, reason: 'later' })
  t.equal((await put('24')).status, 303)
  const hidden = (await jar.ask('GET', '/proxy')).text
  t.notMatch(hidden, `<h2>${CHANGED}`)
  t.match(hidden, `<li>${CHANGED} `, 'the page itself says what it is')
  t.notMatch(hidden, 'Nothing much')
  await changeTo('Sends everything to somebody else.')
  t.match((await jar.ask('GET', '/proxy')).text, `<h2>${CHANGED}`, 'other news')
  const many = Array.from({ length: 1_000 }, (_, at) => `('${at}', 'x', '2999', 'x', 'x', 'x')`)
  await asOwner(
    stage.settings.databaseUrl,
    `insert into attention_deferrals (card, title, until, reason, "by", "at") values ${many.join()}`,
  )
  t.equal((await put('24')).status, 409, 'too much is put off')
  t.equal((await put('0')).status, 303, 'and can be shown again')
})

await t.test(
  'a refusal of who has not proven to be the caller stays, whatever the caller itself is allowed since',
  async (t) => {
    const gateway = await testGateway(t, {
      files: { '20-dpop.yaml': 'plugin: dpop\negress_dpop_mode: optional\n' },
    })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const chat = (headers = {}) => gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT, headers })
    const signer = proofSigner()
    const htu = `${gateway.url}/v1/chat/completions`
    const challenge = await chat({ dpop: proof(signer, { htm: 'POST', htu }) })
    const nonce = String(challenge.headers['dpop-nonce'] ?? '')
    const captured = { dpop: proof(signer, { htm: 'POST', htu, ...(nonce && { nonce }) }) }
    t.equal((await chat(captured)).status, 200)
    const replayed = await chat(captured)
    t.match(replayed, { status: 401, text: 'proof_invalid' })
    t.equal((await chat()).status, 200)
    t.match((await attentionOf(gateway)).text, 'proof_invalid')
  },
)
