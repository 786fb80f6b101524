import type { Dialect, DialectEndpoint, EndpointDoc, OfferedModel } from './dialect.ts'
import { parseModelList } from './model-list.ts'

/** The version that a provider is asked in when the caller names none. */
const VERSION = '2023-06-01'

const endpoint = (path: string, upstreamPath: string, doc: EndpointDoc): DialectEndpoint => ({
  path,
  upstreamPath,
  doc,
  errorEvent: (error, requestId) =>
    `event: error\ndata: ${JSON.stringify({ type: 'error', error, request_id: requestId })}\n\n`,
})

const request = { model: 'claude-sonnet-5', messages: [{ role: 'user', content: 'hi' }] }

const MESSAGES: EndpointDoc = {
  name: 'createMessage',
  summary: 'Anthropic Messages',
  example: { ...request, max_tokens: 1024 },
}

const COUNT_TOKENS: EndpointDoc = {
  name: 'countMessageTokens',
  summary: 'Anthropic Count Tokens',
  example: request,
}

const modelOf = ({ id, name, created }: OfferedModel) => ({
  type: 'model',
  id,
  display_name: name,
  created_at: isoDate(created),
})

/** The Anthropic API. */
export const anthropic: Dialect<'anthropic'> = {
  name: 'anthropic',
  endpoints: [
    endpoint('/v1/messages', '/messages', MESSAGES),
    // An Anthropic client whose base URL ends with /v1 sends this.
    endpoint('/v1/v1/messages', '/messages', MESSAGES),
    { ...endpoint('/v1/messages/count_tokens', '/messages/count_tokens', COUNT_TOKENS), isFree: true },
  ],
  key: { auth: 'api_key', header: 'x-api-key' },
  headers: {
    request: ['anthropic-beta', 'anthropic-dangerous-direct-browser-access', 'anthropic-version'],
    account: [],
    defaults: { 'anthropic-version': VERSION },
    response: [],
    responsePrefixes: ['anthropic-ratelimit-'],
  },
  query: ['beta'],
  models: {
    upstreamPath: '/models?limit=1000',
    parse: parseModelList,
    isExpected: (headers) => headers['anthropic-version'] !== undefined,
    renderOne: modelOf,
    render: (models) => ({
      data: models.map(modelOf),
      has_more: false,
      first_id: models.at(0)?.id ?? null,
      last_id: models.at(-1)?.id ?? null,
    }),
  },
  usage: {
    // The event message_start.
    holders: ['message'],
    tokens: {
      input: ['input_tokens'],
      output: ['output_tokens'],
      cache_read: ['cache_read_input_tokens'],
      cache_write_5m: ['cache_creation.ephemeral_5m_input_tokens'],
      cache_write_1h: ['cache_creation.ephemeral_1h_input_tokens'],
      reasoning: ['output_tokens_details.thinking_tokens'],
    },
    // Read from the cache, and written there.
    besideInput: ['cache_read_input_tokens', 'cache_creation_input_tokens'],
  },
  outcome: {
    content: ['content', 'input_tokens', 'type'],
    lastEvents: ['message_stop'],
    finishes: ['delta.stop_reason'],
  },
}

/** RFC 3339 without fractions, as the API states it. A date out of range is none. */
function isoDate(seconds: number): string {
  const date = new Date(seconds * 1000)
  const known = Number.isNaN(date.getTime()) ? new Date(0) : date
  return known.toISOString().replace('.000Z', 'Z')
}
