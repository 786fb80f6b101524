import type { Dialect, DialectEndpoint, EndpointDoc, OfferedModel, StreamFault } from './dialect.ts'
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

const modelOf = ({ id, created, provider }: OfferedModel) => ({
  id,
  object: 'model',
  created,
  owned_by: provider,
})

/** The OpenAI API, which most other vendors and local servers speak as well. */
export const openai: Dialect<'openai'> = {
  name: 'openai',
  endpoints: [
    // xAI's member.
    { ...endpoint('/v1/chat/completions', '/chat/completions', CHAT), detachedBy: 'deferred' },
    { ...endpoint('/v1/llm/chat', '/chat/completions', CHAT), detachedBy: 'deferred' },
    {
      ...endpoint('/v1/responses', '/responses', RESPONSES),
      errorEvent: responsesErrorEvent,
      modelOptional: true,
      detachedBy: 'background',
    },
    endpoint('/v1/completions', '/completions', COMPLETIONS),
    endpoint('/v1/embeddings', '/embeddings', EMBEDDINGS),
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
  usage: {
    // The events of the Responses API; the streams of Groq; those of Moonshot.
    holders: ['response', 'x_groq', 'choices'],
    tokens: {
      input: ['prompt_tokens', 'input_tokens'],
      output: ['completion_tokens', 'output_tokens'],
      cache_read: ['prompt_tokens_details.cached_tokens', 'input_tokens_details.cached_tokens'],
      // Tokens written to its cache stay there for other times.
      cache_write_5m: [],
      cache_write_1h: [],
      reasoning: ['completion_tokens_details.reasoning_tokens', 'output_tokens_details.reasoning_tokens'],
    },
    besideInput: [],
  },
  outcome: {
    content: ['choices', 'output', 'data', 'response', 'type'],
    lastEvents: ['response.completed', 'response.failed', 'response.incomplete', 'response.cancelled'],
    finishes: ['choices.finish_reason', 'usage.prompt_tokens'],
  },
}
