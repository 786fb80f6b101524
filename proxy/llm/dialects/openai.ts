import type {
  Dialect,
  DialectEndpoint,
  EndpointDoc,
  OfferedModel,
  StreamFault,
  UsageNames,
} from './dialect.ts'
import { parseModelList } from './model-list.ts'

const errorEvent = (error: StreamFault, requestId: string): string =>
  `data: ${JSON.stringify({ error: { ...error, request_id: requestId } })}\n\n`

/** The Responses API names its events, and its fault stands at the top. */
const responsesErrorEvent = (fault: StreamFault, requestId: string): string =>
  `event: error\ndata: ${JSON.stringify({ ...fault, type: 'error', sequence_number: 0, request_id: requestId })}\n\n`

const endpoint = (path: string, upstreamPath: string, doc: EndpointDoc): DialectEndpoint => ({
  path,
  upstreamPath,
  doc,
  errorEvent,
})

const model = 'gpt-5.2'

const CHAT: EndpointDoc = {
  name: 'createChatCompletion',
  summary: 'OpenAI Chat Completions',
  example: { model, messages: [{ role: 'user', content: 'hi' }] },
}

const RESPONSES: EndpointDoc = {
  name: 'createResponse',
  summary: 'OpenAI Responses',
  example: { model, input: 'hi' },
}

const COMPLETIONS: EndpointDoc = {
  name: 'createCompletion',
  summary: 'OpenAI Completions',
  example: { model, prompt: 'hi' },
}

const EMBEDDINGS: EndpointDoc = {
  name: 'createEmbedding',
  summary: 'OpenAI Embeddings',
  example: { model: 'text-embedding-3-small', input: 'hi' },
}

const INPUT_TOKENS: EndpointDoc = {
  name: 'countResponseTokens',
  summary: 'OpenAI Responses Input Tokens',
  example: { model, input: 'hi' },
}

const COMPACT: EndpointDoc = {
  name: 'compactResponse',
  summary: 'OpenAI Responses Compact',
  example: { model, input: 'hi' },
}

const MODERATIONS: EndpointDoc = {
  name: 'createModeration',
  summary: 'OpenAI Moderations',
  example: { model: 'omni-moderation-latest', input: 'hi' },
}

const IMAGES: EndpointDoc = {
  name: 'createImage',
  summary: 'OpenAI Images',
  example: { model: 'gpt-image-2', prompt: 'a sallyport' },
}

const responses = { wire: 'responses', errorEvent: responsesErrorEvent, detachedBy: 'background' } as const

const modelOf = ({ id, created, provider }: OfferedModel) => ({
  id,
  object: 'model',
  created,
  owned_by: provider,
})

const usage: UsageNames = {
  // The events of the Responses API; the streams of Groq; those of Moonshot.
  holders: ['response', 'x_groq', 'choices'],
  tokens: {
    input: ['prompt_tokens', 'input_tokens'],
    output: ['completion_tokens', 'output_tokens'],
    // xAI and Gemini leave reasoning out of the output that they state.
    total: ['total_tokens'],
    cache_read: [
      'prompt_tokens_details.cached_tokens',
      'input_tokens_details.cached_tokens',
      // DeepSeek's; Moonshot's, and that of OpenAI's tool for images.
      'prompt_cache_hit_tokens',
      'cached_tokens',
    ],
    cache_write: [
      'prompt_tokens_details.cache_write_tokens',
      'input_tokens_details.cache_write_tokens',
      // LiteLLM's, Qwen's.
      'prompt_tokens_details.cache_creation_tokens',
      'prompt_tokens_details.cache_creation_input_tokens',
    ],
    cache_write_5m: [],
    cache_write_30m: ['input_tokens_details.cache_write_tokens_details.ttl_30m_tokens'],
    cache_write_1h: [],
    cache_write_12h: ['input_tokens_details.cache_write_tokens_details.ttl_12h_tokens'],
    reasoning: ['completion_tokens_details.reasoning_tokens', 'output_tokens_details.reasoning_tokens'],
    input_audio: ['prompt_tokens_details.audio_tokens', 'input_tokens_details.audio_tokens'],
    output_audio: ['completion_tokens_details.audio_tokens', 'output_tokens_details.audio_tokens'],
    input_image: ['prompt_tokens_details.image_tokens', 'input_tokens_details.image_tokens'],
    output_image: ['completion_tokens_details.image_tokens', 'output_tokens_details.image_tokens'],
  },
  besideInput: [],
  tools: {
    // Perplexity's, OpenRouter's, xAI's.
    'usage.num_search_queries': 'web_search',
    'usage.server_tool_use.web_search_requests': 'web_search',
    'usage.num_sources_used': 'sources',
    'usage.server_side_tool_usage_details.web_search_calls': 'web_search',
    'usage.server_side_tool_usage_details.x_search_calls': 'x_search',
    'usage.server_side_tool_usage_details.x_posts_fetched': 'x_posts',
    'usage.server_side_tool_usage_details.x_users_fetched': 'x_users',
    'usage.server_side_tool_usage_details.code_interpreter_calls': 'code_interpreter',
    'usage.server_side_tool_usage_details.file_search_calls': 'file_search',
    'usage.server_side_tool_usage_details.document_search_calls': 'document_search',
    'usage.server_side_tool_usage_details.image_generation_calls': 'image_generation',
    'tool_usage.web_search.num_requests': 'web_search',
  },
  imageTool: 'tool_usage.image_gen',
  items: {
    list: 'output',
    event: 'response.output_item.done',
    member: 'item',
    picked: { type: null, action: { type: null } },
    tools: {
      web_search_call: 'web_search',
      file_search_call: 'file_search',
      code_interpreter_call: 'code_interpreter',
      image_generation_call: 'image_generation',
    },
  },
}

