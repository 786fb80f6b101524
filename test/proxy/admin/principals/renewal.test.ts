import { createPrivateKey, generateKeyPairSync, type KeyObject, X509Certificate } from 'node:crypto'
import { request } from 'node:https'
import t, { type Test } from 'tap'
import { certificateRequest } from '../../../../scripts/client/renewal/certificate-request.ts'
import { odd } from '../../../support/certs/made.ts'
import { clock } from '../../../support/clients/identity.ts'
import { nonceOf, type ProofSigner, proofSigner, provenChat } from '../../../support/dpop.ts'
import { corporateCa, type Foreign, trustDomain } from '../../../support/foreign.ts'
import {
  agentOf,
  CHAT,
  type Identity,
  type TestGateway,
  type TestOptions,
  testGateway,
} from '../../../support/gateway.ts'
import { signedInBySecret } from '../../../support/oidc/jar.ts'

const PATH = '/v1/auth/certificate'
const DAY_S = 86_400
const newKey = (): KeyObject => generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey
const pemOf = (key: KeyObject): string => String(key.export({ type: 'pkcs8', format: 'pem' }))

/** A gateway whose clock is moved, and an agent in the last third of its certificate's 90 days. */
async function scene(t: Test, options: TestOptions = {}) {
  const time = clock()
  const gateway = await testGateway(t, { clock: time.now, ...options })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const renew = (who: Identity, key: KeyObject = newKey()) =>
    gateway.call(who, 'POST', PATH, { body: { csr_pem: certificateRequest(key) } })
  return { time, gateway, bot, renew }
}

const chat = async (gateway: TestGateway, who: Identity): Promise<number> =>
  (await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })).status

t.test('docs/protocol.md#renewal an agent renews its certificate by itself, with one row', async (t) => {
  const { time, gateway, bot, renew } = await scene(t)
  time.move(61 * DAY_S)
  const key = newKey()
  const { status, json, text } = await renew(bot, key)
  t.equal(status, 200, text)
  const next = { id: bot.id, cert: json.cert_chain_pem, key: pemOf(key) }
  t.ok(new X509Certificate(next.cert).checkPrivateKey(createPrivateKey(next.key)), 'for the key that it made')
  t.match(json, { agent_id: 'acme::bot', cert_thumbprint: /^[0-9a-f]{64}$/ })
  t.equal(Date.parse(json.cert_not_after) - time.now() > 89 * DAY_S * 1000, true)
  t.equal(Date.parse(json.previous_valid_until), time.now() + 48 * 3_600_000, 'the grace that is configured')
  t.equal(await chat(gateway, next), 200)
  t.equal(await chat(gateway, bot), 200, 'the one before, in its grace')
  time.move(2 * DAY_S)
  t.equal(await chat(gateway, bot), 401)
  t.equal(await chat(gateway, next), 200)
  const rows = await gateway.rows({ action: 'agent.certificate_issued' })
  t.equal(rows.length, 1)
  t.match(rows[0], {
    principal_id: 'acme::bot',
    principal_type: 'agent',
    status: 'success',
    request_id: /^req_/,
    detail: { subject: 'acme::bot', via: 'certificate', cert_thumbprint: json.cert_thumbprint },
  })
})

t.test('users and workloads renew theirs as well', async (t) => {
  const { time, gateway, renew } = await scene(t)
  const made: Identity[] = []
  for (const [kind, field] of [
    ['users', 'user_name'],
    ['workloads', 'workload_name'],
  ] as const) {
    const created = await gateway.admin('POST', `/v1/admin/${kind}`, {
      [field]: 'ann',
      capabilities: ['llm.chat'],
    })
    const id = created.json.principal_id
    const key = newKey()
    const path = `/v1/admin/${kind}/${encodeURIComponent(id)}/certificate`
    const { json } = await gateway.admin('POST', path, { csr_pem: certificateRequest(key) })
    made.push({ id, cert: json.cert_chain_pem, key: pemOf(key) })
  }
  time.move(61 * DAY_S)
  for (const who of made) {
    const key = newKey()
    const { status, json, text } = await renew(who, key)
    t.equal(status, 200, text)
    t.equal(json.principal_id, who.id)
    t.equal(await chat(gateway, { ...who, cert: json.cert_chain_pem, key: pemOf(key) }), 200)
  }
})

