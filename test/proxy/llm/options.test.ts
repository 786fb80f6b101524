import t from 'tap'
import { llmOptions } from '../../../proxy/llm/options.ts'

const provider = { name: 'openai', dialect: 'openai', base_url: 'https://api.example/v1' }
const problems = (file: unknown): string =>
  (llmOptions.safeParse(file).error?.issues ?? [])
    .map(({ path, message }) => `${path.join('.')}: ${message}`)
    .join('\n')

await t.test('§8 the file of the wire contract is accepted, with its defaults', async (t) => {
  const file = llmOptions.parse({
    default_provider: 'openai',
    providers: [provider, { ...provider, name: 'anthropic', dialect: 'anthropic', auth: 'passthrough' }],
  })
  t.strictSame(file.providers[0], {
    ...provider,
    api: 'native',
    proxy: 'none',
    api_key: '',
    auth: 'bearer',
    models: [],
    headers: {},
    pass_headers: [],
    pass_query: [],
    pass_answer_headers: [],
    aliases: {},
    refuse_members: [],
    allow_members: [],
    state: 'own',
    shared_ids: [],
    lossy: 'none',
    drop: [],
    max_output_tokens: 32_000,
    thinking: 'adaptive',
    show_reasoning: false,
    quirks: {},
    cache: 'auto',
    answered_by: {},
    breaker: { failures: 5, rate: 0.5, of: 20, window_s: 30, open_s: 10, most_s: 120 },
    connect_timeout_ms: 5000,
    first_byte_timeout_ms: 600_000,
    idle_timeout_ms: 600_000,
    speaks: ['chat', 'responses'],
  })
  t.equal(file.providers[1]?.auth, 'passthrough')
  t.equal(
    llmOptions.parse({ providers: [{ ...provider, dialect: 'anthropic' }] }).providers[0]?.auth,
    'api_key',
  )
})

for (const [what, change, message] of [
  [
    'a weight of nothing',
    { weight: 0 },
    /weight: must be more than 0; to ask a provider last, write it last/,
  ],
  [
    'a retry after a timeout',
    { retry: { on: ['timeout'] } },
    /retry.on.0: must be connect, reset, 408, 409, 429/,
  ],
  [
    'a retry after a 404',
    { retry: { on: [404] } },
    /retry.on.0: must be connect, reset, 408, 409, 429 or a status/,
  ],
  ['a retry that asks once', { retry: { attempts: 1 } }, /retry.attempts/],
  ['a retry that asks six times', { retry: { attempts: 6 } }, /retry.attempts/],
  [
    'a first wait beyond the longest',
    { retry: { backoff_ms: 9000 } },
    /backoff_ms: must not be more than most_ms/,
  ],
  ['a breaker that is on by a word', { breaker: 'on' }, /breaker: must be off, or an object such as/],
  ['a breaker of no share', { breaker: { rate: 0 } }, /breaker.rate: must be more than 0 and at most 1/],
  ['a breaker of more than all', { breaker: { rate: 2 } }, /breaker.rate: must be more than 0 and at most 1/],
  [
    'a breaker that opens longer than the longest',
    { breaker: { open_s: 300 } },
    /open_s: must not be more than most_s/,
  ],
  ['an unknown word of a breaker', { breaker: { failure: 3 } }, /unrecognized/i],
  ['an unknown option', { timeout: 3 }, /unrecognized/i],
  ['a refusal of what every call has', { refuse_members: ['model'] }, /routed by/],
  ['a member that is no name', { allow_members: ['a.b.c'] }, /name of a member/],
  ['a name with capitals', { name: 'OpenAI' }, /name/],
  ['a name with a slash, which a prefix could not name', { name: 'a/b' }, /name/],
  ['a name of 33 characters', { name: 'a'.repeat(33) }, /name/],
  ['another dialect', { dialect: 'gemini' }, /dialect/],
  ['a base_url with a query', { base_url: 'https://a.example/v1?x=1' }, /base_url/],
  ['a base_url with credentials', { base_url: 'https://u:p@a.example/v1' }, /base_url/],
  ['a base_url with a fragment', { base_url: 'https://a.example/v1#' }, /base_url/],
  ['a base_url of another scheme', { base_url: 'file:///etc/passwd' }, /base_url/],
  ['a base_url that is none', { base_url: 'api.example' }, /base_url/],
  ['a proxy of another scheme', { proxy: 'socks5://a:1' }, /proxy/],
  ['a proxy with a path', { proxy: 'http://a:1/x' }, /proxy/],
  ['a key with a line feed', { api_key: 'sk-1\n' }, /api_key/],
  ['a framing header', { headers: { 'Transfer-Encoding': 'chunked' } }, /headers/],
  ['a hop-by-hop header', { headers: { connection: 'close' } }, /headers/],
  ['a header that is no name', { headers: { 'a b': 'c' } }, /headers/],
  ['a header value with a line feed', { headers: { a: 'b\r\nc: d' } }, /headers/],
  ['a timeout of no time', { idle_timeout_ms: 0 }, /idle_timeout_ms/],
] as const) {
  await t.test(`§8 ${what} is refused`, async (t) => {
    t.match(problems({ providers: [{ ...provider, ...change }] }), message)
  })
}

