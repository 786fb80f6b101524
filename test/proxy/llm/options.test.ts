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
    api_key: '',
    auth: 'bearer',
    models: [],
    headers: {},
    aliases: {},
    refuse_members: [],
    allow_members: [],
    answered_by: {},
    connect_timeout_ms: 5000,
    first_byte_timeout_ms: 120_000,
    idle_timeout_ms: 120_000,
  })
  t.equal(file.providers[1]?.auth, 'passthrough')
  t.equal(
    llmOptions.parse({ providers: [{ ...provider, dialect: 'anthropic' }] }).providers[0]?.auth,
    'api_key',
  )
})

for (const [what, change, message] of [
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
