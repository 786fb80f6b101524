import t from 'tap'
import { answerTap } from '../../../../proxy/llm/dialects/answer-tap.ts'
import type { Dialect } from '../../../../proxy/llm/dialects/dialect.ts'
import {
  DIALECT_BY_NAME,
  DIALECT_NAMES,
  DIALECTS,
  LLM_ENDPOINTS,
} from '../../../../proxy/llm/dialects/registry.ts'
import { fixedHeaders, providerRequestHeaders } from '../../../../proxy/llm/upstream/headers.ts'
import { options } from '../../../support/llm/facts.ts'

const FAULT = { type: 'api_error', code: 'provider_failed', message: 'It broke off.', param: null } as const
const BASE = 'https://up.example/v1'

await t.test('§3 no two dialects share a name, and no two endpoints a path', async (t) => {
  t.equal(new Set(DIALECT_NAMES).size, DIALECTS.length)
  const paths = LLM_ENDPOINTS.map(({ path }) => path)
  t.equal(new Set(paths).size, paths.length)
  t.equal(
    DIALECTS.filter(({ models }) => models.isExpected({})).length,
    0,
    'the first is shown, by its place',
  )
})

const DIALECT_LIST: readonly Dialect<(typeof DIALECT_NAMES)[number]>[] = DIALECTS

for (const dialect of DIALECT_LIST) {
  await t.test(`§3 the dialect ${dialect.name} is whole`, async (t) => {
    t.equal(DIALECT_BY_NAME[dialect.name], dialect)

    t.ok(dialect.endpoints.length > 0)
    for (const { path, upstreamPath, errorEvent } of dialect.endpoints) {
      t.match(path, /^\/v1(\/[a-z0-9_]+)+$/)
      t.match(upstreamPath, /^(\/[a-z0-9_]+)+$/)
      t.match(
        LLM_ENDPOINTS.find((one) => one.path === path),
        { dialect: dialect.name, upstreamPath },
      )
      const event = errorEvent(FAULT, 'req_1')
      t.match(event, /^(event: error\n)?data: \{[^\n]*\}\n\n$/, `${path}: one event, closed`)
      t.match(event, /"code":"provider_failed".*"request_id":"req_1"/)
    }

    const { key, headers, models, usage } = dialect
    const lists = [headers.request, headers.account, headers.response, headers.responsePrefixes]
    const names = [...lists.flat(), ...Object.keys(headers.defaults), key.header]
    t.strictSame(
      names,
      names.map((name) => name.toLowerCase()),
      'header names are lower case',
    )

    const file = { name: 'up', dialect: dialect.name, base_url: BASE, api_key: 'sk-1' }
    const [provider, keyed] = options([file, { ...file, name: 'keyed', auth: 'api_key' }]).providers
    if (!provider || !keyed) throw new Error('no provider')
    t.equal(
      provider.auth,
      key.auth,
      'an operator file may name the dialect, and need not say how its key goes',
    )
    const sent = providerRequestHeaders(fixedHeaders(keyed), {}, 1)
    for (const pair of Object.entries({ ...headers.defaults, [key.header]: 'sk-1', host: 'up.example' })) {
      const at = sent.indexOf(pair[0])
      t.strictSame(sent.slice(at, at + 2), pair)
    }

    const offered = [
      { id: 'a', name: 'a', created: 5, provider: 'up' },
      { id: 'b', name: 'b', created: 0, provider: 'up' },
    ]
    t.match(models.upstreamPath, /^\/[\w/]+(\?[\w=&]+)?$/)
    t.strictSame(
      models.parse(JSON.parse(JSON.stringify(models.render(offered)))),
      offered.map(({ provider: _, ...model }) => model),
      'the list that is shown is one that this dialect reads',
    )
    t.throws(() => models.parse({ error: 'no list' }))

    t.strictSame(statedUsage(dialect), { tokens: { input: 10, output: 5 }, upstream_model: 'm' })
    t.strictSame(
      usage.holders.filter((holder) => ['usage', 'model'].includes(holder)),
      [],
    )
  })
}

/** The usage read from a JSON answer that states its first names for input and output. */
function statedUsage(dialect: Dialect): unknown {
  const { tokens } = dialect.usage
  const [input = '', output = ''] = [tokens.input[0], tokens.output[0]]
  const tap = answerTap(dialect, 'application/json')
  tap.observe(Buffer.from(JSON.stringify({ model: 'm', usage: { [input]: 10, [output]: 5 } })))
  return tap.usage()
}