await t.test('§8 a name that is used twice, and a default that names nobody, are refused', async (t) => {
  t.match(problems({ providers: [provider, provider] }), 'providers.1.name: is used twice')
  t.match(
    problems({ providers: [provider], default_provider: 'opnai' }),
    /default_provider: names no provider/,
  )
})

/** Names that no list lets through, by list: of ours, of credentials, of the connection. */
const NEVER: Readonly<Record<string, readonly string[]>> = {
  pass_headers: [
    ...['X-Admin-Secret', 'x_admin_secret', 'x-admin-*', 'DPoP', 'dpop-nonce', 'mcp-session-id', 'Mcp_Name'],
    ...['x-sallyport-agent', 'sallyport-id', 'x-mcp-proxy-agent', 'idempotency-key', 'Idempotency_Key'],
    ...['last-event-id', 'if-rehearsed', 'audit-receipt', 'mcp-proxy-data', 'mcp-*', 'x-spiffe-id'],
    ...['Authorization', 'x-api-key', 'X_API_KEY', 'api-key', 'x-goog-api-key', 'cookie', 'Cookie2'],
    ...['proxy-authorization', 'x-auth-token', 'x-amz-security-token', 'ocp-apim-subscription-key'],
    ...['cf-access-client-secret', 'helicone-auth', 'x-functions-key', 'authorization*', 'x-api-key*'],
    ...['x-csrf-token', 'signature-input', 'accesstoken', 'x-portkey-virtual-key', 'x-vault-token'],
    ...['Connection', 'keep-alive', 'te', 'trailer', 'Transfer-Encoding', 'transfer_encoding', 'upgrade'],
    ...['content-length', 'Content_Length', 'content-type', 'content-encoding', 'host', 'expect', 'range'],
    ...['accept-encoding', 'origin', 'forwarded', 'via', 'x-forwarded-for', 'X-Forwarded-*', 'x-real-ip'],
    ...['proxy-connection', 'proxy-foo', 'proxy-*', 'x-http-method-override', 'x-original-url', 'cdn-loop'],
    ...['x-forwarded-client-cert', 'x-ssl-client-cert', 'if-none-match', 'sec-fetch-site'],
  ],
  pass_answer_headers: [
    ...['x-request-id', 'X_Request_Id', 'request-id', 'x-upstream-request-id', 'audit-receipt', 'dpop-nonce'],
    ...['mcp-session-id', 'cache-control', 'strict-transport-security', 'x-content-type-options'],
    ...['Set-Cookie', 'set_cookie', 'set-cookie2', 'www-authenticate', 'authentication-info', 'x-api-key'],
    ...['authorization', 'x-auth-token', 'proxy-authenticate', 'x-amz-security-token', 'set-cookie*'],
    ...['connection', 'transfer-encoding', 'content-length', 'content-encoding', 'trailer', 'upgrade', 'te'],
    ...['location', 'refresh', 'alt-svc', 'link', 'access-control-allow-origin', 'access-control-*', 'via'],
    ...['content-security-policy', 'clear-site-data', 'x-accel-redirect', 'x-sendfile', 'nel', 'date'],
  ],
  pass_query: [
    ...['key', 'api_key', 'apiKey', 'API-KEY', 'access_token', 'accessToken', 'token', 'code', 'sig', 'auth'],
    ...['X-Amz-Signature', 'X-Amz-Credential', 'client_secret', 'password', 'subscription-key', 'jwt'],
    ...['model', 'stream', 'assertion', 'session'],
  ],
}

/** Names that an operator may well let through. */
const USEFUL: Readonly<Record<string, readonly string[]>> = {
  pass_headers: [
    ...['x-title', 'http-referrer', 'openai-organization', 'x-openrouter-*', 'helicone-cache-enabled'],
    ...['x-goog-user-project', 'anthropic-workspace-id', 'x-session-affinity', 'x-cache-key', 'x-ms-region'],
  ],
  pass_answer_headers: [
    ...['openai-organization', 'cf-ray', 'x-codex-primary-used-percent', 'x-codex-*', 'x-tokens-used'],
    ...['apim-request-id', 'x-ms-region', 'server-timing', 'x-groq-region', 'x-remaining-tokens', 'etag-x'],
  ],
  pass_query: ['beta', 'api-version', 'include[]', 'alt', 'max_tokens', 'foo', '$filter'],
}

