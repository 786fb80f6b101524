import t from 'tap'
import { sampleSecret } from '../../support/content/secrets.ts'
import { DELTAS, events } from '../../support/content/streams.ts'
import { CHAT, testGateway } from '../../support/gateway.ts'
import { begin, event } from '../../support/llm/translate.ts'
import { signedInBySecret } from '../../support/oidc/jar.ts'
import { rawConnect, requestBytes } from '../../support/raw.ts'
import type { Answer } from '../../support/upstream.ts'

const PATH = '/v1/chat/completions'
const REQUESTS = `plugin: content
secrets: { where: [request, tool_arguments] }
`
const SECRET = sampleSecret('GITHUB_TOKEN')
/** A use of a tool, as it comes back to the model. */
const USE = { id: 'a', type: 'function', function: { name: 'f', arguments: JSON.stringify({ key: SECRET }) } }
const asking = (content: string) => ({ ...CHAT, messages: [{ role: 'user', content }] })

await t.test('a request with a secret is refused, recorded without it, and nothing is sent', async (t) => {
  const gateway = await testGateway(t, { files: { '37-content.yaml': REQUESTS } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  t.equal((await gateway.call(bot, 'POST', PATH, { body: asking('hello') })).status, 200)
  for (const [path, body] of [
    [PATH, asking(`my key is ${SECRET}`)],
    ['/v1/messages', { ...asking(SECRET), model: 'claude-sonnet-5', max_tokens: 9 }],
    ['/v1/responses', { model: CHAT.model, input: [{ role: 'user', content: SECRET }] }],
    [PATH, { ...asking(SECRET), stream: true }],
    [PATH, { ...CHAT, messages: [{ role: 'assistant', tool_calls: [USE] }] }],
  ] as const) {
    const refused = await gateway.call(bot, 'POST', path, { body })
    t.match(refused, {
      status: 403,
      headers: { 'x-should-retry': 'false' },
      json: { reason: 'content_refused', detail: { content: [{ rule: 'GITHUB_TOKEN', count: 1 }] } },
    })
    t.notOk(JSON.stringify(refused.json).includes(SECRET))
  }
  t.equal(gateway.upstream.seen.length, 1, 'nothing of a refused call is sent')
  const jar = await signedInBySecret(gateway)
  const [denied] = await gateway.rows({ status: 'denied' })
  for (const page of ['/proxy/activity', `/proxy/activity/${denied?.request_id}`]) {
    const { text } = await jar.ask('GET', page)
    t.match(text, /GITHUB_TOKEN in (?:messages|input)\[0\]/, page)
    t.notOk(text.includes(SECRET))
  }
  await gateway.close(0)
  const rows = await gateway.rows()
  t.match(rows.find(({ action }) => action === 'config.loaded')?.detail, {
    checks: [{ name: 'content', digest: /^[0-9a-f]{64}$/ }],
    content: [{ rules_digest: /^[0-9a-f]{64}$/, shadow: false, services: [] }],
  })
  const [passed] = rows.filter(({ status }) => status === 'allowed')
  t.match(passed?.detail.content, { verdict: 'pass', findings: [] })
  t.match(
    rows.filter(({ status }) => status === 'denied').map(({ detail }) => detail),
    ['messages[0]', 'messages[0]', 'input[0]', 'messages[0]', 'messages[0]'].map((where) => ({
      reason: 'content_refused',
      refused_by: 'content',
      authority: { checks: [{ name: 'content', verdict: 'refuse' }] },
      content: { verdict: 'refuse', findings: [{ rule: 'GITHUB_TOKEN', where, count: 1 }] },
    })),
  )
})

const ANSWERS = 'plugin: content\nsecrets: { where: [response, tool_result] }\n'
const FOUND = { reason: 'content_refused', detail: { content: [{ rule: 'GITHUB_TOKEN', count: 1 }] } }

const answering =
  (value: object): Answer =>
  (res) => {
    res.setHeader('content-type', 'application/json').end(JSON.stringify(value))
  }

const completionWith = (content: string) => ({
  ...{ id: 'chatcmpl-1', object: 'chat.completion', created: 1, model: CHAT.model },
  choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content } }],
  usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 },
})

