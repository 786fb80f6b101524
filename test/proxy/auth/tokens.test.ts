import { createHmac, createPublicKey } from 'node:crypto'
import t, { type Test } from 'tap'
import { bench, boundTo, DOOR, dpopToken, jwsOf, oauthError, refusedWith } from '../../support/auth/bench.ts'
import { nonceOf, proofSigner, provenChat, tokenFor } from '../../support/dpop.ts'
import { CHAT, testGateway } from '../../support/gateway.ts'

await t.test('§5.2 a token bound to certificate and key opens the door with a fresh proof', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const signer = proofSigner()
  const { status, json } = await tokenFor(gateway, bot, signer)
  t.equal(status, 200)
  t.match(json, { token_type: 'DPoP', expires_in: 900, scope: 'llm.chat' })
  const nonce = await nonceOf(gateway, bot)
  const answered = await provenChat(gateway, bot, signer, { token: json.access_token, nonce })
  t.equal(answered.status, 200, answered.text)
  const [row] = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed' })
  t.equal(row?.dpop_jkt, signer.jkt)
})

await t.test('§5.2 a token without a proof is bound to the certificate alone', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const eve = await gateway.enroll('eve', ['llm.chat'])
  const { json } = await tokenFor(gateway, bot, null)
  t.equal(json.token_type, 'Bearer')
  const headers = { authorization: `Bearer ${json.access_token}` }
  const chat = async (who: typeof bot) =>
    (await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT, headers })).status
  t.strictSame([await chat(bot), await chat(eve)], [200, 401])
})

const claimsOf = (token: string) => JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString())

await t.test('RFC 6749 §3.3 scope narrows a token, and never widens it', async (t) => {
  const b = await bench(t)
  const path = '/v1/admin/agents/acme::bot/capabilities'
  await b.gateway.admin('PATCH', path, { capabilities: ['llm.chat', 'other', 'third'] })
  const status = async (token: string): Promise<number> =>
    (await b.send(null, { headers: { authorization: `Bearer ${token}` } })).status

  const whole = (await b.token(null)).json
  t.equal(whole.scope, 'llm.chat other third', 'without it, all that is held')
  const narrow = (await b.token(null, { scope: 'other  third other' })).json
  t.equal(narrow.scope, 'other third')
  const chat = (await b.token(null, { scope: 'llm.chat' })).json
  t.strictSame(
    [await status(whole.access_token), await status(chat.access_token), await status(narrow.access_token)],
    [200, 200, 403],
  )
  for (const scope of ['mcp.tools.list', 'llm.chat mcp.tools.list', ' ', 'LLM.CHAT', 'llm.chat,other', '*']) {
    oauthError(t, await b.token(null, { scope }), [400, 'invalid_scope'], JSON.stringify(scope))
  }
  const many = Array.from({ length: 65 }, (_, i) => `c${i}`).join(' ')
  oauthError(t, await b.token(null, { scope: many }), [400, 'invalid_scope'], 'more than anybody can hold')

  // What was not narrowed grows with its principal: the database is asked, not the token.
  const early = (await b.token(null)).json
  await b.gateway.admin('PATCH', path, { capabilities: ['other'] })
  const poor = (await b.token(null)).json
  t.equal(await status(poor.access_token), 403)
  await b.gateway.admin('PATCH', path, { capabilities: ['other', 'llm.chat'] })
  t.strictSame([await status(poor.access_token), await status(early.access_token)], [200, 200])

  await b.gateway.admin('PATCH', path, { capabilities: ['other'] })
  t.equal(await status(chat.access_token), 403, 'a revoked capability stops a live token at once')
  t.equal(await status(whole.access_token), 403)
  await b.gateway.admin('PATCH', path, { capabilities: ['other', 'llm.chat'] })
  t.equal(await status(chat.access_token), 200)
  t.equal(await status(narrow.access_token), 403, 'a grant does not widen what was narrowed')
  await b.gateway.admin('DELETE', '/v1/admin/agents/acme::bot')
  refusedDeactivated(t, await b.send(null, { headers: { authorization: `Bearer ${whole.access_token}` } }))
  oauthError(t, await b.token(null), [401, 'invalid_client'], 'and there are no more of them')
})

function refusedDeactivated(t: Test, { status, json }: { status: number; json: { reason: string } }): void {
  t.strictSame([status, json.reason], [401, 'principal_deactivated'], 'a deactivated principal too')
}

