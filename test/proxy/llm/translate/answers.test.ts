import { createOpenAI } from '@ai-sdk/openai'
import { generateText, streamText } from 'ai'
import fc from 'fast-check'
import OpenAI from 'openai'
import t from 'tap'
import {
  answered,
  begin,
  block,
  callBlock,
  event,
  finish,
  OPTIONS,
  textBlock,
  thinkingBlock,
  told,
} from '../../../support/llm/translate.ts'

const tools = {
  chat: [
    { type: 'function', function: { name: 'read', parameters: { type: 'object' } } },
    { type: 'custom', custom: { name: 'patch' } },
  ],
  responses: [
    {
      type: 'namespace',
      name: 'files',
      description: '',
      tools: [{ type: 'function', name: 'read', parameters: {} }],
    },
    { type: 'custom', name: 'patch' },
  ],
}

/** A request whose answer is asked for, as a stream or not. */
const request = (wire: 'chat' | 'responses', stream: boolean, fits = (_bytes: number): boolean => true) =>
  told(
    wire,
    wire === 'chat'
      ? { model: 'planner', messages: [], tools: tools.chat, stream, stream_options: { include_usage: true } }
      : { model: 'planner', input: 'hi', tools: tools.responses, stream, store: false },
    OPTIONS,
    fits,
  )

const READ = { chat: 'read', responses: 'files__read' }

const whole = (wire: 'chat' | 'responses'): string =>
  begin({ input_tokens: 10, cache_read_input_tokens: 5, cache_creation_input_tokens: 2, output_tokens: 1 }) +
  thinkingBlock(0, 'hm', 'SIG') +
  event('ping') +
  textBlock(1, 'Hé', 'llo') +
  callBlock(2, 'toolu_1', READ[wire], '{"path":', '"a"}') +
  callBlock(3, 'toolu_2', 'patch', '{"input":"*** é"}') +
  finish('tool_use')

/** A client of the vendor that gets this text for an answer. */
const clientOf = (text: string, isStream: boolean): OpenAI =>
  new OpenAI({ apiKey: 'none', maxRetries: 0, fetch: async () => responseOf(text, isStream) })

const responseOf = (text: string, isStream: boolean): Response =>
  new Response(text, { headers: { 'content-type': isStream ? 'text/event-stream' : 'application/json' } })

await t.test('§ the official SDK reads a Responses stream that was a Messages stream', async (t) => {
  const client = clientOf(answered(request('responses', true), whole('responses')), true)
  const stream = client.responses.stream({ model: 'planner', input: 'hi' })
  const response = await stream.finalResponse()
  t.match(response, {
    status: 'completed',
    model: 'planner',
    output: [
      { type: 'reasoning', encrypted_content: /^sp1\./ },
      { type: 'message', content: [{ type: 'output_text', text: 'Héllo' }] },
      {
        type: 'function_call',
        call_id: 'toolu_1',
        namespace: 'files',
        name: 'read',
        arguments: '{"path":"a"}',
      },
      { type: 'custom_tool_call', call_id: 'toolu_2', name: 'patch', input: '*** é' },
    ],
    usage: {
      input_tokens: 17,
      input_tokens_details: { cached_tokens: 5, cache_write_tokens: 2 },
      output_tokens: 20,
      total_tokens: 37,
    },
  })
})

await t.test('§ the official SDK reads a Chat Completions stream that was a Messages stream', async (t) => {
  const client = clientOf(answered(request('chat', true), whole('chat')), true)
  const stream = client.chat.completions.stream({ model: 'planner', messages: [] })
  const completion = await stream.finalChatCompletion()
  t.match(completion.choices[0], {
    finish_reason: 'tool_calls',
    message: { content: 'Héllo' },
  })
  t.match(completion.choices[0]?.message.tool_calls?.[0], {
    id: 'toolu_1',
    function: { name: 'read', arguments: '{"path":"a"}' },
  })
  t.match(await stream.totalUsage(), { prompt_tokens: 17, completion_tokens: 20, total_tokens: 37 })
})

await t.test('§ the AI SDK reads both, as streams and whole', async (t) => {
  for (const wire of ['chat', 'responses'] as const) {
    const text = answered(
      request(wire, true),
      begin({ input_tokens: 3 }) + textBlock(0, 'Hi') + finish('end_turn'),
    )
    const provider = createOpenAI({ apiKey: 'none', fetch: async () => responseOf(text, true) })
    const streamed = streamText({ model: provider[wire]('planner'), prompt: 'hi' })
    t.equal(await streamed.text, 'Hi')
    t.equal(await streamed.finishReason, 'stop')

    const message = {
      ...{ id: 'msg_1', type: 'message', role: 'assistant', model: 'claude-opus-5' },
      content: [{ type: 'text', text: 'Hi' }],
      ...{ stop_reason: 'end_turn', stop_sequence: null, usage: { input_tokens: 3, output_tokens: 4 } },
    }
    const document = request(wire, false).answer.document(Buffer.from(JSON.stringify(message)))
    const json = createOpenAI({ apiKey: 'none', fetch: async () => responseOf(String(document), false) })
    const made = await generateText({ model: json[wire]('planner'), prompt: 'hi' })
    t.match(made, { text: 'Hi', finishReason: 'stop', usage: { inputTokens: 3, outputTokens: 4 } })
  }
})

