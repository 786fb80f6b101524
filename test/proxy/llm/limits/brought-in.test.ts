import t from 'tap'
import { type BroughtIn, mostInput } from '../../../../plugins/limits/estimate.ts'
import { LLM_ENDPOINTS } from '../../../../proxy/llm/dialects/registry.ts'
import { broughtInBy } from '../../../../proxy/llm/limits/brought-in.ts'

const UPON = { gone: false, reason: undefined, signal: new AbortController().signal } as const
const hangup = { ...UPON, onGone: () => undefined, offGone: () => undefined }

const read = async (
  path: string,
  given: object | string,
  twice: readonly string[] = [],
): Promise<BroughtIn> => {
  const body = Buffer.from(typeof given === 'string' ? given : JSON.stringify(given))
  const endpoint = LLM_ENDPOINTS.find((one) => one.path === path)
  if (!endpoint) throw new Error(`there is no ${path}`)
  return broughtInBy({
    ...{ body, json: JSON.parse(body.toString()), scan: { repeated: new Set(twice) } },
    ...{ target: { endpoint }, hangup },
  })
}

const CHAT = '/v1/chat/completions'
const RESPONSES = '/v1/responses'
const MESSAGES = '/v1/messages'

const content = (...parts: readonly object[]) => ({ messages: [{ role: 'user', content: parts }] })
const item = (...parts: readonly object[]) => ({ input: [{ type: 'message', role: 'user', content: parts }] })

t.test('what a provider keeps, fetches or unpacks counts as all that the model can take', async (t) => {
  const link = 'https://a.example/b'
  const wholes: readonly (readonly [path: string, body: object, member: string])[] = [
    [CHAT, content({ type: 'image_url', image_url: { url: link } }), 'messages[0].content[0].image_url.url'],
    [CHAT, content({ type: 'image_url', image_url: link }), 'messages[0].content[0].image_url'],
    [CHAT, content({ type: 'file', file: { file_id: 'file_1' } }), 'messages[0].content[0].file.file_id'],
    [
      CHAT,
      content({ type: 'file', file: { file_data: 'data:application/pdf;base64,AA' } }),
      'messages[0].content[0].file.file_data',
    ],
    [CHAT, content({ type: 'video_url', video_url: { url: link } }), 'messages[0].content[0].video_url.url'],
    [CHAT, { messages: [{ role: 'assistant', audio: { id: 'audio_1' } }] }, 'messages[0].audio.id'],
    [CHAT, { previous_response_id: 'resp_1' }, 'previous_response_id'],
    [RESPONSES, item({ type: 'input_image', image_url: link }), 'input[0].content[0].image_url'],
    [RESPONSES, item({ type: 'input_image', file_id: 'file_1' }), 'input[0].content[0].file_id'],
    [RESPONSES, item({ type: 'input_file', file_url: link }), 'input[0].content[0].file_url'],
    [RESPONSES, item({ type: 'input_file', file_data: 'AA' }), 'input[0].content[0].file_data'],
    [RESPONSES, { input: [{ type: 'item_reference', id: 'msg_1' }] }, 'input[0].id'],
    [RESPONSES, { input: 'x', previous_response_id: 'resp_1' }, 'previous_response_id'],
    [RESPONSES, { input: 'x', conversation: { id: 'conv_1' } }, 'conversation.id'],
    [
      MESSAGES,
      content({ type: 'image', source: { type: 'url', url: link } }),
      'messages[0].content[0].source.url',
    ],
    [
      MESSAGES,
      content({ type: 'image', source: { type: 'file', file_id: 'f' } }),
      'messages[0].content[0].source.file_id',
    ],
    [
      MESSAGES,
      content({ type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'AA' } }),
      'messages[0].content[0].source.media_type',
    ],
    [MESSAGES, content({ type: 'container_upload', file_id: 'f' }), 'messages[0].content[0].file_id'],
    [
      MESSAGES,
      content({ type: 'tool_result', content: [{ type: 'document', source: { type: 'url', url: link } }] }),
      'messages[0].content[0].content[0].source.url',
    ],
  ]
  for (const [path, body, whole] of wholes)
    t.same(await read(path, body), { unbounded: null, whole, pictures: 0 }, `${path} ${whole}`)
  const hidden =
    '{"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,A","\\u0075rl":"https://b"}}]}]}'
  t.match(
    await read(CHAT, hidden),
    { whole: String.raw`messages[0].content[0].image_url.\u0075rl` },
    'also the one behind it',
  )
})

