import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { LLM_ENDPOINTS } from '../../../proxy/llm/dialects/registry.ts'
import { bench, boundTo, DOOR, dpopToken, oauthError } from '../../support/auth/bench.ts'
import type { Identity } from '../../support/gateway.ts'
import { ENTRIES } from '../../support/openapi.ts'

// RFC 6750, row by row (docs/threats.md#rfc6750).

const PROXY = join(import.meta.dirname, '../../../proxy')

/** Every path that a `routes.ts` of a room names, and every one of the API, with the variable ones filled in. */
function paths(): readonly string[] {
  const sources = globSync('**/routes.ts', { cwd: PROXY }).map((file) =>
    readFileSync(join(PROXY, file), 'utf8'),
  )
  const written = [...sources.join('\n').matchAll(/['`]((?:\/[\w.{}-]+)+)['`]/g)].map(
    ([, path]) => path ?? '',
  )
  const ofKinds = ['agents', 'users', 'workloads'].flatMap((kind) =>
    ['', '/x', '/x/capabilities', '/x/reactivate', '/x/dpop-jwk', '/x/certificate', '/x/rotate-cert'].map(
      (path) => `/v1/admin/${kind}${path}`,
    ),
  )
  const all = [
    ...written,
    ...ofKinds,
    ...LLM_ENDPOINTS.map(({ path }) => path),
    ...ENTRIES.map(({ path }) => path),
  ]
  return [...new Set(all)].map((path) => path.replace(/\{\w+\}/, 'x'))
}

await t.test('B-01 RFC 6750 §3 every 401 of every door carries its challenge', async (t) => {
  const b = await bench(t)
  const other = await b.gateway.enroll('other', [])
  await b.gateway.admin('DELETE', '/v1/admin/agents/acme::other')
  const callers: readonly (readonly [string, Identity | null, Record<string, string>])[] = [
    ['nobody', null, {}],
    ['nobody with a key', null, { authorization: 'Bearer sk-unused', 'x-api-key': 'sk-unused' }],
    ['deactivated', other, {}],
    ['a bad proof', b.bot, { dpop: 'x' }],
    ['a bad token', b.bot, { authorization: 'DPoP x' }],
    ['a proof without a nonce', b.bot, { dpop: b.sign({ nonce: undefined }) }],
  ]
  const found = paths()
  t.ok(found.length > 100, `${found.length} doors`)
  const refused = new Map<string, number>()
  for (const path of found) {
    for (const method of ['GET', 'POST']) {
      for (const [name, who, headers] of callers) {
        const { status, headers: answer } = await b.send(null, { who, path, method, headers, body: {} })
        t.ok(status < 500, `${method} ${path} ${name}: ${status}`)
        if (status !== 401) continue
        refused.set(path, (refused.get(path) ?? 0) + 1)
        const challenge = String(answer['www-authenticate'])
        const [plain = '', metadata] = challenge.split(', resource_metadata=')
        t.match(plain, /^DPoP (?:error="[a-z_]+", )?algs="[\w ]+"$/, `${method} ${path} ${name}`)
        // RFC 9728 §5.1, MCP authorization: where an MCP client learns who issues tokens.
        const document = `"${b.gateway.url}/.well-known/oauth-protected-resource${path}"`
        t.equal(metadata, path.startsWith('/v1/mcp') || path.endsWith('/mcp') ? document : undefined)
      }
    }
  }
  const gated = [
    ...LLM_ENDPOINTS.map(({ path }) => path),
    '/v1/models',
    '/v1/egress/models',
    '/v1/auth/token',
  ]
  t.strictSame(
    gated.filter((path) => !refused.has(path)),
    [],
    'every door for agents has refused somebody',
  )
})

await t.test('B-01 the helper’s 401 at the token endpoint carries one too', async (t) => {
  const b = await bench(t)
  const body = { client_assertion: 'x' }
  const sent = { path: '/v1/auth/token', headers: { 'content-type': 'application/json' }, body }
  const htu = `${b.gateway.url}/v1/auth/token`
  const { status, headers, json } = await b.send(b.sign({ htu, nonce: undefined }), sent)
  t.strictSame([status, json.error], [401, 'use_dpop_nonce'])
  t.match(headers['www-authenticate'], /^DPoP error="use_dpop_nonce", algs=/)
})

await t.test('B-02 RFC 6750 §3.1 each error has its status', async (t) => {
  const b = await bench(t)
  const poor = await b.gateway.enroll('poor', [])
  const { json } = await b.token(null)
  const authorization = `Bearer ${json.access_token}`
  const challenge = async (sent: Parameters<typeof b.send>[1]): Promise<unknown[]> => {
    const { status, headers } = await b.send(null, sent)
    return [status, headers['www-authenticate']]
  }
  t.match(await challenge({ headers: { authorization }, who: poor }), [401, /error="invalid_token"/])
  t.strictSame(await challenge({ who: poor }), [403, 'DPoP error="insufficient_scope", scope="llm.chat"'])
  t.match((await b.send(null, { who: poor })).json, {
    reason: 'capability_missing',
    required_capability: 'llm.chat',
  })
  // A token narrowed to something else is no wider than it says (RFC 6749 §3.3).
  await b.gateway.admin('PATCH', '/v1/admin/agents/acme::bot/capabilities', {
    capabilities: ['llm.chat', 'other'],
  })
  const narrowed = (await b.token(null, { scope: 'other' })).json.access_token
  t.match(await challenge({ headers: { authorization: `Bearer ${narrowed}` } }), [403, /insufficient_scope/])
  t.strictSame(await challenge({ body: 'no JSON' }), [400, undefined])
})

await t.test('B-03 RFC 6750 §3 RFC 6749 §5.2 no answer repeats what was sent in a description', async (t) => {
  const b = await bench(t)
  const hostile = '"\\\r\n\u0000é<script>'
  for (const body of [
    new URLSearchParams([
      [hostile, '1'],
      [hostile, '2'],
    ]).toString(),
    new URLSearchParams({ grant_type: hostile }).toString(),
    new URLSearchParams({ grant_type: 'client_credentials', scope: hostile }).toString(),
    new URLSearchParams({ grant_type: 'client_credentials', client_id: hostile }).toString(),
    new URLSearchParams({ grant_type: 'client_credentials', resource: hostile }).toString(),
    new URLSearchParams({ grant_type: 'client_credentials', expires_in: hostile }).toString(),
    '%',
    '',
  ]) {
    const headers = { 'content-type': 'application/x-www-form-urlencoded' }
    const { status, json, headers: answer } = await b.send(null, { path: '/v1/auth/token', headers, body })
    t.ok(status === 400 || status === 401, body.slice(0, 60))
    t.match(json.error, /^[\x20\x21\x23-\x5b\x5d-\x7e]+$/)
    t.match(json.error_description, /^[\x20\x21\x23-\x5b\x5d-\x7e]+$/)
    t.notMatch(String(answer['www-authenticate'] ?? ''), 'script')
  }
  const { headers } = await b.send(null, { headers: { authorization: 'DPoP "é\\"' } })
  t.match(headers['www-authenticate'], /^DPoP error="invalid_token", algs="[\w ]+"$/)
})

await t.test(
  'B-04 §2.2 §2.3 §5.3 a token in the query or the form is none, and none is in the log',
  async (t) => {
    const b = await bench(t, { settings: { MCP_PROXY_LOG_LEVEL: 'trace' } })
    const token: string = (await b.token()).json.access_token
    const used = b.sign(boundTo(token))
    t.equal((await b.send(used, { headers: dpopToken(token) })).status, 200)
    const form = { 'content-type': 'application/x-www-form-urlencoded' }
    // Beside the certificate nothing is asked of it: what counts is that it opens nothing by itself.
    for (const [method, path, headers, body] of [
      ['POST', `${DOOR}?access_token=${token}`, {}, undefined],
      ['GET', `/v1/models?access_token=${token}`, {}, undefined],
      ['POST', DOOR, form, `access_token=${token}`],
    ] as const) {
      const { status } = await b.send(null, { who: null, method, path, headers, ...(body && { body }) })
      t.equal(status, 401, path.slice(0, 30))
    }
    oauthError(
      t,
      await b.askToken('x', { access_token: token }),
      [400, 'invalid_dpop_proof'],
      'at the token endpoint',
    )
    const log = JSON.stringify(b.gateway.log)
    t.ok(b.gateway.log.length > 3, 'the log has lines')
    t.notMatch(log, token.split('.')[2], 'no token')
    t.notMatch(log, used.split('.')[2], 'no proof')
  },
)