t.test(
  'a certificate is renewed in the last third of its life, and not before: no loop rotates it',
  async (t) => {
    const { time, gateway, bot, renew } = await scene(t)
    const early = await renew(bot)
    t.match(early, { status: 409, json: { reason: 'renewal_refused', renewable_from: /^20/ } })
    t.match(early.json.message, /renewed only in the last third of its life: this one from 20..-..-..T/)
    time.move((Date.parse(early.json.renewable_from) - time.now()) / 1000)
    const key = newKey()
    const { status, json } = await renew(bot, key)
    t.equal(status, 200)
    const next = { ...bot, cert: json.cert_chain_pem, key: pemOf(key) }
    t.match(await renew(next), { status: 409, json: { reason: 'renewal_refused' } }, 'the new one is young')
    t.equal((await gateway.rows({ action: 'agent.certificate_issued' })).length, 1)
  },
)

t.test('a certificate whose place was taken renews nothing: its holder hears that', async (t) => {
  const { time, gateway, bot, renew } = await scene(t)
  time.move(61 * DAY_S)
  t.equal((await renew(bot)).status, 200, 'by whoever')
  t.match(await renew(bot), {
    status: 409,
    json: { message: /^Another certificate has replaced this one\. If that was not you, tell/ },
  })
  t.equal(await chat(gateway, bot), 200, 'its grace is as before')
})

t.test('an answer that was lost is given again, for the same key, with no second row', async (t) => {
  const { time, gateway, bot, renew } = await scene(t)
  time.move(61 * DAY_S)
  const key = newKey()
  const [one, two, three] = [
    ...(await Promise.all([renew(bot, key), renew(bot, key)])),
    await renew(bot, key),
  ]
  t.equal(one.status, 200)
  t.equal(one.json.cert_pem, two.json.cert_pem)
  t.equal(one.json.cert_pem, three.json.cert_pem)
  t.equal((await gateway.rows({ action: 'agent.certificate_issued' })).length, 1)
})

t.test('of two keys at once one is certified', async (t) => {
  const { time, gateway, bot, renew } = await scene(t)
  time.move(61 * DAY_S)
  const answers = await Promise.all([renew(bot), renew(bot), renew(bot)])
  t.same(
    answers.map(({ status }) => status).toSorted((a, b) => a - b),
    [200, 409, 409],
  )
  t.equal((await gateway.rows({ action: 'agent.certificate_issued' })).length, 1)
})

t.test('who is deactivated renews nothing, also where that happens while the request comes', async (t) => {
  const { time, gateway, bot, renew } = await scene(t)
  time.move(61 * DAY_S)
  const body = JSON.stringify({ csr_pem: certificateRequest(newKey()) })
  const headers = {
    'content-type': 'application/json',
    'content-length': String(body.length),
    expect: '100-continue',
  }
  const agent = agentOf(gateway.ca, bot)
  const slow = request(gateway.url + PATH, { method: 'POST', agent, headers })
  const answered = new Promise<number | undefined>((resolve) =>
    slow.on('response', (res) => resolve(res.statusCode)),
  )
  slow.flushHeaders()
  await new Promise((resolve) => slow.on('continue', resolve))
  await gateway.admin('DELETE', '/v1/admin/agents/acme::bot')
  slow.end(body)
  t.equal(await answered, 401)
  agent.destroy()
  t.match(await renew(bot), { status: 401, json: { reason: 'principal_deactivated' } })
  t.equal((await gateway.rows({ action: 'agent.certificate_issued' })).length, 0)
})

