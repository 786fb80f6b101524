import {
  createPrivateKey,
  generateKeyPairSync,
  randomUUID,
  sign as signBytes,
  X509Certificate,
} from 'node:crypto'
import t from 'tap'
import { digitalSignatureKeyUsage, leafConstraints } from '../../../certs/authority/builder.ts'
import { type Bench, bench, boundTo, dpopToken, oauthError } from '../../support/auth/bench.ts'
import { caExtensions, type Odd, odd } from '../../support/certs/made.ts'
import { proof } from '../../support/dpop.ts'
import type { Answered, Identity } from '../../support/gateway.ts'

// The three calls of the Python helper (docs/protocol.md#python-helper).

type Members = Record<string, unknown>

const leafOf = ({ cert }: Identity): string => new X509Certificate(cert).raw.toString('base64')

/** An assertion as the helper makes it; what is given replaces what a correct one has. */
function assertion(b: Bench, who: Identity, nonce: string, over: Members = {}, header: Members = {}): string {
  const now = Math.floor(b.time.at / 1000)
  const claims = {
    iss: who.id,
    sub: who.id,
    aud: 'agent-trust-broker',
    iat: now,
    exp: now + 300,
    jti: randomUUID(),
    nonce,
    ...over,
  }
  const signed = [{ alg: 'ES256', typ: 'JWT', x5c: [leafOf(who)], ...header }, claims]
    .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
    .join('.')
  const key = { key: createPrivateKey(who.key), dsaEncoding: 'ieee-p1363' } as const
  return `${signed}.${signBytes('sha256', Buffer.from(signed), key).toString('base64url')}`
}

async function challenge(b: Bench, who = b.bot): Promise<string> {
  const { json } = await b.gateway.call(who, 'POST', '/v1/auth/login-challenge')
  return json.nonce
}

const sign = (b: Bench, text: unknown, nonce: unknown, who = b.bot): Promise<Answered> =>
  b.gateway.call(who, 'POST', '/v1/auth/sign-challenged-assertion', {
    body: { client_assertion: text, nonce },
  })

async function buy(b: Bench, text: unknown, who = b.bot): Promise<Answered> {
  const { headers } = await b.askToken(null)
  const dpop = b.sign({ htu: `${b.gateway.url}/v1/auth/token`, nonce: headers['dpop-nonce'] })
  const body = { client_assertion: text }
  return b.gateway.call(who, 'POST', '/v1/auth/token', { headers: { dpop }, body })
}

await t.test('docs/protocol.md#python-helper the three calls, and what the token is good for', async (t) => {
  const b = await bench(t)
  const first = await b.gateway.call(b.bot, 'POST', '/v1/auth/login-challenge')
  t.equal(first.status, 200)
  t.match(first.json, { expires_in: 120, agent_id: 'acme::bot', nonce: /^[\w.-]+$/ })
  const text = assertion(b, b.bot, first.json.nonce)
  const second = await sign(b, text, first.json.nonce)
  t.equal(second.status, 200)
  t.strictSame(second.json, { client_assertion: text, agent_id: 'acme::bot', mastio_signature: null })
  const third = await buy(b, second.json.client_assertion)
  t.equal(third.status, 200, third.text)
  t.match(third.json, {
    token_type: 'DPoP',
    expires_in: 900,
    scope: 'llm.chat',
    access_token: /^[\w-]+\.[\w-]+\.[\w-]+$/,
  })
  const token: string = third.json.access_token
  const { status } = await b.send(b.sign(boundTo(token)), { headers: dpopToken(token) })
  t.equal(status, 200)
  // The helper's persistent key is another one than the token's (docs/protocol.md#python-helper).
  await b.gateway.admin('POST', '/v1/admin/agents/acme::bot/dpop-jwk', b.signer.jwk)
  t.equal(
    (await b.send(b.sign(), { path: '/v1/llm/chat', headers: {} })).status,
    401,
    'of another path it is not',
  )
  t.equal(
    (await b.send(b.sign({ htu: `${b.gateway.url}/v1/llm/chat` }), { path: '/v1/llm/chat' })).status,
    200,
  )
  const models = b.sign({ htm: 'GET', htu: `${b.gateway.url}/v1/egress/models`, ...boundTo(token) })
  const listed = await b.send(models, { method: 'GET', path: '/v1/egress/models', headers: dpopToken(token) })
  t.match(listed, { status: 200, json: { object: 'list' } })
})

