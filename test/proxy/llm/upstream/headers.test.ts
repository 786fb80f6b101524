import type { IncomingHttpHeaders } from 'node:http'
import t from 'tap'
import type { LlmProvider } from '../../../../proxy/llm/options.ts'
import {
  fixedHeaders,
  hasCredentials,
  providerRequestHeaders,
  responseHeaders,
} from '../../../../proxy/llm/upstream/headers.ts'
import { anthropic, openai, options } from '../../../support/llm/facts.ts'

const provider = (fields: Readonly<Record<string, unknown>>): LlmProvider => {
  const [first] = options([fields]).providers
  if (!first) throw new Error('no provider')
  return first
}
const BASE = 'https://up.example:8443/v1'
const OPENAI = provider(openai(BASE))
const ANTHROPIC = provider(anthropic(BASE))
const PASSING = provider(openai(BASE, { auth: 'passthrough', api_key: '' }))

/** The headers of a request by name; no name stands twice. */
function sent(
  of: LlmProvider,
  caller: IncomingHttpHeaders = {},
  idempotencyKey: string | null = null,
): Record<string, string> {
  const list = providerRequestHeaders(fixedHeaders(of), caller, 12, idempotencyKey)
  const headers: Record<string, string> = {}
  for (let at = 0; at < list.length; at += 2) {
    const name = list[at] ?? ''
    if (name in headers) throw new Error(`${name} stands twice`)
    headers[name] = list[at + 1] ?? ''
  }
  return headers
}

await t.test('T3 of a caller with every header there is, only the allow-list goes on', async (t) => {
  const secret: IncomingHttpHeaders = {}
  for (const name of [
    'authorization',
    'x-api-key',
    'api-key',
    'dpop',
    'cookie',
    'x-admin-secret',
    'x-llm-capability',
    'proxy-authorization',
    'x-forwarded-for',
    'x-forwarded-host',
    'forwarded',
    'via',
    'idempotency-key',
    'expect',
    'te',
    'trailer',
    'trailers',
    'transfer-encoding',
    'upgrade',
    'keep-alive',
    'proxy-connection',
    'host',
    'origin',
    'referer',
    'x-real-ip',
    'x-request-id',
    'content-encoding',
    'openai-organization',
    'openai-project',
    'x-ssl-client-cert',
    'x-http-method-override',
    'range',
    'accept-encoding',
    'date',
    'if-none-match',
    ':authority',
    'x-spiffe-id',
    'signature',
    'x-principal',
  ])
    secret[name] = 'canary'
  const kept = {
    accept: 'text/event-stream',
    'user-agent': 'OpenAI/JS 7',
    'x-stainless-lang': 'js',
    'x-stainless-retry-count': '0',
    'openai-beta': 'b',
    traceparent: '00-1-2-01',
    'x-claude-code-session-id': 's',
  }
  t.strictSame(
    sent(OPENAI, { ...secret, ...kept, 'content-type': 'application/json', 'content-length': '9' }),
    {
      ...kept,
      authorization: 'Bearer sk-up-1',
      'accept-encoding': 'identity',
      'content-length': '12',
      'content-type': 'application/json',
      host: 'up.example:8443',
    },
  )
})

await t.test('threat 11 what the Connection header nominates does not go on', async (t) => {
  const nominating = {
    connection: 'keep-alive, X-Stainless-Lang , idempotency-key',
    'x-stainless-lang': 'js',
    'idempotency-key': 'k',
    'x-stainless-os': 'linux',
  }
  const headers = sent(OPENAI, nominating, 'ours')
  t.notOk('connection' in headers || 'x-stainless-lang' in headers || 'idempotency-key' in headers)
  t.equal(headers['x-stainless-os'], 'linux')
})

await t.test(
  '§3 an Anthropic provider gets its key, and the caller’s version and betas or the default version',
  async (t) => {
    t.match(sent(ANTHROPIC), {
      'x-api-key': 'sk-ant-up-1',
      'anthropic-version': '2023-06-01',
      authorization: undefined,
    })
    t.match(sent(ANTHROPIC, { 'anthropic-version': '2026-10-21', 'anthropic-beta': 'a,b' }), {
      'anthropic-version': '2026-10-21',
      'anthropic-beta': 'a,b',
    })
    t.equal(sent(OPENAI)['anthropic-version'], undefined)
    t.match(sent(provider(anthropic(BASE, { auth: 'bearer' }))), { authorization: 'Bearer sk-ant-up-1' })
  },
)

await t.test('§8 the headers of the operator’s file win over everything but the framing', async (t) => {
  const of = provider(
    openai(BASE, { headers: { 'User-Agent': 'ours', 'X-Team': 't', Authorization: 'Basic x' } }),
  )
  t.match(sent(of, { 'user-agent': 'theirs' }), {
    'user-agent': 'ours',
    'x-team': 't',
    authorization: 'Basic x',
  })
})