await t.test('RFC 6749 §4.4.2 §5.2 what is no token request is refused as one', async (t) => {
  const b = await bench(t)
  const form = 'application/x-www-form-urlencoded'
  const ask = (body: string | Buffer, type = form) =>
    b.send(null, { path: '/v1/auth/token', headers: { 'content-type': type }, body })
  const grant = 'grant_type=client_credentials'
  for (const [name, body, expected] of [
    ['nothing', '', [400, 'invalid_request']],
    ['no grant_type', 'scope=llm.chat', [400, 'invalid_request']],
    ['an empty grant_type', 'grant_type=', [400, 'invalid_request']],
    ['another grant', 'grant_type=authorization_code&code=x', [400, 'unsupported_grant_type']],
    ['a password', 'grant_type=password&username=a&password=b', [400, 'unsupported_grant_type']],
    ['grant_type twice', `${grant}&${grant}`, [400, 'invalid_request']],
    ['scope twice', `${grant}&scope=llm.chat&scope=llm.chat`, [400, 'invalid_request']],
    ['an unknown one twice', `${grant}&x=1&x=2`, [400, 'invalid_request']],
    ['expires_in 0', `${grant}&expires_in=0`, [400, 'invalid_request']],
    ['expires_in -1', `${grant}&expires_in=-1`, [400, 'invalid_request']],
    ['expires_in 1.5', `${grant}&expires_in=1.5`, [400, 'invalid_request']],
    ['expires_in 1e2', `${grant}&expires_in=1e2`, [400, 'invalid_request']],
    ['another client', `${grant}&client_id=acme::other`, [401, 'invalid_client']],
    ['another resource', `${grant}&resource=https://other.example`, [400, 'invalid_target']],
    [
      'a resource with a fragment',
      `${grant}&resource=${encodeURIComponent(`${b.gateway.url}#x`)}`,
      [400, 'invalid_target'],
    ],
    [
      'two resources',
      `${grant}&resource=${b.gateway.url}&resource=${b.gateway.url}/v1/mcp`,
      [400, 'invalid_target'],
    ],
    ['a resource nine times', grant + `&resource=${b.gateway.url}`.repeat(9), [400, 'invalid_request']],
    ['a resource with a query', `${grant}&resource=${b.gateway.url}/v1/mcp?x=1`, [400, 'invalid_target']],
    ['a resource below a door', `${grant}&resource=${b.gateway.url}/v1/mcp/x/y`, [400, 'invalid_target']],
    [
      'a resource that is no door of ours',
      `${grant}&resource=${b.gateway.url}/v1/other`,
      [400, 'invalid_target'],
    ],
  ] as const) {
    oauthError(t, await ask(body), expected, name)
  }
  for (const [type, body] of [
    ['text/plain', grant],
    ['multipart/form-data; boundary=x', grant],
    ['application/x-www-form-urlencodedx', grant],
    ['application/json', '[]'],
    ['application/json', '{"client_assertion":1}'],
    ['application/json', '{"client_assertion":"a","client_assertion":"b"}'],
    ['application/json', 'x'],
  ] as const) {
    oauthError(t, await ask(body, type), [400, 'invalid_request'], `${type}: ${body}`)
  }
  t.equal((await ask(`${grant}&x=${'x'.repeat(70_000)}`)).status, 413)
  const stranger = await b.send(null, {
    who: null,
    path: '/v1/auth/token',
    headers: { 'content-type': form },
    body: grant,
  })
  oauthError(t, stranger, [401, 'invalid_client'], 'no certificate')
  t.match(stranger.headers['www-authenticate'], /^DPoP error="invalid_client"/)
  // RFC 6749 §3.2: an unknown parameter is ignored, and one without a value is as if it were not there.
  for (const more of ['&x=1', '&scope=', '&client_id=&resource=&expires_in=', '&client_id=acme::bot']) {
    t.equal((await ask(grant + more)).status, 200, more)
  }
  t.equal((await ask(grant, `${form}; charset=UTF-8`)).status, 200)
})