t.test('deactivating ends every certificate that came of a stolen one', async (t) => {
  const { time, gateway, bot, renew } = await scene(t)
  time.move(61 * DAY_S)
  const key = newKey()
  const { json } = await renew(bot, key)
  const thief = { ...bot, cert: json.cert_chain_pem, key: pemOf(key) }
  t.equal(await chat(gateway, thief), 200)
  await gateway.admin('DELETE', '/v1/admin/agents/acme::bot')
  time.move(61 * DAY_S)
  t.equal(await chat(gateway, thief), 401)
  t.equal((await renew(thief)).status, 401)
})

t.test('an SVID, and a certificate that nobody here issued, are renewed by their own CA', async (t) => {
  const { gateway, renew } = await scene(t)
  const spire = await trustDomain()
  const svid = await spire.svid('spiffe://spire.test/bot')
  const enrolled = await gateway.admin('POST', '/v1/admin/agents/enroll/spiffe', {
    agent_name: 'svid-bot',
    capabilities: ['llm.chat'],
    svid_pem: svid.certPem,
    svid_key_pem: svid.keyPem,
    trust_bundle_pem: svid.caPem,
  })
  t.equal(enrolled.status, 201)
  t.match(await renew({ id: '', cert: svid.certPem, key: svid.keyPem }), {
    status: 409,
    json: {
      reason: 'renewal_refused',
      message: 'This certificate was not issued here. Renew it with the CA that issued it.',
    },
  })
})

/** A gateway and an agent with a leaf of its organisation's own CA. */
async function byocaScene(t: Test) {
  const time = clock()
  const gateway = await testGateway(t, { clock: time.now })
  const corporate = await corporateCa(time.now())
  const old = await corporate.leaf('bot')
  const attached = { ca_pem: corporate.caPem, kind: 'organisation' }
  await gateway.admin('POST', '/v1/admin/ca/attach', attached)
  const enrolled = await gateway.admin('POST', '/v1/admin/agents/enroll/byoca', {
    ...{ agent_name: 'bot', capabilities: ['llm.chat'], cert_pem: old.certPem, private_key_pem: old.keyPem },
  })
  t.equal(enrolled.status, 201)
  const rows = () => gateway.rows({ action: 'agent.certificate_renewed' })
  const who = ({ certPem, keyPem }: Foreign): Identity => ({ id: 'acme::bot', cert: certPem, key: keyPem })
  return { time, gateway, corporate, old: who(old), rows, who }
}

/** The body that brings a leaf, with a request that a key has signed: its own, or another one. */
const bringing = ({ certPem, keyPem }: Foreign, signer = keyPem) => ({
  ...{ cert_pem: certPem, csr_pem: certificateRequest(createPrivateKey(signer)) },
})
const LEAF = '/v1/admin/agents/acme::bot/certificate'

