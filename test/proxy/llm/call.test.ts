import t from 'tap'
import { jsonBody } from '../../../plugins/json-body/json-body.ts'
import { LLM_ENDPOINTS } from '../../../proxy/llm/dialects/registry.ts'
import { JUDGED_MEMBERS, llmCall } from '../../../proxy/llm/routing.ts'
import { sharedGateway } from '../../support/gateway.ts'
import { arrival, endpointAt } from '../../support/llm/facts.ts'

const admit = async (json: Record<string, unknown>) => {
  const plugin = llmCall(endpointAt('/v1/messages'))
  const asked = arrival({ body: json })
  const read = await jsonBody({ limit: 65_536, judged: JUDGED_MEMBERS }).admit(asked)
  const given = await plugin.admit({ ...asked, ...read })
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
  t.match(await admit({ messages: ['x'.repeat(9_000)], model: 'claude-x', stream: true }), {
    model: 'claude-x',
    stream: true,
  })
})

for (const model of [
  undefined,
  null,
  1,
  '',
  ['m'],
  { a: 1 },
  'a'.repeat(257),
  'a'.repeat(10_000),
  ['a'.repeat(10_000)],
  'a\nb',
  'a\u0000',
  'a\u0085',
  '\ud800',
]) {
  await t.test(`§3 the model ${JSON.stringify(model)?.slice(0, 20)} is refused 400`, async (t) => {
    await t.rejects(admit({ model }), { reason: 'body_invalid', status: 400, message: /^model must be/ })
  })
}

for (const stream of ['true', 1, {}, [], 'true'.padEnd(10_000), ['x'.repeat(10_000)]]) {
  await t.test(
    `§3 stream ${JSON.stringify(stream).slice(0, 20)} is refused 400, so that no two readers disagree`,
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

await t.test(
  'a call that could be begun and not ended is refused at its beginning, with a sentence',
  async (t) => {
    const gateway = await sharedGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    for (const model of ['gpt-test', 'claude-test']) {
      const body = { model, input: 'hi', background: true }
      const { status, json } = await gateway.call(bot, 'POST', '/v1/responses', { body })
      t.match({ status, json }, { status: 400, json: { member: 'background' } }, 'translated or not')
    }
    const model = 'gpt-test'
    for (const [path, member] of [
      ['/v1/responses', 'background'],
      ['/v1/responses/input_tokens', 'background'],
      ['/v1/responses/compact', 'background'],
      ['/v1/chat/completions', 'deferred'],
      ['/v1/llm/chat', 'deferred'],
    ] as const) {
      for (const value of [true, 1, 'true', {}]) {
        for (const stream of [false, true]) {
          const body = { model, stream, [member]: value }
          const { status, json } = await gateway.call(bot, 'POST', path, { body })
          t.match({ status, json }, { status: 400, json: { reason: 'member_refused', member } })
          t.match(json.message, `${member} is not supported`)
        }
      }
      for (const [first, last] of [
        [true, false],
        [false, true],
      ]) {
        const body = `{"model":"${model}","${member}":${first},"${member}":${last}}`
        const headers = { 'content-type': 'application/json' }
        const { json } = await gateway.call(bot, 'POST', path, { body, headers })
        t.match(json, { reason: 'member_refused', member }, 'some readers take the first')
      }
      t.equal(gateway.upstream.seen.length, 0, 'no provider was asked')
      for (const value of [false, null, undefined]) {
        const answered = await gateway.call(bot, 'POST', path, { body: { model, [member]: value } })
        t.equal(answered.status, 200, `${member}: ${value}`)
      }
      gateway.upstream.seen.length = 0
    }
    const kept = { model, input: 'hi', store: true }
    t.equal((await gateway.call(bot, 'POST', '/v1/responses', { body: kept })).status, 200)
  },
)

await t.test('a part of the vendors’ APIs that is not served says so', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  for (const [method, path] of [
    ['GET', '/v1/responses/resp_1'],
    ['DELETE', '/v1/responses/resp_1'],
    ['POST', '/v1/responses/resp_1/cancel'],
    ['GET', '/v1/responses/resp_1/input_items'],
    ['POST', '/v1/responses/resp_1/compact'],
    ['GET', '/v1/chat/completions/chatcmpl_1'],
    ['POST', '/v1/conversations'],
    ['POST', '/v1/messages/batches'],
    ['GET', '/v1/messages/batches/b_1/results'],
    ['POST', '/v1/batches'],
    ['POST', '/v1/files'],
    ['GET', '/v1/files/f_1/content'],
    ['POST', '/v1/fine_tuning/jobs'],
    ['POST', '/v1/images/edits'],
    ['GET', '/v1/realtime'],
    ['POST', '/batches'],
  ] as const) {
    const { status, json } = await gateway.call(bot, method, path)
    t.match({ status, json }, { status: 404, json: { reason: 'not_found' } }, path)
    t.match(json.message, 'does not serve this part', path)
  }
  for (const path of ['/images/generations', '/moderations', '/responses/compact'])
    t.match((await gateway.call(bot, 'POST', path)).json.message, 'Append /v1', path)
  for (const path of ['/v1/filesystem', '/v1/nothing', '/files2'])
    t.notMatch((await gateway.call(bot, 'GET', path)).json.message, 'does not serve this part')
  t.equal(gateway.upstream.seen.length, 0)
})