/** The word by which each wire says that an answer is whole. */
const ENDS: Readonly<Record<string, RegExp>> = {
  chat: /\[DONE\]|"finish_reason":"/,
  responses: /"response\.(?:completed|incomplete)"/,
}

await t.test(
  '§ a stream that is cut anywhere never ends cleanly, and finishes no call that was not',
  async (t) => {
    for (const wire of ['chat', 'responses'] as const) {
      const stream = whole(wire)
      const end = Buffer.byteLength(stream.slice(0, stream.indexOf('event: message_stop')))
      const faults: number[] = []
      for (let at = 0; at < end; at += 1) {
        const made = request(wire, true)
        const written = Buffer.concat([
          made.answer.push(Buffer.from(stream).subarray(0, at)),
          made.answer.flush(),
        ])
        const text = written.toString()
        const isSaid = wire === 'chat' ? text.includes('"error"') : text.includes('response.failed')
        if (!isSaid || made.answer.isWhole || ENDS[wire]?.test(text)) faults.push(at)
      }
      t.same(faults, [], wire)
    }
  },
)

await t.test('§ a stream says the same however it is cut', async (t) => {
  for (const wire of ['chat', 'responses'] as const) {
    const stream = whole(wire).replaceAll('\n', '\r\n')
    const expected = answered(request(wire, true), stream)
    const cuts = fc.array(fc.nat(Buffer.byteLength(stream)), { maxLength: 200 })
    fc.assert(
      fc.property(cuts, (places) => answered(request(wire, true), stream, places) === expected),
      { numRuns: 50 },
    )
    t.equal(answered(request(wire, true), `\uFEFF: hello\n\n${whole(wire)}`), expected, 'a BOM and a comment')
  }
})

/** Streams that are broken, and why. */
const BROKEN: Readonly<Record<string, string>> = {
  'an error':
    begin() + textBlock(0, 'a') + event('error', { error: { type: 'overloaded_error', message: 'x' } }),
  'a kind of block that nobody asked for':
    begin() + block(0, { type: 'server_tool_use', id: 'a', name: 'b' }) + finish('end_turn'),
  'a reason that cannot be told': begin() + textBlock(0, 'a') + finish('pause_turn'),
  'a piece for no block':
    begin() + event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'x' } }),
  'a block within a block':
    begin() + event('content_block_start', { index: 0, content_block: { type: 'text' } }) + textBlock(1, 'b'),
  'arguments that are no JSON, at a normal end':
    begin() + callBlock(0, 'a', 'read', '{"path":') + finish('tool_use'),
  'arguments that are no object': begin() + callBlock(0, 'a', 'read', '[1]') + finish('tool_use'),
  'no id': event('message_start', { message: {} }) + textBlock(0, 'a') + finish('end_turn'),
  'JSON that is none': `${begin()}data: {\n\n${textBlock(0, 'a')}${finish('end_turn')}`,
  'an event of more than 1 MiB': begin() + textBlock(0, 'a'.repeat(1024 * 1024)) + finish('end_turn'),
  'arguments of more than 1 MiB':
    begin() +
    callBlock(0, 'a', 'read', ...Array.from({ length: 3 }, () => ' '.repeat(400_000))) +
    finish('tool_use'),
  'too many calls':
    begin() +
    Array.from({ length: 129 }, (_, n) => callBlock(n, `c${n}`, 'read', '{}')).join('') +
    finish('tool_use'),
}

await t.test('§ what is wrong with an answer breaks it', async (t) => {
  for (const [name, stream] of Object.entries(BROKEN))
    for (const wire of ['chat', 'responses'] as const) {
      const made = request(wire, true)
      const text = answered(made, stream)
      t.notMatch(text, ENDS[wire], `${name}: ${wire}`)
      t.type(made.answer.broken, 'string')
      t.equal(made.answer.isWhole, false)
    }
})

/** The reasons to stop, as each wire says them. */
const STOPS: readonly (readonly [stop: string, chat: string, status: string, why: string | null])[] = [
  ['end_turn', 'stop', 'completed', null],
  ['stop_sequence', 'stop', 'completed', null],
  ['max_tokens', 'length', 'incomplete', 'max_output_tokens'],
  ['model_context_window_exceeded', 'length', 'incomplete', 'max_output_tokens'],
  ['refusal', 'content_filter', 'incomplete', 'content_filter'],
]