t.test('a leaf that its own CA has renewed is put by an operator, with grace and one row', async (t) => {
  const { time, gateway, corporate, old, rows, who } = await byocaScene(t)
  time.move(DAY_S)
  const next = await corporate.leaf('bot', time.now())
  t.equal(await chat(gateway, who(next)), 401, 'nobody, as long as nobody says so')
  const { etag } = (await gateway.admin('GET', '/v1/admin/agents/acme::bot')).headers
  const stranger = await (await corporateCa(time.now())).leaf('bot')
  for (const [body, reason] of [
    [bringing(next, pemOf(newKey())), 'key_mismatch'],
    [bringing(stranger), 'chain_invalid'],
    [bringing(await corporate.leaf('other', time.now())), 'spiffe_mismatch'],
    [{ ...bringing(next), csr_pem: 'no' }, 'certificate_unreadable'],
    [{ ...bringing(next), private_key_pem: next.keyPem }, 'body_unprocessable'],
  ] as const)
    t.match(await gateway.admin('PUT', LEAF, body), { status: 422, json: { reason } }, reason)
  t.equal((await rows()).filter(({ status }) => status === 'success').length, 0)
  const put = await gateway.admin('PUT', LEAF, bringing(next), { 'if-match': String(etag) })
  t.match(put, { status: 200, json: { agent_id: 'acme::bot', cert_thumbprint: /^[0-9a-f]{64}$/ } })
  t.equal(Date.parse(put.json.previous_valid_until), time.now() + 48 * 3_600_000)
  for (const one of [old, who(next)]) t.equal(await chat(gateway, one), 200)
  const again = await gateway.admin('PUT', LEAF, bringing(next))
  t.match(again, { status: 200, json: { previous_valid_until: null } }, 'the same one changes nothing')
  const stale = { 'if-match': String(etag) }
  t.equal((await gateway.admin('PUT', LEAF, bringing(next), stale)).status, 412)
  time.move(2 * DAY_S)
  t.equal(await chat(gateway, old), 401, 'its grace is over')
  t.equal(await chat(gateway, who(next)), 200)
  const made = (await rows()).filter(({ status }) => status === 'success')
  t.match(made, [{ detail: { subject: 'acme::bot', cert_thumbprint: put.json.cert_thumbprint } }])
  t.equal(made.length, 1)
  t.match((await gateway.admin('POST', '/v1/admin/audit/verify')).json, { ok: true })
  await gateway.enroll('minted', ['llm.chat'])
  t.match(await gateway.admin('PUT', '/v1/admin/agents/acme::minted/certificate', bringing(next)), {
    status: 409,
    json: { message: 'This agent has no certificate of its own CA to renew.' },
  })
})

t.test('an agent brings the leaf that its own CA has renewed, at the word of the one before', async (t) => {
  const { time, gateway, corporate, old, rows, who } = await byocaScene(t)
  const [before, next] = [await corporate.leaf('bot', time.now() - 60_000), await corporate.leaf('bot')]
  const ask = (one: Identity, body: object) => gateway.call(one, 'POST', PATH, { body })
  const bare = await odd({ name: 'acme::bot', extensions: [] })
  t.match(await ask(old, bringing(next, pemOf(newKey()))), { status: 422, json: { reason: 'key_mismatch' } })
  t.match(await ask(old, { ...bringing(next), cert_pem: bare.pem }), { status: 422 })
  t.match(await ask(old, bringing(before)), { status: 409, json: { message: /older than the one/ } })
  t.match(await ask(who(next), bringing(next)), { status: 401 }, 'not by itself')
  t.match(await ask(old, bringing(next)), { status: 200, json: { agent_id: 'acme::bot' } })
  t.match(await ask(old, bringing(next)), { status: 200 }, 'an answer that was lost')
  for (const one of [old, who(next)]) t.equal(await chat(gateway, one), 200)
  const third = await corporate.leaf('bot')
  t.match(await ask(old, bringing(third)), { status: 409, json: { reason: 'renewal_refused' } })
  t.equal(await chat(gateway, who(third)), 401, 'the one in grace has no say')
  t.match(await rows(), [{ principal_id: 'acme::bot', detail: { via: 'certificate' } }])
  t.equal((await rows()).length, 1)
  const minted = await gateway.enroll('minted', ['llm.chat'])
  t.match(await ask(minted, bringing(third)), { status: 409, json: { reason: 'renewal_refused' } })
})

t.test('a proof is demanded where the mode says so, and none but a request for a key is taken', async (t) => {
  const { time, gateway, bot, renew } = await scene(t, {
    settings: { MCP_PROXY_EGRESS_DPOP_MODE: 'required' },
  })
  time.move(61 * DAY_S)
  t.match(await renew(bot), { status: 401, json: { reason: 'proof_required' } })
  const optional = await scene(t)
  optional.time.move(61 * DAY_S)
  const ask = (body: unknown) => optional.gateway.call(optional.bot, 'POST', PATH, { body })
  t.match(await ask({}), { status: 422, json: { reason: 'body_unprocessable' } })
  t.match(await ask({ csr_pem: 'no' }), { status: 422, json: { reason: 'certificate_unreadable' } })
  t.match(await ask({ csr_pem: 'no', grace_hours: 720 }), {
    status: 422,
    json: { reason: 'body_unprocessable' },
  })
  t.match(await gateway.call(null, 'POST', PATH, { body: {} }), {
    status: 401,
    json: { reason: 'certificate_required' },
  })
})