await t.test(
  'docs/protocol.md#token-endpoint a token lives as long as asked, for at most 900 s, and not a moment longer',
  async (t) => {
    const b = await bench(t)
    b.time.at = Math.ceil(b.time.at / 1000) * 1000
    for (const [asked, given] of [
      ['60', 60],
      ['900', 900],
      ['86400', 900],
    ] as const) {
      const { json } = await b.token(null, { expires_in: asked })
      const { iat, exp } = claimsOf(json.access_token)
      t.strictSame([json.expires_in, exp - iat], [given, given], asked)
    }
    const bearer: string = (await b.token(null, { expires_in: '60' })).json.access_token
    const bound: string = (await b.token(b.signer, { expires_in: '60' })).json.access_token
    const statuses = async (): Promise<number[]> => {
      const proof = b.sign(boundTo(bound))
      return [
        (await b.send(null, { headers: { authorization: `Bearer ${bearer}` } })).status,
        (await b.send(proof, { headers: dpopToken(bound) })).status,
      ]
    }
    t.strictSame(await statuses(), [200, 200])
    b.time.at += 59_999
    await b.renew()
    t.strictSame(await statuses(), [200, 200], 'also where the signature is remembered')
    b.time.at += 1
    t.strictSame(await statuses(), [401, 401])
    const late = await b.send(null, { headers: { authorization: `Bearer ${bearer}` } })
    refusedWith(t, late, 'token_invalid', 'expired')
    t.match(
      late.json.message,
      /^The access token expired [01] s ago by the clock of this gateway \(.*\)\. Req/,
    )
  },
)

await t.test('RFC 8707 a token that was asked for one door opens no other', async (t) => {
  const b = await bench(t)
  const status = async (parameters: Record<string, string>, path: string): Promise<unknown[]> => {
    const { json } = await b.token(null, parameters)
    const answered = await b.send(null, { path, headers: { authorization: `Bearer ${json.access_token}` } })
    return [claimsOf(json.access_token).aud, answered.status]
  }
  const { url } = b.gateway
  t.strictSame(await status({}, DOOR), [url, 200])
  t.strictSame(await status({ resource: url }, DOOR), [url, 200])
  t.strictSame(await status({ resource: `${url}/` }, DOOR), [url, 200])
  t.strictSame(await status({ resource: `${url}/v1/mcp` }, DOOR), [`${url}/v1/mcp`, 401])
  for (const path of ['/v1/mcp', '/v1/mcp/x', '/v1/x/mcp'])
    t.not((await status({ resource: `${url}/v1/mcp` }, path))[1], 401, path)
  const { port } = new URL(url)
  for (const [resource, aud] of [
    [`HTTPS://LOCALHOST:${port}/v1/mcp`, '/v1/mcp'],
    [`https://Localhost:${port}/v1/mcp/`, '/v1/mcp'],
    [`${url}/v1/./mcp`, '/v1/mcp'],
    [`${url}/v1/mc%70/mcpr_1`, '/v1/mcp/mcpr_1'],
    [`${url}/v1/mcpr_1/mcp`, '/v1/mcp/mcpr_1'],
  ] as const) {
    t.strictSame(await status({ resource }, DOOR), [url + aud, 401], resource)
    t.not((await status({ resource }, '/v1/mcp/mcpr_1'))[1], 401, resource)
    t.not((await status({ resource }, '/v1/mcpr_1/mcp'))[1], 401, resource)
  }
  for (const path of ['/v1/mcp', '/v1/mcp/mcpr_2', '/v1/mcp/mcpr_11', '/v1/mcpr_2/mcp'])
    t.equal((await status({ resource: `${url}/v1/mcp/mcpr_1` }, path))[1], 401, path)
  const { json } = await b.token(null, { resource: `${url}/v1/mcp` })
  const headers = { authorization: `Bearer ${json.access_token}` }
  t.equal((await b.send(null, { method: 'GET', path: '/v1/models/mcp', headers })).status, 401)
})

