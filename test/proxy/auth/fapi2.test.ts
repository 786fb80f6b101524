import { generateKeyPairSync, sign as signBytes } from 'node:crypto'
import t from 'tap'
import { bench, boundTo, DOOR, dpopToken, jwsOf } from '../../support/auth/bench.ts'
import { proof, proofSigner } from '../../support/dpop.ts'
import { rawAnswer, requestBytes, statuses } from '../../support/raw.ts'

// The 32 blocks of the FAPI 2.0 conformance suite's negative DPoP test, in its order, and its separate
// modules that apply where there is no authorization code (docs/threats.md#fapi2). What that suite only warns
// of is a failure here.

await t.test('FAPI2 the 32 blocks, in order', async (t) => {
  const b = await bench(t, {
    settings: { MCP_PROXY_EGRESS_DPOP_MODE: 'required', MCP_PROXY_PUBLIC_URLS: 'https://gateway.example' },
  })
  const base = 'https://gateway.example'
  const jwk = b.signer.jwk
  await b.gateway.admin('POST', `/v1/admin/agents/${b.bot.id}/dpop-jwk`, jwk)
  const atToken = { htu: `${base}/v1/auth/token`, nonce: (await b.askToken(null)).headers['dpop-nonce'] }
  const issued = await b.askToken(b.sign(atToken))
  const token: string = issued.json.access_token
  const headers = dpopToken(token)
  const now = Math.floor(b.time.at / 1000)
  const sign = (over = {}, header = {}): string =>
    b.sign({ htu: base + DOOR, ...boundTo(token), ...over }, header)
  const good = { typ: 'dpop+jwt', alg: 'ES256', jwk }
  const claims = (): string => JSON.stringify(b.claims({ htu: base + DOOR, ...boundTo(token) }))
  const fixed = { jti: 'fixed' }

  const upper = await b.send(null, { headers: { ...headers, DPOP: sign() } })
  t.equal(upper.status, 200, '1 the name of the header in capitals')
  const lines = [
    `authorization: DPoP ${token}`,
    `dpop: ${sign()}`,
    `dpop: ${sign()}`,
    'content-type: application/json',
  ]
  const two = await rawAnswer(t, b.gateway, b.bot, requestBytes('POST', DOOR, lines, '{}'))
  t.strictSame(statuses(two), [400], '2 two DPoP headers')

  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const rsaJwk = { ...rsa.publicKey.export({ format: 'jwk' }) }
  const rs256 = [{ ...good, alg: 'RS256', jwk: rsaJwk }, JSON.parse(claims())]
    .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
    .join('.')
  const rs256Signature = signBytes('sha256', Buffer.from(rs256), rsa.privateKey).toString('base64url')
  const none = jwsOf(JSON.stringify({ ...good, alg: 'none' }), claims(), b.signer)
  const broken = sign()
  const blocks: readonly (readonly [number, string, string | null, 200 | 401, Record<string, string>?])[] = [
    [3, 'not a JWT', sign().slice(0, sign().lastIndexOf('.')), 401],
    [4, 'typ missing', sign({}, { typ: undefined }), 401],
    [5, 'alg missing', sign({}, { alg: undefined }), 401],
    [6, 'jwk missing', sign({}, { jwk: undefined }), 401],
    [7, 'jti missing', sign({ jti: undefined }), 401],
    [8, 'htm missing', sign({ htm: undefined }), 401],
    [9, 'htu missing', sign({ htu: undefined }), 401],
    [10, 'iat missing', sign({ iat: undefined }), 401],
    [11, 'ath missing', sign({ ath: undefined }), 401],
    [12, 'wrong typ', sign({}, { typ: 'dpop+jwt+wrongyousee' }), 401],
    [13, 'RS256', `${rs256}.${rs256Signature}`, 401],
    [14, 'alg none', none.slice(0, none.lastIndexOf('.') + 1), 401],
    [15, 'bad signature', `${broken.slice(0, -8)}AAAAAAAA`, 401],
    [16, 'private key in jwk', sign({}, { jwk: { ...b.signer.privateKey.export({ format: 'jwk' }) } }), 401],
    [17, 'htm PUT', sign({ htm: 'PUT' }), 401],
    [18, 'htu with query and fragment', sign({ htu: `${base}${DOOR}?a=b#c` }), 200],
    [19, 'htu without them', sign(), 200],
    [20, 'another htu', sign({ htu: `${base}/other` }), 401],
    [21, 'iat an hour ahead', sign({ iat: now + 3_600 }), 401],
    [22, 'iat an hour ago', sign({ iat: now - 3_600 }), 401],
    [23, 'a jti for the first time', sign(fixed), 200],
    [24, 'and for the second', sign(fixed), 401],
    [25, 'wrong ath', sign({ ath: boundTo('another').ath }), 401],
    [26, 'signed by another key', proof(proofSigner(), JSON.parse(claims()), { jwk }), 401],
    [27, 'unknown members', sign({ unknown: 1 }, { unknown: 1 }), 200],
    [28, 'scheme and host of htu in capitals', sign({ htu: `HTTPS://GATEWAY.EXAMPLE${DOOR}` }), 200],
    [29, 'the port 443 spelt out', sign({ htu: `${base}:443${DOOR}` }), 200],
    [30, 'no proof', null, 401],
    [31, 'no proof, and Bearer', null, 401, { authorization: `Bearer ${token}` }],
    [32, 'a correct proof still works', sign(), 200],
  ]
  for (const [number, name, dpop, expected, other = headers] of blocks) {
    const { status, headers: answer } = await b.send(dpop, { headers: other })
    t.equal(status, expected, `${number} ${name}`)
    if (expected === 401)
      t.match(answer['www-authenticate'], /^DPoP error="invalid_(dpop_proof|token)", algs=/)
  }
  t.equal(blocks.length + 2, 32)
})