t.test('a principal asks ten times a minute at most', async (t) => {
  const { bot, renew } = await scene(t)
  const key = newKey()
  const statuses: number[] = []
  for (let i = 0; i < 11; i += 1) statuses.push((await renew(bot, key)).status)
  t.same(statuses, [...Array.from({ length: 10 }, () => 409), 429])
  const throttled = await renew(bot, key)
  t.match(throttled.json, { reason: 'renewal_throttled' })
  t.ok(Number(throttled.headers['retry-after']) > 0)
})

const TEN_SECONDS_MS = 10_000

t.test(
  'a certificate is ended at once by its thumbprint, in its grace or current, with one row',
  async (t) => {
    const { gateway, bot } = await scene(t)
    const path = `/v1/admin/agents/${bot.id}`
    const { json: rotated } = await gateway.admin('POST', `${path}/rotate-cert`, {})
    const next = { id: bot.id, cert: rotated.cert_chain_pem, key: rotated.private_key_pem }
    t.equal(await chat(gateway, bot), 200, 'in its grace')
    const { json: listed } = await gateway.admin('GET', `${path}/certificates`)
    t.match(listed, [
      { current: true, honoured_until: null },
      { current: false, honoured_until: rotated.previous_valid_until },
    ])
    t.equal((await gateway.admin('GET', path)).json.previous_cert_until, rotated.previous_valid_until)
    const [{ cert_thumbprint: current }, { cert_thumbprint: stolen }] = listed
    const from = performance.now()
    t.equal((await gateway.admin('DELETE', `${path}/certificates/${stolen}`)).status, 204)
    t.equal(await chat(gateway, bot), 401, 'on the connection that is open, too')
    t.ok(performance.now() - from < TEN_SECONDS_MS)
    t.equal(await chat(gateway, next), 200, 'the other one is as it was')
    t.match(await gateway.admin('DELETE', `${path}/certificates/${stolen}`), { status: 404 }, 'it has ended')
    t.equal((await gateway.admin('GET', path)).json.previous_cert_until, null)
    const read = { 'if-match': '"1"' }
    t.equal((await gateway.admin('DELETE', `${path}/certificates/${current}`, undefined, read)).status, 412)
    const eve = await gateway.enroll('eve', ['llm.chat'])
    const others = `/v1/admin/agents/${eve.id}/certificates/${current}`
    t.equal((await gateway.admin('DELETE', others)).status, 404, 'it is somebody else’s')
    t.equal(await chat(gateway, next), 200)
    t.equal((await gateway.admin('DELETE', `${path}/certificates/${current}`)).status, 204)
    t.equal(await chat(gateway, next), 401)
    t.match((await gateway.admin('GET', path)).json, { cert_thumbprint: null, is_active: true })
    const rows = await gateway.rows({ action: 'agent.certificate_ended', order: 'asc' })
    t.match(rows, [
      { detail: { ended: [stolen], thumbprints: [[current, null]] } },
      { detail: { ended: [current], thumbprints: [] } },
    ])
    t.equal(rows.length, 2)
    const answer = await gateway.admin('POST', '/v1/admin/audit/verify')
    t.equal(answer.json.ok, true, answer.text)
  },
)