await t.test('RFC 8725 a token that this gateway has not signed is none', async (t) => {
  const b = await bench(t)
  const other = await bench(t)
  const good: string = (await b.token()).json.access_token
  const [head = '', body = '', tail = ''] = good.split('.')
  const header = JSON.parse(Buffer.from(head, 'base64url').toString())
  const claims = Buffer.from(body, 'base64url').toString()
  const { json: keys } = await b.gateway.call(null, 'GET', '/.well-known/jwks.json')
  const publicKey = createPublicKey({ key: keys.keys[0], format: 'jwk' })
  const part = (members: unknown): string => Buffer.from(JSON.stringify(members)).toString('base64url')
  const hmac = (secret: string | Buffer): string => {
    const signed = `${part({ ...header, alg: 'HS256' })}.${body}`
    return `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`
  }
  const mine = (over: object, changed = claims): string =>
    jwsOf(JSON.stringify({ ...header, ...over }), changed, b.signer)
  for (const [name, token] of [
    ['alg none, nothing behind', `${part({ ...header, alg: 'none' })}.${body}.`],
    ['alg none, something behind', `${part({ ...header, alg: 'none' })}.${body}.${tail}`],
    ['HS256 with the public key as PEM', hmac(publicKey.export({ type: 'spki', format: 'pem' }))],
    ['HS256 with the public key as DER', hmac(publicKey.export({ type: 'spki', format: 'der' }))],
    ['HS256 with the public key as JWK', hmac(JSON.stringify(keys.keys[0]))],
    ['by a key of the caller', mine({})],
    ['by a key of the caller, in the header', mine({ jwk: b.signer.jwk })],
    ['by a key to be fetched', mine({ jku: `${b.gateway.upstream.url}/keys`, kid: 'k' })],
    ['kid of another type', mine({ kid: 1 })],
    ['kid an object', mine({ kid: {} })],
    ['kid __proto__', mine({ kid: '__proto__' })],
    ['no kid', mine({ kid: undefined })],
    ['crit', mine({ crit: ['b64'], b64: false })],
    ['zip', mine({ zip: 'DEF' })],
    ['changed claims', `${head}.${part({ ...JSON.parse(claims), scope: 'everything' })}.${tail}`],
    [
      'a claim twice',
      `${head}.${Buffer.from(claims.replace('{', '{"sub":"acme::bot",')).toString('base64url')}.${tail}`,
    ],
    ['of another gateway', (await other.token()).json.access_token],
    ['a proof', b.sign()],
    ['longer than any of ours', mine({ padding: 'x'.repeat(9_000) })],
    ['no JWT', 'x'],
  ] as const) {
    const answered = await b.send(b.sign(boundTo(token)), { headers: dpopToken(token) })
    refusedWith(t, answered, 'token_invalid', name)
  }
  t.equal((await b.send(b.sign(boundTo(good)), { headers: dpopToken(good) })).status, 200)
  t.notOk(
    b.gateway.upstream.seen.some(({ url }) => url === '/keys'),
    'and no key was fetched',
  )
})

await t.test('§5.2 keys rotate, and a retired one verifies until its last token has expired', async (t) => {
  const b = await bench(t)
  const status = async (token: string): Promise<number> =>
    (await b.send(null, { headers: { authorization: `Bearer ${token}` } })).status
  const kids = async (): Promise<string[]> => {
    const { json } = await b.gateway.call(null, 'GET', '/.well-known/jwks.json')
    return json.keys.map(({ kid }: { kid: string }) => kid)
  }
  const old: string = (await b.token(null)).json.access_token
  const [first] = await kids()
  const { json } = await b.gateway.admin('POST', '/v1/admin/signing-key/rotate')
  t.strictSame(new Set(await kids()), new Set([first, json.kid]))
  const next: string = (await b.token(null)).json.access_token
  t.equal(JSON.parse(Buffer.from(next.split('.')[0] ?? '', 'base64url').toString()).kid, json.kid)
  t.strictSame([await status(old), await status(next)], [200, 200])
  b.time.at += 899_000
  t.equal(await status(old), 200, 'to its end')
  b.time.at += 1_000
  t.equal(await status(old), 401)
  b.time.at += 60_000
  t.strictSame(await kids(), [json.kid], 'then its key is forgotten')
})

await t.test('§6 each token that was issued is one row, and none is issued without', async (t) => {
  const b = await bench(t)
  const { json } = await b.token()
  await b.token(null)
  const rows = await b.gateway.rows({ action: 'token.issued', order: 'asc' })
  const bound = rows.filter(({ dpop_jkt: jkt }) => jkt === b.signer.jkt)
  t.equal(bound.length, 1)
  t.match(bound[0], { principal_id: 'acme::bot', status: 'success', detail: { scope: 'llm.chat' } })
  t.match(bound[0]?.cert_thumbprint, /^[0-9a-f]{64}$/)
  t.notMatch(JSON.stringify(rows), json.access_token.split('.')[2], 'and never the token')
})