await t.test('§ what is kept of an answer is counted, and without memory it is broken off', async (t) => {
  const cutsOf = (stream: string): number[] =>
    Array.from({ length: Math.floor(stream.length / 512) }, (_, n) => n * 512)
  const keptOf = (wire: 'chat' | 'responses', stream: string): number => {
    let most = 0
    const fits = (bytes: number): boolean => {
      most = Math.max(most, bytes)
      return true
    }
    answered(request(wire, true, fits), stream, cutsOf(stream))
    return most
  }
  const texts = begin() + textBlock(0, ...Array.from({ length: 100 }, () => 'a'.repeat(1_000)))
  t.ok(keptOf('chat', texts) < 8_192, 'a text that has gone on is not kept')
  t.ok(keptOf('responses', texts) > 90_000, 'it is by an API that repeats it at its end')
  const call = begin() + callBlock(0, 'a', 'read', ...Array.from({ length: 100 }, () => ' '.repeat(1_000)))
  t.ok(keptOf('chat', call) > 90_000)
  t.ok(keptOf('chat', begin() + thinkingBlock(0, 'a'.repeat(100_000), 's')) > 90_000)

  for (const wire of ['chat', 'responses'] as const) {
    const made = request(wire, true, (bytes) => bytes < 50_000)
    t.match(answered(made, call, cutsOf(call)), /content|created.*error/s, wire)
    t.match([made.answer.isWhole, made.answer.broken], [false, /no memory/])
  }
})

await t.test('§ thinking in many blocks is kept to 1 MiB, and is not sealed beyond', async (t) => {
  const thinking = (length: number): string =>
    Array.from({ length: 4 }, (_, index) => thinkingBlock(index, 'a'.repeat(length), 's')).join('')
  const sealedOf = (stream: string): string =>
    answered(request('responses', true), begin() + stream + textBlock(4, 'b') + finish('end_turn'))
  t.match(sealedOf(thinking(100_000)), '"encrypted_content":"sp1.')
  const long = sealedOf(thinking(400_000))
  t.notMatch(long, 'sp1.')
  t.match(long, 'response.completed', 'the answer is whole without it')
})

await t.test('§ an answer that reached a limit says so, and an unfinished call is left out', async (t) => {
  for (const [stop, reason, status, why] of STOPS) {
    const stream = begin({ input_tokens: 1 }) + textBlock(0, 'a') + finish(stop)
    t.match(answered(request('chat', true), stream), `"finish_reason":"${reason}"`, stop)
    const written = answered(request('responses', true), stream)
    t.match(written, `event: response.${status}`, stop)
    if (why !== null) t.match(written, `"incomplete_details":{"reason":"${why}"}`)
  }
  const cut = begin({ input_tokens: 1 }) + callBlock(0, 'a', 'files__read', '{"pa') + finish('max_tokens')
  const made = request('responses', true)
  t.match(answered(made, cut), 'event: response.incomplete')
  t.notMatch(answered(request('responses', true), cut), 'function_call_arguments.done')
})

await t.test('§ reasoning comes back exactly, to the principal and the provider that it is of', async (t) => {
  const blocks = [
    { type: 'thinking', thinking: 'hm', signature: 'SIG' },
    { type: 'redacted_thinking', data: 'XYZ' },
  ]
  const stream =
    begin({ input_tokens: 1 }) +
    thinkingBlock(0, 'hm', 'SIG') +
    block(1, blocks[1] ?? {}) +
    textBlock(2, 'a') +
    finish('end_turn')
  const [, sealed = ''] =
    /"encrypted_content":"(sp1\.[^"]+)"/.exec(answered(request('responses', true), stream)) ?? []
  const input = (content: string) => [
    { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: content },
    { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'a', annotations: [] }] },
    { role: 'user', content: 'go on' },
  ]
  const body = (content: string) => ({ model: 'planner', input: input(content), store: false })
  const messagesOf = ({ body: sent }: { readonly body: string }) => JSON.parse(sent).messages
  const own = told('responses', body(sealed))
  t.same(messagesOf(own)[0], { role: 'assistant', content: [...blocks, { type: 'text', text: 'a' }] })

  const other = { ...OPTIONS, provider: 'another' }
  const flipped = `${sealed.slice(0, -3)}${sealed.at(-3) === 'A' ? 'B' : 'A'}${sealed.slice(-2)}`
  for (const [name, made] of [
    ['another provider', told('responses', body(sealed), other)],
    ['a letter changed', told('responses', body(flipped))],
    ["a vendor's own", told('responses', body('gAAAAA'))],
  ] as const) {
    t.same(messagesOf(made)[0], { role: 'assistant', content: [{ type: 'text', text: 'a' }] }, name)
    t.ok(made.dropped.includes('foreign_reasoning'), name)
  }
})
