import t from 'tap'
import { compileGlob } from '../../../db/support/glob.ts'
import {
  type ApiWire,
  DIALECT_OF_WIRE,
  type DialectName,
  PATH_OF_WIRE,
} from '../../../proxy/llm/dialects/registry.ts'
import type { LlmOptions } from '../../../proxy/llm/options.ts'
import { providerRouting } from '../../../proxy/llm/routing.ts'
import { anthropic, openai, options } from '../../support/llm/facts.ts'

const URL_A = 'https://a.example/v1'
const two = options([
  openai(URL_A, { aliases: { fast: 'gpt-4o-mini', ['__proto__']: 'x' } }),
  openai(URL_A, { name: 'spare', models: ['gpt-4*', 'o1'] }),
  openai(URL_A, { name: 'local', models: [] }),
  anthropic(URL_A, { aliases: { quick: 'claude-haiku-4-5' } }),
])

const endpointOf = (wire: ApiWire) => ({
  dialect: DIALECT_OF_WIRE[wire],
  wire,
  upstreamPath: PATH_OF_WIRE[wire],
})

const found = (file: LlmOptions, model: string | null, dialect: DialectName = 'openai') =>
  providerRouting(file)(model, endpointOf(dialect === 'openai' ? 'chat' : 'messages')).map(
    (target) => `${target.provider.name}:${target.model}`,
  )

await t.test('§3 a model goes to the providers whose patterns match, in the order of the file', async (t) => {
  t.strictSame(found(two, 'gpt-4o'), ['openai:gpt-4o', 'spare:gpt-4o'])
  t.strictSame(found(two, 'gpt-5'), ['openai:gpt-5'])
  t.strictSame(found(two, 'o1'), ['spare:o1'])
})

await t.test('§3 a prefix that names a provider decides, and is not sent', async (t) => {
  t.strictSame(found(two, 'spare/gpt-5'), ['spare:gpt-5'])
  t.strictSame(found(two, 'local/meta/llama'), ['local:meta/llama'])
  t.strictSame(found(two, 'openai/fast'), ['openai:gpt-4o-mini'])
  t.throws(() => found(two, 'spare/'), { message: /serves the model spare\// })
})

await t.test('§3 a slash whose prefix names no provider is part of the name', async (t) => {
  const file = options([openai(URL_A, { models: ['meta/*'] })])
  t.strictSame(found(file, 'meta/llama'), ['openai:meta/llama'])
})

await t.test('§3 an alias is rewritten by the provider that has it', async (t) => {
  t.strictSame(found(two, 'fast'), ['openai:gpt-4o-mini'])
  t.strictSame(found(two, 'quick', 'anthropic'), ['anthropic:claude-haiku-4-5'])
})

await t.test(
  '§3 what matches nothing goes to the default provider, and without one is model_unknown',
  async (t) => {
    const file = { ...two, default_provider: 'local' }
    t.strictSame(found(file, 'mistral'), ['local:mistral'])
    t.strictSame(found(file, 'gpt-5'), ['openai:gpt-5'])
    t.throws(() => found(two, 'mistral'), { reason: 'model_unknown', status: 404, message: /mistral/ })
    t.throws(() => found(two, 'toString'), { message: /toString/ })
    t.strictSame(found(file, null), ['local:null'], 'a stored prompt names the model')
    t.throws(() => found(file, null, 'anthropic'), { message: /without a model is served by local/ })
    t.throws(() => found(two, null), { reason: 'model_unknown', message: /names no model.*default_provider/ })
  },
)

await t.test(
  '§3 a call of a model that only providers of the other API serve is told to them, unless translate is off',
  async (t) => {
    const file = { ...two, default_provider: 'local' }
    const wireOf = (model: string, wire: 'chat' | 'messages') =>
      providerRouting(file)(model, endpointOf(wire)).map((one) => one.wire)
    t.strictSame(wireOf('claude-opus-4', 'chat'), ['messages'])
    t.strictSame(wireOf('gpt-4o', 'messages'), ['responses', 'responses'])
    const off = { ...file, translate: 'off' as const }
    t.throws(() => found(off, 'claude-opus-4'), {
      reason: 'dialect_translation_unavailable',
      status: 400,
      message: /anthropic/,
    })
    t.throws(() => found(off, 'gpt-4o', 'anthropic'), { message: /openai, spare/ })
    // Of an embedding, say, there is no other API.
    t.throws(
      () => providerRouting(file)('claude-opus-4', { dialect: 'openai', upstreamPath: '/embeddings' }),
      {
        reason: 'dialect_translation_unavailable',
        message: /anthropic/,
      },
    )
  },
)

await t.test(
  '§3 providers of the other dialect are skipped where one of the caller’s matches too',
  async (t) => {
    const file = options([anthropic(URL_A, { models: ['*'] }), openai(URL_A, { models: ['*'] })])
    t.strictSame(found(file, 'any'), ['openai:any'])
    t.strictSame(found(file, 'any', 'anthropic'), ['anthropic:any'])
  },
)

await t.test('§3 a star in a pattern stands for any characters and nothing else is special', async (t) => {
  for (const [pattern, yes, no] of [
    ['gpt-*', ['gpt-', 'gpt-4'], ['gpt', 'xgpt-4', 'GPT-4']],
    ['o1', ['o1'], ['o10', 'o']],
    ['*-mini', ['-mini', 'o1-mini'], ['o1-mini-x']],
    ['a*b*c', ['abc', 'aXbXc', 'abbcc'], ['ac', 'acb', 'ab']],
    ['ab*ba', ['abba', 'abXba'], ['aba']],
    ['*', ['', 'x'], []],
    ['a.c', ['a.c'], ['abc']],
    ['a**b', ['ab', 'axb'], ['a']],
  ] as const) {
    for (const name of yes) t.ok(compileGlob(pattern)(name), `${pattern} ~ ${name}`)
    for (const name of no) t.notOk(compileGlob(pattern)(name), `${pattern} !~ ${name}`)
  }
})
