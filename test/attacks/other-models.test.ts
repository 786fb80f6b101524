import t from 'tap'
import { isRequestedModel, ModelMismatches } from '../../proxy/llm/answered-models.ts'
import { CHAT, PLUGIN_FILES, testGateway } from '../support/gateway.ts'
import { signedInBySecret } from '../support/oidc/jar.ts'
import { settledCalls } from '../support/settled.ts'

const none = { answered_by: {} }

await t.test('H1e an honest provider’s spellings of a model are the model that was asked for', (t) => {
  for (const [asked, answered] of [
    ['gpt-5', 'gpt-5-2026-01-01'],
    ['gpt-4', 'gpt-4-0613'],
    ['gpt-4o', 'openai/gpt-4o-2024-08-06'],
    ['openai/gpt-4o', 'gpt-4o'],
    ['GPT-4o', 'gpt-4o'],
    ['claude-sonnet-4-5', 'claude-sonnet-4-5-20250929'],
    ['claude-3-5-sonnet-latest', 'claude-3-5-sonnet-20241022'],
    ['claude-opus-4-0', 'claude-opus-4-20250514'],
    ['claude-3-5-sonnet-20240620', 'us.anthropic.claude-3-5-sonnet-20240620-v1:0'],
    ['anthropic.claude-3-5-sonnet-20240620-v1:0', 'claude-3-5-sonnet-20240620'],
    ['claude-3-5-sonnet@20240620', 'claude-3-5-sonnet-20240620'],
    ['gemini-1.5-pro', 'models/gemini-1.5-pro-002'],
    ['gemini-2.5-flash-preview', 'gemini-2.5-flash-preview-05-20'],
    ['mistral-large-latest', 'mistral-large-2411'],
    ['deepseek/deepseek-chat:free', 'deepseek/deepseek-chat'],
    ['llama3', 'llama3:latest'],
    ['text-embedding-3-small', 'text-embedding-3-small'],
    ['accounts/fireworks/models/llama-v3p1-8b-instruct', 'llama-v3p1-8b-instruct'],
  ] as const) {
    t.ok(isRequestedModel(none, asked, answered), `${asked} is answered by ${answered}`)
  }
  t.end()
})

await t.test('H1e another model is another model, however like it its name is', (t) => {
  for (const [asked, answered] of [
    ['gpt-4o-mini', 'gpt-4o'],
    ['gpt-4o', 'gpt-4o-mini'],
    ['gpt-5', 'gpt-5-pro-2026-01-01'],
    ['gpt-4', 'gpt-4-32k-0613'],
    ['gpt-4o-2024-08-06', 'gpt-4o-2024-05-13'],
    ['claude-sonnet-4', 'claude-sonnet-4-5-20250929'],
    ['claude-haiku-4-5', 'claude-opus-4-5'],
    ['llama3:8b', 'llama3:70b'],
    ['cheap', 'gpt-dear'],
    ['__proto__', 'gpt-dear'],
    ['', 'gpt-dear'],
  ] as const) {
    t.notOk(isRequestedModel(none, asked, answered), `${asked} is not answered by ${answered}`)
  }
  const named = { answered_by: { 'my-deployment': ['gpt-4o'], any: ['*'] } }
  t.ok(isRequestedModel(named, 'my-deployment', 'gpt-4o-2024-08-06'))
  t.ok(isRequestedModel(named, 'any', 'gpt-dear'))
  t.notOk(isRequestedModel(named, 'my-deployment', 'gpt-dear'))
  t.end()
})

await t.test('H1e no more than a hundred pairs are remembered, the newest ones', (t) => {
  const told: string[] = []
  const mismatches = new ModelMismatches((provider) => told.push(provider))
  for (let at = 0; at < 250; at += 1) {
    mismatches.note({ provider: 'p', asked: `m${at}`, answered: 'x', at, requestId: `req_${at}` })
  }
  mismatches.note({ provider: 'p', asked: 'm200', answered: 'x', at: 999, requestId: 'req_last' })
  const list = mismatches.list()
  t.equal(list.length, 100)
  t.match(list[0], { asked: 'm200', calls: 2, at: 999, requestId: 'req_last' })
  t.equal(told.length, 251, 'and each is counted')
  t.end()
})

await t.test(
  'H1e a call that another model answered is in its row, in a metric, and on Attention',
  async (t) => {
    const file = `${PLUGIN_FILES['50-llm.yaml']}    answered_by: { claude-group: ["claude-haiku-4-5"] }\n`
    const gateway = await testGateway(t, { files: { '50-llm.yaml': file } })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const jar = await signedInBySecret(gateway)
    const call = (model: string, path = '/v1/chat/completions', more = {}) =>
      gateway.call(bot, 'POST', path, { body: { ...CHAT, model, ...more } })
    gateway.upstream.answer = (res, { body }) => {
      const answers: Record<string, string> = {
        'gpt-5': 'gpt-5-2026-01-01',
        'gpt-cheap': 'gpt-dear\u202e<b>',
        'claude-group': 'claude-haiku-4-5-20251001',
      }
      const { model: asked, stream } = JSON.parse(body.toString())
      const answer = JSON.stringify({ model: answers[asked] ?? asked, usage: { prompt_tokens: 1 } })
      res.setHeader('content-type', stream === true ? 'text/event-stream' : 'application/json')
      res.end(stream === true ? `data: ${answer}\n\ndata: [DONE]\n\n` : answer)
    }
    await call('gpt-5')
    await call('claude-group', '/v1/messages', { max_tokens: 1 })
    t.notMatch((await jar.ask('GET', '/proxy')).text, 'A different model', 'honest answers need nobody')
    await call('gpt-cheap')
    await call('gpt-cheap', '/v1/chat/completions', { stream: true })
    const { ended } = await settledCalls(gateway)
    t.strictSame(
      ended.map(({ detail }) => detail.model_differs),
      [undefined, undefined, true, true],
    )
    const { text } = await jar.ask('GET', '/proxy')
    t.match(text, /A different model answered.*gpt-cheap.*gpt-dear\\u\{202e\}&lt;b&gt;.*2 calls/s)
    t.match(
      (await gateway.admin('GET', '/metrics')).text,
      'sallyport_llm_model_mismatches_total{provider="openai"} 2',
    )
  },
)