/** The embedding of a text: nothing is written. Voyage states the total alone. */
const embeddingUsage: UsageNames = {
  ...usage,
  tokens: { ...usage.tokens, input: [...usage.tokens.input, 'total_tokens'] },
  isInputOnly: true,
}

/** A model that states no tokens is billed by the picture. */
const imageUsage: UsageNames = {
  ...usage,
  items: {
    list: 'data',
    event: 'image_generation.completed',
    member: 'usage',
    picked: { type: null },
    tools: { '': 'images' },
  },
}

/** The OpenAI API, which most other vendors and local servers speak as well. */
export const openai: Dialect<'openai'> = {
  name: 'openai',
  endpoints: [
    // xAI's member.
    { ...endpoint('/v1/chat/completions', '/chat/completions', CHAT), wire: 'chat', detachedBy: 'deferred' },
    { ...endpoint('/v1/llm/chat', '/chat/completions', CHAT), wire: 'chat', detachedBy: 'deferred' },
    {
      ...endpoint('/v1/responses', '/responses', RESPONSES),
      ...responses,
      modelOptional: true,
    },
    {
      ...endpoint('/v1/responses/input_tokens', '/responses/input_tokens', INPUT_TOKENS),
      ...responses,
      modelOptional: true,
      isFree: true,
    },
    { ...endpoint('/v1/responses/compact', '/responses/compact', COMPACT), ...responses },
    endpoint('/v1/completions', '/completions', COMPLETIONS),
    { ...endpoint('/v1/embeddings', '/embeddings', EMBEDDINGS), usage: embeddingUsage },
    { ...endpoint('/v1/moderations', '/moderations', MODERATIONS), modelOptional: true, isFree: true },
    {
      ...endpoint('/v1/images/generations', '/images/generations', IMAGES),
      modelOptional: true,
      usage: imageUsage,
    },
  ],
  key: { auth: 'bearer', header: 'x-api-key' },
  headers: {
    request: ['openai-beta'],
    account: ['openai-organization', 'openai-project'],
    defaults: {},
    response: ['openai-model', 'openai-processing-ms', 'openai-version'],
    responsePrefixes: [],
  },
  // Azure's.
  query: ['api-version'],
  models: {
    upstreamPath: '/models',
    cursor: 'after',
    parse: parseModelList,
    // The form for a caller who says nothing.
    isExpected: () => false,
    renderOne: modelOf,
    render: (models) => ({ object: 'list', data: models.map(modelOf) }),
  },
  usage,
  outcome: {
    content: ['choices', 'output', 'data', 'response', 'type'],
    lastEvents: ['response.completed', 'response.failed', 'response.incomplete', 'response.cancelled'],
    // The last two: of embeddings, and of pictures.
    finishes: ['choices.finish_reason', 'usage.prompt_tokens', 'usage.output_tokens'],
  },
}