await t.test('a whole answer with a secret is refused before its first byte', async (t) => {
  const gateway = await testGateway(t, { files: { '37-content.yaml': ANSWERS } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const call = () => gateway.call(bot, 'POST', PATH, { body: asking(SECRET) })
  t.equal((await call()).status, 200, 'a request is not judged')
  const long = { ...completionWith(SECRET), padding: 'x'.repeat(2_000_000) }
  for (const answer of [completionWith(SECRET), long]) {
    gateway.upstream.answer = answering(answer)
    const refused = await call()
    t.match(refused, { status: 502, headers: { 'x-should-retry': 'false' }, json: FOUND })
    t.notOk(refused.text.includes(SECRET))
  }
  gateway.upstream.answer = (res) => {
    res.writeHead(400, { 'content-type': 'application/json' })
    res.end(JSON.stringify({ error: { message: `no such thing: ${SECRET}`, type: 'invalid_request_error' } }))
  }
  t.match(await call(), { status: 502, json: FOUND }, 'the error of a provider too')
  const passing = { ...completionWith('hello'), padding: 'x'.repeat(2_000_000) }
  gateway.upstream.answer = answering(passing)
  t.equal((await call()).text, JSON.stringify(passing), 'another one passes, byte for byte')
  await gateway.close(0)
  const outcomes = (await gateway.rows()).filter(({ status }) => status === 'error')
  t.equal(outcomes.length, 3)
  t.match(outcomes[0], {
    provider: 'openai',
    detail: {
      reason: 'content_refused',
      upstream_status: 200,
      tokens: { input: 7, output: 3 },
      content: { verdict: 'refuse', findings: [{ rule: 'GITHUB_TOKEN', where: 'choices[0]', count: 1 }] },
    },
  })
})

await t.test('a stream with a secret gets the error of its API and is cut', async (t) => {
  const gateway = await testGateway(t, { files: { '37-content.yaml': ANSWERS } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const streaming =
    (chunks: readonly Buffer[]): Answer =>
    async (res) => {
      res.setHeader('content-type', 'text/event-stream')
      for (const chunk of chunks) {
        res.write(chunk)
        await new Promise((resolve) => setImmediate(resolve))
      }
      res.end()
    }
  const bodies = {
    chat: [PATH, { ...CHAT, stream: true }],
    messages: ['/v1/messages', { ...CHAT, model: 'claude-sonnet-5', max_tokens: 9, stream: true }],
    responses: ['/v1/responses', { model: CHAT.model, input: 'hi', stream: true }],
  } as const
  for (const dialect of DELTAS.filter(({ name }) => name.endsWith('text'))) {
    const [path, body] = bodies[dialect.name.split(' ')[0] as keyof typeof bodies]
    const secret = events(dialect, [...Array.from(`It is ${SECRET}`), ' so', ' there'])
    gateway.upstream.answer = streaming(secret)
    const connection = await rawConnect(t, gateway, bot)
    connection.send(requestBytes('POST', path, [], JSON.stringify(body)))
    const received = await connection.until('content_refused')
    t.match(received, /It|"I"/, 'what is before it was told')
    t.notOk(received.includes('"ghp') || received.includes('"_"'), dialect.name)
    await connection.closed
    const fine = events(dialect, Array.from('It is a great gift.'))
    gateway.upstream.answer = streaming(fine)
    const passed = await gateway.call(bot, 'POST', path, { body })
    t.equal(passed.text, Buffer.concat(fine).toString(), dialect.name)
  }
  await gateway.close(0)
  const outcomes = (await gateway.rows()).filter(({ status }) => status === 'truncated')
  t.equal(outcomes.length, 3)
  for (const { detail } of outcomes)
    t.match(detail, {
      reason: 'content_refused',
      content: { verdict: 'refuse', findings: [{ rule: 'GITHUB_TOKEN', where: 'stream', count: 1 }] },
    })
})

await t.test('a translated stream is judged as the caller would get it', async (t) => {
  const gateway = await testGateway(t, { files: { '37-content.yaml': ANSWERS } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const telling = (text: string) =>
    [
      begin(),
      event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
      ...Array.from(text).map((one) =>
        event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: one } }),
      ),
      event('content_block_stop', { index: 0 }),
      event('message_delta', { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 3 } }),
      event('message_stop', {}),
    ].join('')
  const body = { ...CHAT, model: 'claude-test', max_tokens: 9, stream: true }
  let text = 'It is a great gift.'
  gateway.upstream.answer = (res) => {
    res.setHeader('content-type', 'text/event-stream').end(telling(text))
  }
  const passed = await gateway.call(bot, 'POST', PATH, { body })
  const told = [...passed.text.matchAll(/"content":"([^"]*)"/g)].map(([, one]) => one).join('')
  t.equal(told, text)
  t.match(passed.text, /data: \[DONE\]\n\n$/)
  text = `It is ${SECRET} so there`
  const connection = await rawConnect(t, gateway, bot)
  connection.send(requestBytes('POST', PATH, [], JSON.stringify(body)))
  const received = await connection.until('content_refused')
  t.notMatch(received, /"content":"(?:so|ghp|_)"/)
  t.notMatch(await connection.closed, /\[DONE\]/)
  await gateway.close(0)
  const rows = await gateway.rows()
  t.match(
    rows.filter(({ status }) => status === 'truncated'),
    [{ detail: { reason: 'content_refused', translated: { from: 'chat' }, content: { verdict: 'refuse' } } }],
  )
  const passing = rows.find(({ status, action }) => status === 'success' && action === 'egress_llm_chat')
  t.match(passing?.detail.content, { verdict: 'pass' })
})