t.test('a proof key in its grace is ended at once, and the current one is not', async (t) => {
  const { gateway, bot } = await scene(t)
  const path = `/v1/admin/agents/${bot.id}`
  const [stolen, next] = [proofSigner(), proofSigner()]
  const first = (await gateway.admin('POST', `${path}/dpop-jwk`, stolen.jwk)).json.dpop_jkt
  const second = (await gateway.admin('POST', `${path}/dpop-jwk`, next.jwk)).json.dpop_jkt
  const { json } = await gateway.admin('GET', path)
  t.match(json, { dpop_jkt: second, previous_dpop_jkt: first, previous_dpop_jkt_until: /^20/ })
  t.match(await gateway.admin('DELETE', `${path}/dpop-jwk/${second}`), {
    status: 409,
    json: { message: /^This is the current key\. Register another/ },
  })
  t.equal((await gateway.admin('DELETE', `${path}/dpop-jwk/${first}`)).status, 204)
  t.equal((await gateway.admin('DELETE', `${path}/dpop-jwk/${first}`)).status, 404)
  t.match((await gateway.admin('GET', path)).json, { dpop_jkt: second, previous_dpop_jkt: null })
  const [row] = await gateway.rows({ action: 'agent.dpop_key_ended' })
  t.match(row?.detail, { ended: [first], dpop_jkts: [[second, null]] })
})

t.test(
  'a key that signs the calls of a principal without one is adopted, by the calls that show it',
  async (t) => {
    const gateway = await testGateway(t)
    const [bot, other] = [
      await gateway.enroll('bot', ['llm.chat']),
      await gateway.enroll('other', ['llm.chat']),
    ]
    const path = `/v1/admin/agents/${bot.id}`
    const [own, thief, stale] = [proofSigner(), proofSigner(), proofSigner()]
    const page = async () =>
      (await (await signedInBySecret(gateway)).ask('GET', `/proxy/agents/${bot.id}`)).text
    const chat = async (who: Identity, signer: ProofSigner): Promise<number> =>
      (await provenChat(gateway, who, signer, { nonce: await nonceOf(gateway, who) })).status
    t.notMatch(await page(), 'No proof key', 'nothing can be adopted yet: no warning')
    t.same((await gateway.admin('GET', `${path}/dpop-jwk`)).json, { keys: [], unsigned_calls: 0 })

    t.equal(await chat(bot, stale), 200)
    const rotated = (await gateway.admin('POST', `${path}/rotate-cert`, { grace_hours: 0 })).json
    const now = { id: bot.id, cert: rotated.cert_chain_pem, key: rotated.private_key_pem }
    t.equal((await gateway.call(now, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
    t.equal(await chat(other, thief), 200)
    for (const _ of [1, 2]) t.equal(await chat(now, own), 200)
    const { keys, unsigned_calls: unsigned } = (await gateway.admin('GET', `${path}/dpop-jwk`)).json
    t.match(keys, [{ dpop_jkt: own.jkt, calls: 2 }], 'of calls by a certificate that counts, and its own')
    t.equal(keys.length, 1)
    t.equal(unsigned, 1)
    const shown = await page()
    t.match(shown, 'No proof key')
    t.match(shown, `/dpop-jwk/${own.jkt}/adopt`)

    for (const jkt of [thief.jkt, stale.jkt, 'x'])
      t.equal((await gateway.admin('POST', `${path}/dpop-jwk/${jkt}/adopt`)).status, 404)
    const jar = await signedInBySecret(gateway)
    const { csrf } = (await jar.ask('GET', '/v1/admin/session')).json
    const adopted = await jar.send(`/proxy/agents/${bot.id}/dpop-jwk/${own.jkt}/adopt`, { csrf })
    t.match(adopted.headers.location, 'notice=key_adopted')
    const [row] = await gateway.rows({ action: 'agent.dpop_jwk_set' })
    t.match(row?.detail, { dpop_jkt: own.jkt, previous: null, dpop_jkts: [[own.jkt, null]] })
    t.same(row?.detail.seen_in, keys[0].request_ids)
    t.notMatch(await page(), 'No proof key')
    t.equal((await gateway.admin('POST', `${path}/dpop-jwk/${own.jkt}/adopt`)).status, 409)
    t.equal(await chat(now, own), 200)
    t.equal(await chat(now, thief), 401)
  },
)
