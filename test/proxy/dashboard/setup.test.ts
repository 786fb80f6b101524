import { execFileSync } from 'node:child_process'
import { chmodSync } from 'node:fs'
import { join } from 'node:path'
import { calculateJwkThumbprint } from 'jose'
import t from 'tap'
import { readIdentity } from '../../../scripts/client/identity/identity.ts'
import { storedDpopKey } from '../../../scripts/client/signing/dpop-key.ts'
import { CHAT, scratch, testGateway } from '../../support/gateway.ts'
import { Jar, signedInBySecret } from '../../support/oidc/jar.ts'

const SECRET = 'correct-horse-of-ours'
const TWICE = { secret: SECRET, secret_again: SECRET }
const FORM = { 'content-type': 'application/x-www-form-urlencoded' }
const UNSET = { settings: { MCP_PROXY_ADMIN_SECRET: '' } }

await t.test(
  'first boot: the code on the terminal opens the page that sets the secret, and signs in',
  async (t) => {
    const gateway = await testGateway(t, UNSET)
    const code = gateway.setupCode
    const jar = new Jar(gateway)
    for (const wrong of ['', '?code=', '?code=AAAAA-AAAAA-AAAAA-AAAAA'])
      t.equal((await jar.ask('GET', `/proxy/setup${wrong}`)).status, 403, wrong)
    const page = await jar.ask('GET', `/proxy/setup?code=${code}`)
    t.equal(page.status, 200)
    t.match(page.text, '/pki/ca.crt')
    t.equal((await jar.send('/proxy/setup', { ...TWICE, code: 'AAAAA' })).status, 403)
    const typo = await jar.send('/proxy/setup', { ...TWICE, code, secret_again: `${SECRET}x` })
    t.equal(typo.status, 422)
    t.match(typo.text, 'do not match')
    t.equal((await jar.send('/proxy/setup', { secret: 'short', secret_again: 'short', code })).status, 422)
    t.notMatch(typo.text, SECRET, 'what was typed is not shown')
    t.equal(
      (await jar.send('/proxy/setup', { ...TWICE, code }, { origin: 'https://evil.example' })).status,
      403,
    )

    const set = await jar.send('/proxy/setup', { ...TWICE, code })
    t.equal(set.status, 303, set.text)
    t.equal(set.headers.location, '/proxy/setup/organisation')
    const agent = '/proxy/setup/agent'
    const third = await jar.ask('GET', agent)
    t.equal(third.status, 200, 'signed in')
    t.match(third.text, /aria-current="step">First agent</)
    const [, csrf = ''] = /name="csrf" value="([^"]+)"/.exec(third.text) ?? []
    const wrong = await jar.send(agent, { csrf, agent_name: 'first', capabilities: 'llm.chat, No-Good' })
    t.equal(wrong.status, 422)
    t.match(
      wrong.text,
      /<code>No-Good<\/code>.*value="first".*value="llm\.chat, No-Good"/s,
      'what was typed stays',
    )
    const enrolled = await jar.send(agent, { csrf, agent_name: 'first', capabilities: 'llm.chat' })
    t.match(enrolled.text, /aria-current="step">Connect</)
    t.equal(enrolled.status, 200, enrolled.text)
    t.match(enrolled.text, '-----BEGIN PRIVATE KEY-----')
    t.match(enrolled.text, 'OPENAI_BASE_URL')
    t.match(enrolled.text, 'data-wait="/proxy/agents/acme%3A%3Afirst/first-call"')
    t.equal(enrolled.headers['cache-control'], 'no-store')
    t.equal(
      (await jar.send(agent, { csrf, agent_name: 'first', capabilities: 'llm.chat' })).status,
      409,
      'shown once',
    )
    t.equal((await jar.ask('GET', agent)).headers.location, '/proxy/agents', 'it is for the first alone')
    const waited = async () => (await jar.ask('GET', '/proxy/agents/acme::first/first-call')).text
    t.match(await waited(), 'Waiting for the first call')
    const pem = (name: string): string =>
      new RegExp(`data-file="${name}">([^<]+)<`).exec(enrolled.text)?.[1] ?? ''
    const first = { id: 'acme::first', cert: pem('agent.crt'), key: pem('agent.key') }
    const token = { body: 'grant_type=client_credentials', headers: FORM }
    t.equal((await gateway.call(first, 'POST', '/v1/auth/token', token)).status, 200)
    t.match(await waited(), 'Waiting for the first call', 'a token is no call')
    t.equal((await gateway.call(first, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
    t.match(await waited(), 'The first call has arrived')

    for (const path of ['/proxy/setup', `/proxy/setup?code=${code}`])
      t.equal((await jar.ask('GET', path)).status, 404, 'closed for ever after')
    const late = await new Jar(gateway).send('/proxy/setup', { ...TWICE, code })
    t.equal(late.status, 404)
    t.match(late.text, 'its operator secret has been set', 'and the other is told')
    const actions = (await gateway.rows({ order: 'asc' })).map(({ action }) => action)
    t.same(
      actions.filter((one) => one.startsWith('admin.')),
      ['admin.secret_rotated', 'admin.sign_in'],
    )
  },
)

/** The text of an HTML attribute or element. */
const textOf = (escaped: string): string =>
  escaped.replaceAll('&quot;', '"').replaceAll('&#39;', "'").replaceAll('&amp;', '&')

await t.test('what the page of an enrolled agent shows to be saved is a whole identity', async (t) => {
  const gateway = await testGateway(t)
  const jar = await signedInBySecret(gateway)
  const [, csrf = ''] = /name="csrf" value="([^"]+)"/.exec((await jar.ask('GET', '/proxy/agents')).text) ?? []
  const { text } = await jar.send('/proxy/agents', { csrf, agent_name: 'whole', capabilities: 'llm.chat' })
  const shown = [...text.matchAll(/data-file="([a-z.-]+)">([^<]+)</g)]
  const files = Object.fromEntries(shown.map(([, name = '', content = '']) => [name, textOf(content)]))
  t.same(Object.keys(files).toSorted(), [
    'agent.crt',
    'agent.key',
    'ca-chain.pem',
    'dpop.jwk',
    'gateway.json',
    'org-ca.crt',
  ])
  const directory = t.testdir(files)
  t.equal(files['org-ca.crt'], gateway.ca)
  chmodSync(join(directory, 'agent.key'), 0o644)
  t.throws(() => readIdentity(directory), /chmod 600/, 'as browsers save it')
  t.match(text, 'chmod 600 agents/whole/agent.key', 'and the page says so')
  for (const name of ['agent.key', 'dpop.jwk']) chmodSync(join(directory, name), 0o600)
  const { url, agentId, cert, key } = readIdentity(directory)
  t.same({ url, agentId }, { url: gateway.url, agentId: 'acme::whole' })
  const { json: enrolled } = await gateway.admin('GET', '/v1/admin/agents/acme::whole')
  t.equal(enrolled.dpop_jkt, await calculateJwkThumbprint(storedDpopKey(directory) ?? {}), 'its proof key')
  t.equal((await gateway.rows({ action: 'agent.created' })).length, 1, 'by the one row')
  t.same(await gateway.rows({ action: 'agent.dpop_jwk_set' }), [])
  const again = await jar.send('/proxy/agents/acme::whole/rotate-cert', { csrf, proof_key: 'new' })
  const [, jwk = '{}'] = /data-file="dpop.jwk">([^<]+)</.exec(again.text) ?? []
  const { json: rotated } = await gateway.admin('GET', '/v1/admin/agents/acme::whole')
  t.equal(rotated.dpop_jkt, await calculateJwkThumbprint(JSON.parse(textOf(jwk))))
  t.match(rotated, { previous_dpop_jkt: enrolled.dpop_jkt, previous_dpop_jkt_until: /^20/ })
  t.notMatch((await jar.ask('GET', '/proxy/agents')).text, 'no proof key')
  const called = await gateway.call({ id: 'acme::whole', cert, key }, 'POST', '/v1/chat/completions', {
    body: CHAT,
  })
  t.equal(called.status, 200, called.text)
  t.match(textOf(text), '"stream": true', 'and the line to try it with streams')
  const [, pasted = ''] = /id="pasted">([^<]+)</.exec(text) ?? []
  const home = await scratch(t)
  execFileSync('sh', ['-c', textOf(pasted).replaceAll('&gt;', '>').replaceAll('&lt;', '<')], { cwd: home })
  t.equal(readIdentity(join(home, 'agents/whole')).key, key, 'one paste makes the folder')
})