await t.test('FAPI2 the modules that stand by themselves', async (t) => {
  const b = await bench(t)
  const { json } = await b.token()
  const headers = dpopToken(json.access_token)
  const now = Math.floor(b.time.at / 1000)
  const status = async (over: object, sent = headers): Promise<number> =>
    (await b.send(b.sign({ ...boundTo(json.access_token), ...over }), { headers: sent })).status

  await t.test('check-dpop-proof-nbf-exp: a valid pair is accepted', async (t) => {
    t.equal(await status({ nbf: now - 10, exp: now + 60 }), 200)
  })
  await t.test('iat up to ten seconds off is accepted, either way', async (t) => {
    for (const off of [-10, 8, 10]) t.equal(await status({ iat: now + off }), 200, `${off} s`)
  })
  await t.test('access-token-type-header-case-sensitivity: dpop is DPoP', async (t) => {
    for (const scheme of ['dpop', 'DPOP', 'dPoP']) {
      t.equal(await status({}, { authorization: `${scheme} ${json.access_token}` }), 200, scheme)
    }
  })
  await t.test('ensure-holder-of-key-required: no certificate, no token', async (t) => {
    const { status: refused, json: body } = await b.gateway.call(null, 'POST', '/v1/auth/token', {
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: 'grant_type=client_credentials',
    })
    t.strictSame([refused, body.error], [401, 'invalid_client'])
    const eve = await b.gateway.enroll('eve', ['llm.chat'])
    const loose: string = (await b.token(null)).json.access_token
    const sent = { headers: { authorization: `Bearer ${loose}` }, who: eve }
    t.equal((await b.send(null, sent)).status, 401, 'EnsureMTLSHolderOfKeyRequired')
  })
  await t.test('nonces are of NQCHAR, and a retry with a new jti passes', async (t) => {
    const refused = await b.send(b.sign({ ...boundTo(json.access_token), nonce: undefined }), { headers })
    const nonce = refused.headers['dpop-nonce']
    t.match(nonce, /^[\x21\x23-\x5b\x5d-\x7e]+$/)
    t.equal(await status({ nonce }), 200)
  })
})