await t.test(
  '§3 auth: passthrough forwards the caller’s own vendor credentials, and nothing of ours',
  async (t) => {
    const caller = {
      authorization: 'Bearer sk-own',
      'x-api-key': 'sk-own',
      'openai-organization': 'org-1',
      cookie: 'c',
    }
    t.match(sent(PASSING, caller), {
      authorization: 'Bearer sk-own',
      'x-api-key': 'sk-own',
      'openai-organization': 'org-1',
    })
    t.notOk('cookie' in sent(PASSING, caller))
  },
)

await t.test('threat 16 passthrough never forwards an access token of this gateway', async (t) => {
  const claims = Buffer.from(JSON.stringify({ sub: 'acme::bot', cnf: { 'x5t#S256': 'x' } })).toString(
    'base64url',
  )
  for (const authorization of [
    'DPoP abc',
    'dpop  abc',
    `Bearer e30.${claims}.sig`,
    `bearer e30.${claims}.`,
  ]) {
    t.equal(sent(PASSING, { authorization }).authorization, undefined, authorization)
    t.notOk(hasCredentials(PASSING, { authorization }))
  }
  const other = Buffer.from(JSON.stringify({ sub: 'someone' })).toString('base64url')
  t.ok(sent(PASSING, { authorization: `Bearer e30.${other}.sig` }).authorization)
})

await t.test('§3 a provider without a key has no credentials, one with any has', async (t) => {
  t.ok(hasCredentials(OPENAI, {}))
  t.notOk(hasCredentials(provider(openai(BASE, { api_key: '' })), { authorization: 'Bearer sk-own' }))
  t.ok(hasCredentials(provider(openai(BASE, { api_key: '', headers: { 'API-Key': 'k' } })), {}))
  t.ok(hasCredentials(PASSING, { 'x-api-key': 'k' }))
  t.notOk(hasCredentials(PASSING, {}))
})

await t.test(
  'threat 12 of a provider’s answer only the allow-list comes back, its request id renamed',
  async (t) => {
    t.strictSame(
      responseHeaders({
        'content-type': 'application/json',
        'retry-after': '3',
        'retry-after-ms': '3000',
        'x-ratelimit-remaining-tokens': '1',
        'anthropic-ratelimit-requests-limit': '5',
        'openai-processing-ms': '7',
        'openai-version': 'v',
        'x-request-id': 'req_1',
        'set-cookie': 'a=b',
        'access-control-allow-origin': '*',
        'strict-transport-security': 'x',
        location: '/x',
        'dpop-nonce': 'n',
        'www-authenticate': 'x',
        connection: 'x-a',
        'transfer-encoding': 'chunked',
        'content-length': '3',
        'openai-organization': 'org',
        'anthropic-organization-id': 'o',
        'cf-ray': 'r',
        server: 's',
        'alt-svc': 'h3',
        'request-id': 'b',
        'clear-site-data': '*',
        'content-security-policy': 'x',
        refresh: '0',
        'x-should-retry': 'true',
        link: '<>',
      }),
      {
        'content-type': 'application/json',
        'retry-after': '3',
        'retry-after-ms': '3000',
        'x-ratelimit-remaining-tokens': '1',
        'anthropic-ratelimit-requests-limit': '5',
        'openai-processing-ms': '7',
        'openai-version': 'v',
        'x-should-retry': 'true',
        'x-upstream-request-id': 'req_1',
      },
    )
    t.equal(responseHeaders({ 'request-id': 'ant_1' })['x-upstream-request-id'], 'ant_1')
    t.equal(responseHeaders({ 'request-id': 'with space' })['x-upstream-request-id'], undefined)
  },
)

await t.test(
  '§8 pass_headers lets further headers of a caller through, and nothing else with them',
  async (t) => {
    const of = provider(
      openai(BASE, {
        pass_headers: ['X-Title', 'x-acme-*', 'x-api-v*', 'openai-project'],
        headers: { 'x-acme-team': 'ours' },
      }),
    )
    const caller = {
      'x-title': 'app',
      'x-acme-a': '1',
      'x-acme-team': 'theirs',
      'x-acme-api-key': 'canary',
      'x-acme-token': 'canary',
      'x-api-key': 'canary',
      'x-acme-b': 'DPoP canary',
      'x-acmeville': 'canary',
      'x-api-version': '2',
      'x-admin-secret': 'canary',
      'openai-project': 'p',
      'openai-organization': 'canary',
    }
    const headers = sent(of, caller)
    t.notMatch(JSON.stringify(headers), 'canary')
    t.match(headers, {
      'x-title': 'app',
      'x-acme-a': '1',
      'x-acme-team': 'ours',
      'x-api-version': '2',
      'openai-project': 'p',
    })
    t.notOk('x-title' in sent(of, { ...caller, connection: 'x-title' }), 'unless the connection keeps it')
    const passing = provider(openai(BASE, { auth: 'passthrough', pass_headers: ['openai-project'] }))
    t.equal(sent(passing, caller)['openai-project'], 'p', 'once, where account headers go anyway')
  },
)