await t.test(
  'docs/protocol.md#python-helper the challenge is for one login of one agent, for two minutes',
  async (t) => {
    const b = await bench(t)
    const eve = await b.gateway.enroll('eve', ['llm.chat'])

    await t.test('a second token is not to be had for it', async (t) => {
      const nonce = await challenge(b)
      t.equal((await buy(b, assertion(b, b.bot, nonce))).status, 200)
      const second = await buy(b, assertion(b, b.bot, nonce))
      oauthError(t, second, [401, 'invalid_client'], 'with another assertion')
      t.equal(second.json.reason, 'assertion_invalid')
      const bare = { body: { client_assertion: assertion(b, b.bot, nonce) } }
      const third = await b.gateway.call(b.bot, 'POST', '/v1/auth/token', bare)
      t.same([third.status, third.json.reason], [401, 'assertion_invalid'], 'and without a proof')
      for (const more of ['.x', '.', '..']) {
        const answered = await buy(b, assertion(b, b.bot, nonce + more))
        oauthError(t, answered, [401, 'invalid_client'], `with something behind it: ${more}`)
      }
    })

    await t.test(
      'a proof that was used before is told apart from it, and leaves the challenge',
      async (t) => {
        const { headers } = await b.askToken(null)
        const dpop = b.sign({ htu: `${b.gateway.url}/v1/auth/token`, nonce: headers['dpop-nonce'] })
        const ask = (nonce: string): Promise<Answered> =>
          b.gateway.call(b.bot, 'POST', '/v1/auth/token', {
            headers: { dpop },
            body: { client_assertion: assertion(b, b.bot, nonce) },
          })
        const used = await challenge(b)
        t.equal((await buy(b, assertion(b, b.bot, used))).status, 200)
        t.equal((await ask(used)).json.reason, 'assertion_invalid')
        const fresh = await challenge(b)
        t.equal((await ask(fresh)).json.reason, 'proof_invalid', 'the refusal has used the proof up')
        t.equal((await buy(b, assertion(b, b.bot, fresh))).status, 200)
      },
    )

    await t.test('of a hundred logins with one challenge at once exactly one succeeds', async (t) => {
      const nonce = await challenge(b)
      const answered = await Promise.all(
        Array.from({ length: 100 }, () => buy(b, assertion(b, b.bot, nonce))),
      )
      t.equal(answered.filter(({ status }) => status === 200).length, 1)
    })

    await t.test('another agent’s challenge is none', async (t) => {
      const nonce = await challenge(b, eve)
      t.equal((await sign(b, assertion(b, b.bot, nonce), nonce)).json.reason, 'assertion_invalid')
      oauthError(
        t,
        await buy(b, assertion(b, b.bot, nonce)),
        [401, 'invalid_client'],
        'at the token endpoint',
      )
      t.equal((await buy(b, assertion(b, eve, nonce), eve)).status, 200, 'while its own agent may use it')
    })

    await t.test('another agent’s assertion is none', async (t) => {
      const nonce = await challenge(b)
      oauthError(t, await buy(b, assertion(b, b.bot, nonce), eve), [401, 'invalid_client'], 'stolen')
    })

    await t.test('after two minutes it has expired', async (t) => {
      b.time.at = Math.ceil(b.time.at / 1000) * 1000
      const nonce = await challenge(b)
      const late = await challenge(b)
      b.time.at += 119_999
      t.equal((await buy(b, assertion(b, b.bot, nonce))).status, 200)
      b.time.at += 1
      oauthError(
        t,
        await buy(b, assertion(b, b.bot, late)),
        [401, 'invalid_client'],
        'not a millisecond longer',
      )
    })
  },
)