await t.test(
  'a certificate is rotated in the browser: the new key is shown once, the one before has its grace',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const jar = await signedInBySecret(gateway)
    const [, csrf = ''] =
      /name="csrf" value="([^"]+)"/.exec((await jar.ask('GET', '/proxy/agents/acme::bot')).text) ?? []
    const sent = await jar.send('/proxy/agents/acme::bot/rotate-cert', { csrf })
    t.equal(sent.status, 200, sent.text)
    const [key = '', cert = ''] = [...sent.text.matchAll(/<pre class="copy[^>]*>([^<]+)</g)].map(
      ([, pem]) => pem ?? '',
    )
    for (const who of [{ ...bot, key, cert }, bot])
      t.equal((await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
    t.equal((await gateway.rows({ action: 'agent.cert_rotated' })).length, 1)
  },
)

await t.test('of two people who set up at once, one wins and the other is told', async (t) => {
  const gateway = await testGateway(t, UNSET)
  const { setupCode: code } = gateway
  const sent = await Promise.all(
    [1, 2, 3].map((n) =>
      new Jar(gateway).send('/proxy/setup', {
        code,
        secret: `${SECRET}-${n}`,
        secret_again: `${SECRET}-${n}`,
      }),
    ),
  )
  t.same(
    sent.map(({ status }) => status).toSorted((a, b) => a - b),
    [303, 404, 404],
  )
})

await t.test('guessed codes are throttled, and keep nobody out who has the right one', async (t) => {
  const gateway = await testGateway(t, UNSET)
  const jar = new Jar(gateway)
  for (let guess = 0; guess < 10; guess += 1)
    t.equal((await jar.ask('GET', `/proxy/setup?code=AAAAA-${guess}`)).status, 403)
  t.equal((await jar.ask('GET', '/proxy/setup?code=AAAAA-10')).status, 429)
  t.equal((await jar.ask('GET', `/proxy/setup?code=${gateway.setupCode}`)).status, 200)
})