for (const [list, names] of Object.entries(NEVER)) {
  await t.test(`§8 ${list} can name no header of ours, no credential and nothing of a hop`, (t) => {
    for (const name of names) {
      const found = problems({ providers: [{ ...provider, [list]: ['fine', name] }] })
      t.match(found, new RegExp(`^providers\\.0\\.${list}\\.1: (is|may|belongs|must)`), name)
    }
    t.equal(problems({ providers: [{ ...provider, [list]: USEFUL[list] }] }), '', 'and others may be named')
    t.match(
      problems({ providers: [{ ...provider, [list]: ['foo-bar', 'x', 'foo-bar'] }] }),
      /2: stands there/,
    )
    t.match(problems({ providers: [{ ...provider, [list]: ['a b'] }] }), /must be the name/)
    t.match(problems({ providers: [{ ...provider, [list]: ['*'] }] }), /must be the name/)
    const many = Array.from({ length: 51 }, (_, index) => `foo-${index}`)
    t.match(problems({ providers: [{ ...provider, [list]: many }] }), /Too big/)
    t.end()
  })
}

await t.test('a base URL is joined as one, however it ends and is spelled', async (t) => {
  for (const [given, expected] of [
    ['https://a.example/', 'https://a.example'],
    ['HTTPS://A.Example:443/v1/', 'https://a.example/v1'],
    ['https://a.example//v1', 'https://a.example/v1'],
    ['https://a.example/v1/v1', 'https://a.example/v1'],
    ['https://a.example/v1//v1/', 'https://a.example/v1'],
    ['https://a.example/openai/v1', 'https://a.example/openai/v1'],
    ['http://[::1]:80/api/v2//', 'http://[::1]/api/v2'],
  ]) {
    t.equal(
      llmOptions.parse({ providers: [{ ...provider, base_url: given }] }).providers[0]?.base_url,
      expected,
    )
  }
})

await t.test(
  'the key of a provider that expires, its server and its APIs are checked, each in a sentence',
  (t) => {
    const vertex = { ...provider, dialect: 'anthropic', api: 'vertex' }
    for (const [more, wanted] of [
      [{ server: 'vllm', dialect: 'anthropic' }, 'server: is for dialect: openai alone'],
      [{ api: 'vertex' }, 'api: vertex is for dialect: anthropic alone'],
      [{ api: 'vertex', dialect: 'anthropic', speaks: ['messages', 'chat'] }, 'speaks: is messages alone'],
      [{ speaks: [] }, 'speaks'],
      [{ speaks: ['chat', 'chat'] }, 'names one twice'],
      [{ speaks: ['gemini'] }, 'speaks'],
      [{ credentials: { kind: 'file', path: 'key' } }, 'must be an absolute path'],
      [
        { credentials: { kind: 'exec', command: ['gcloud'] } },
        'must begin with the absolute path of a program',
      ],
      [{ credentials: { kind: 'exec', command: [] } }, 'credentials.command'],
      [{ credentials: { kind: 'exec', command: ['/a'], env: ['A=b'] } }, 'must be the name of a variable'],
      [{ credentials: { kind: 'sigv4' } }, 'credentials.kind'],
      [{ credentials: { kind: 'google', key_file: '/k', scope: 'x' } }, 'scope'],
      ...['http://a.example/t', 'https://u:p@a.example/t', 'https://a.example/t#x', 'ftp://a.example'].map(
        (url) => [
          { credentials: { kind: 'oauth2', token_url: url, client_id: 'a', client_secret: 'b' } },
          'must be an https URL without credentials or fragment',
        ],
      ),
      [{ api_key: 'k', credentials: { kind: 'file', path: '/k' } }, 'stand next to api_key'],
      [
        { auth: 'passthrough', credentials: { kind: 'file', path: '/k' } },
        'never sent with auth: passthrough',
      ],
    ] as readonly (readonly [object, string])[])
      t.match(problems({ providers: [{ ...provider, ...more }] }), wanted)
    const parsed = (more: object) => llmOptions.parse({ providers: [{ ...provider, ...more }] }).providers[0]
    t.match(parsed({ server: 'azure' }), {
      auth: 'api_key',
      speaks: ['chat', 'responses'],
    })
    t.match(parsed({ server: 'azure', auth: 'bearer' }), { auth: 'bearer' })
    t.match(parsed({ server: 'gemini' }), { auth: 'bearer', speaks: ['chat'] })
    t.match(parsed({ server: 'ollama', speaks: ['chat'] }), { speaks: ['chat'] })
    t.match(parsed({ server: 'azure', credentials: { kind: 'file', path: '/k' } }), { auth: 'api_key' })
    t.match(parsed(vertex), { auth: 'bearer', speaks: ['messages'] })
    const token = { kind: 'oauth2', token_url: 'https://a.example/t', client_id: 'a', client_secret: 'b' }
    t.match(parsed({ server: 'azure', credentials: token }), { auth: 'bearer' })
    t.end()
  },
)