await t.test(
  'docs/protocol.md#python-helper an assertion that is wrong in one place is refused',
  async (t) => {
    const b = await bench(t)
    const eve = await b.gateway.enroll('eve', ['llm.chat'])
    const nonce = await challenge(b)
    const now = Math.floor(b.time.at / 1000)
    const good = assertion(b, b.bot, nonce)
    for (const [name, text] of [
      ['no JWT', 'x'],
      ['no text', 1],
      ['missing', undefined],
      ['another x5c', assertion(b, b.bot, nonce, {}, { x5c: [leafOf(eve)] })],
      ['an empty x5c', assertion(b, b.bot, nonce, {}, { x5c: [] })],
      ['no x5c', assertion(b, b.bot, nonce, {}, { x5c: undefined })],
      ['x5c a text', assertion(b, b.bot, nonce, {}, { x5c: leafOf(b.bot) })],
      ['by another key', assertion(b, { ...b.bot, key: eve.key }, nonce)],
      ['alg none', assertion(b, b.bot, nonce, {}, { alg: 'none' })],
      ['alg HS256', assertion(b, b.bot, nonce, {}, { alg: 'HS256' })],
      ['alg RS256 with an EC key', assertion(b, b.bot, nonce, {}, { alg: 'RS256' })],
      ['crit', assertion(b, b.bot, nonce, {}, { crit: ['x'], x: 1 })],
      ['aud', assertion(b, b.bot, nonce, { aud: b.gateway.url })],
      ['no aud', assertion(b, b.bot, nonce, { aud: undefined })],
      ['iss', assertion(b, b.bot, nonce, { iss: eve.id })],
      ['sub', assertion(b, b.bot, nonce, { sub: eve.id })],
      ['no jti', assertion(b, b.bot, nonce, { jti: undefined })],
      ['no exp', assertion(b, b.bot, nonce, { exp: undefined })],
      ['no iat', assertion(b, b.bot, nonce, { iat: undefined })],
      ['expired', assertion(b, b.bot, nonce, { exp: now - 11 })],
      ['of six minutes ago', assertion(b, b.bot, nonce, { iat: now - 360 })],
      ['of the future', assertion(b, b.bot, nonce, { iat: now + 60 })],
      ['not yet', assertion(b, b.bot, nonce, { nbf: now + 60 })],
      ['no nonce', assertion(b, b.bot, nonce, { nonce: undefined })],
      ['a nonce of its own', assertion(b, b.bot, nonce, { nonce: randomUUID() })],
      ['a nonce that is no text', assertion(b, b.bot, nonce, { nonce: [nonce] })],
      ['a forged nonce', assertion(b, b.bot, nonce, { nonce: nonce.replace(/^\d+/, '9999999999') })],
      ['exp a text', assertion(b, b.bot, nonce, { exp: String(now + 60) })],
      ['one character changed', `${good.slice(0, -6)}AAAAAA`],
    ] as const) {
      const signed = await sign(b, text, nonce)
      t.strictSame([signed.status, signed.json.reason], [401, 'assertion_invalid'], `${name}, signing`)
      const bought = await buy(b, text)
      const expected =
        typeof text === 'string' ? ([401, 'invalid_client'] as const) : ([400, 'invalid_request'] as const)
      oauthError(t, bought, expected, `${name}, buying`)
    }
    t.equal((await sign(b, good, `${nonce}x`)).json.reason, 'assertion_invalid', 'another nonce beside it')
    t.equal((await sign(b, good, nonce)).status, 200)
    t.equal((await buy(b, good)).status, 200, 'none of these has used the challenge up')
    const ahead = await sign(b, assertion(b, b.bot, nonce, { iat: now + 75 }), nonce)
    t.match(ahead.json.message, /^The client assertion was issued 7[45] s ahead of the clock of this gateway/)
    const old = await sign(b, assertion(b, b.bot, nonce, { exp: now - 75 }), nonce)
    t.match(old.json.message, /^The client assertion expired 7[56] s ago by the clock of this gateway \(/)
    const later = await challenge(b)
    t.equal(
      (await buy(b, assertion(b, b.bot, later, { iat: now + 50 }))).status,
      200,
      'the challenge vouches',
    )
    const full = assertion(b, b.bot, await challenge(b), {}, { x5c: [leafOf(b.bot), leafOf(eve)] })
    t.equal((await buy(b, full)).status, 200, 'what follows the leaf does not matter')
  },
)

await t.test(
  'docs/protocol.md#python-helper the helper signs again on a 401 with use_dpop_nonce, and on nothing else',
  async (t) => {
    const b = await bench(t)
    const text = assertion(b, b.bot, await challenge(b))
    const headers = { 'content-type': 'application/json' }
    const htu = `${b.gateway.url}/v1/auth/token`
    const ask = (dpop: string): Promise<Answered> =>
      b.send(dpop, { path: '/v1/auth/token', headers, body: { client_assertion: text } })
    const refused = await ask(b.sign({ htu, nonce: undefined }))
    t.equal(refused.status, 401)
    t.match(refused.text, 'use_dpop_nonce')
    const nonce = refused.headers['dpop-nonce']
    t.equal((await ask(proof(b.signer, b.claims({ htu, nonce })))).status, 200, 'and then it passes')
    oauthError(
      t,
      await ask(proof(b.signer, b.claims({ htu: b.gateway.url, nonce }))),
      [400, 'invalid_dpop_proof'],
      'no 401',
    )
  },
)

await t.test(
  'docs/protocol.md#python-helper an RSA certificate signs in with RS256, and a P-384 one with neither',
  async (t) => {
    const b = await bench(t)
    const dates = { notBefore: b.time.at - 3_600_000, notAfter: b.time.at + 86_400_000 }
    const ca = await odd({ name: 'corp', extensions: caExtensions(0), ...dates })
    await b.gateway.admin('POST', '/v1/admin/ca/attach', { ca_pem: ca.pem, kind: 'organisation' })
    const enrolled = async (name: string, key: NonNullable<Odd['key']>): Promise<Identity> => {
      const leaf = await odd(
        { name, extensions: [leafConstraints(), digitalSignatureKeyUsage()], ...dates, key },
        ca,
      )
      const who = { cert: leaf.pem, key: leaf.key.export({ type: 'pkcs8', format: 'pem' }).toString() }
      const body = {
        agent_name: name,
        cert_pem: who.cert,
        private_key_pem: who.key,
        capabilities: ['llm.chat'],
      }
      const { status, json, text } = await b.gateway.admin('POST', '/v1/admin/agents/enroll/byoca', body)
      t.equal(status, 201, text)
      return { id: json.agent_id, ...who }
    }
    const rsa = await enrolled('rsa', generateKeyPairSync('rsa', { modulusLength: 2048 }))
    const wide = await enrolled('wide', generateKeyPairSync('ec', { namedCurve: 'P-384' }))
    const nonce = await challenge(b, rsa)
    const good = assertion(b, rsa, nonce, {}, { alg: 'RS256' })
    for (const alg of ['PS256', 'RS512', 'ES256', 'HS256']) {
      const answered = await buy(b, assertion(b, rsa, nonce, {}, { alg }), rsa)
      oauthError(t, answered, [401, 'invalid_client'], alg)
    }
    t.equal((await sign(b, good, nonce, rsa)).status, 200)
    t.equal((await buy(b, good, rsa)).status, 200)
    for (const alg of ['ES256', 'ES384', 'RS256']) {
      const text = assertion(b, wide, await challenge(b, wide), {}, { alg })
      oauthError(t, await buy(b, text, wide), [401, 'invalid_client'], `P-384 ${alg}`)
    }
  },
)

await t.test('§5.2 a stranger and a deactivated agent get no challenge', async (t) => {
  const b = await bench(t)
  const eve = await b.gateway.enroll('eve', [])
  await b.gateway.admin('DELETE', '/v1/admin/agents/acme::eve')
  for (const path of ['/v1/auth/login-challenge', '/v1/auth/sign-challenged-assertion']) {
    t.equal((await b.gateway.call(null, 'POST', path)).json.reason, 'certificate_required', path)
    t.equal((await b.gateway.call(eve, 'POST', path)).json.reason, 'principal_deactivated', path)
  }
})
