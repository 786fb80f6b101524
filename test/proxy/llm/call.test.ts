import t from 'tap'
import { LLM_ENDPOINTS } from '../../../proxy/llm/dialects/registry.ts'
import { llmCall } from '../../../proxy/llm/routing.ts'
import { arrival, endpointAt } from '../../support/llm/facts.ts'

const admit = async (json: Record<string, unknown>) => {
  const plugin = llmCall(endpointAt('/v1/messages'))
  const read = {
    body: Buffer.alloc(0),
    spans: new Map(),
    wide: new Set<object>(),
    repeated: new Set<string>(),
  }
  const given = await plugin.admit({ ...arrival(), ...read, json })
  return { ...given.target, ...given.call, model: given.target.model }
}

await t.test('§3 a call says its model, whether it streams, and the dialect of its path', async (t) => {
  t.match(await admit({ model: 'claude-x', stream: true }), {
    model: 'claude-x',
    stream: true,
    dialect: 'anthropic',
    tool: null,
  })
  t.equal((await admit({ model: 'm' })).stream, false)
  t.equal((await admit({ model: 'm', stream: null })).stream, false)
  t.equal((await admit({ model: 'é'.repeat(256) })).model?.length, 256)
})

for (const model of [
  undefined,
  null,
  1,
  '',
  ['m'],
  { a: 1 },
  'a'.repeat(257),
  'a\nb',
  'a\u0000',
  'a\u0085',
  '\ud800',
]) {
  await t.test(`§3 the model ${JSON.stringify(model)?.slice(0, 20)} is refused 400`, async (t) => {
    await t.rejects(admit({ model }), { reason: 'body_invalid', status: 400, message: /^model must be/ })
  })
}

for (const stream of ['true', 1, {}, []]) {
  await t.test(
    `§3 stream ${JSON.stringify(stream)} is refused 400, so that no two readers disagree`,
    async (t) => {
      await t.rejects(admit({ model: 'm', stream }), { reason: 'body_invalid', message: /^stream must be/ })
    },
  )
}

await t.test('§3 each path stands once, and goes upstream as its canonical one', async (t) => {
  t.equal(new Set(LLM_ENDPOINTS.map(({ path }) => path)).size, LLM_ENDPOINTS.length)
  t.equal(endpointAt('/v1/llm/chat').upstreamPath, '/chat/completions')
  t.equal(endpointAt('/v1/v1/messages').upstreamPath, '/messages')
})