t.test('pictures in the body are counted, and text brings in nothing', async (t) => {
  const picture = 'data:image/png;base64,AAAA'
  const part = { type: 'image_url', image_url: { url: picture } }
  t.same(await read(CHAT, content(part, part, { type: 'text', text: 'https://a.example' })), {
    ...{ unbounded: null, whole: null, pictures: 2 },
  })
  const made = { type: 'image_generation_call', id: 'ig_1', result: 'AAAA' }
  t.match(await read(RESPONSES, { input: [made, { type: 'input_image', image_url: picture }] }), {
    pictures: 2,
  })
  const source = { type: 'base64', media_type: 'image/webp', data: 'AA' }
  const text = { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'hello' } }
  t.same(await read(MESSAGES, content({ type: 'image', source }, text)), {
    ...{ unbounded: null, whole: null, pictures: 1 },
  })
  const own = { type: 'tool_use', id: 't', name: 'open', input: { url: 'https://a.example', file_id: 'x' } }
  const tools = [{ name: 'open', input_schema: { properties: { file_id: { type: 'string' } } } }]
  const call = { ...content(own), tools }
  t.same(await read(MESSAGES, call), { unbounded: null, whole: null, pictures: 0 }, 'functions of the caller')
  t.equal(
    (await read(CHAT, content(...Array(1_001).fill(part)))).whole,
    'messages[0].content[1000].image_url.url',
  )
})

t.test('what has no bound whatever is named', async (t) => {
  const cases: readonly (readonly [path: string, body: object, member: string | null])[] = [
    [RESPONSES, { tools: [{ type: 'web_search' }] }, 'tools'],
    [RESPONSES, { prompt: { id: 'pmpt_1' } }, 'prompt'],
    [MESSAGES, { container: 'container_1' }, 'container'],
    [MESSAGES, { mcp_servers: [] }, 'mcp_servers'],
    [MESSAGES, { context_management: { edits: [{ type: 'compact_20260112' }] } }, 'context_management'],
    [MESSAGES, { context_management: { edits: [{ type: 'clear_thinking_20251015' }] } }, null],
    [CHAT, { web_search_options: {} }, 'web_search_options'],
    [CHAT, { prediction: { type: 'content', content: 'x' } }, 'prediction'],
    [CHAT, { stream: true }, 'stream_options'],
    [CHAT, { stream: true, stream_options: { include_usage: true } }, null],
    [RESPONSES, { stream: true }, null],
    [CHAT, { Max_Tokens: 1_000_000, max_tokens: 1 }, 'Max_Tokens'],
  ]
  for (const [path, body, unbounded] of cases)
    t.match(await read(path, body), { unbounded }, JSON.stringify(body))
  const twice = '{"max_tokens":1000000,"max_tokens":1}'
  t.match(await read(CHAT, twice, ['max_tokens']), { unbounded: 'max_tokens' })
})

t.test('a long body gives others their turn', async (t) => {
  const parts = Array.from({ length: 90_000 }, (_, at) => ({ text: `word ${at}` }))
  const body = Buffer.from(JSON.stringify(content(...parts)))
  const endpoint = LLM_ENDPOINTS.find(({ path }) => path === CHAT)
  if (!endpoint) throw new Error('there is no chat')
  const json = { messages: [] }
  const found = broughtInBy({
    body,
    json,
    scan: { repeated: new Set<string>() },
    target: { endpoint },
    hangup,
  })
  t.ok(found instanceof Promise, 'it is read in slices')
  t.same(await found, { unbounded: null, whole: null, pictures: 0 })
})

t.test('the most that a call may read is bounded by its bytes, its pictures and the window', (t) => {
  const none = { unbounded: null, whole: null, pictures: 0 }
  const size = { bytes: 1_000, maxOutput: 1 }
  t.equal(mostInput(size, none, null), 1_000)
  t.equal(mostInput({ ...size, isTranslated: true }, none, null), 2_000, 'in the words of another API')
  t.equal(mostInput(size, { ...none, pictures: 2 }, null), 101_000)
  t.equal(mostInput(size, { ...none, pictures: 2 }, 64_000), 64_000, 'no more than the model can take')
  t.equal(mostInput(size, { ...none, whole: 'file_id' }, 64_000), 64_000)
  t.equal(mostInput({ ...size, bytes: 90_000 }, { ...none, whole: 'file_id' }, 64_000), 90_000)
  t.equal(mostInput(size, { ...none, whole: 'file_id' }, null), Number.POSITIVE_INFINITY)
  t.end()
})
