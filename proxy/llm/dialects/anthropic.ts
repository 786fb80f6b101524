import type { Dialect, DialectEndpoint, EndpointDoc, OfferedModel } from './dialect.ts'
import { parseModelList } from './model-list.ts'

const VERSION = '2023-06-01'

const endpoint = (path: string, upstreamPath: string, doc: EndpointDoc): DialectEndpoint => ({
  path,
  upstreamPath,
  doc,
  wire: 'messages',
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

export const anthropic: Dialect<'anthropic'> = {
  name: 'anthropic',
  endpoints: [
    { ...endpoint('/v1/messages', '/messages', MESSAGES), wire: 'messages' },
    // An Anthropic client whose base URL ends with /v1 sends this.
    { ...endpoint('/v1/v1/messages', '/messages', MESSAGES), wire: 'messages' },
    {
      ...endpoint('/v1/messages/count_tokens', '/messages/count_tokens', COUNT_TOKENS),
      counts: 'messages',
      isFree: true,
    },
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
    cursor: 'after_id',
    parse: parseModelList,
    isExpected: (headers) => headers['anthropic-version'] !== undefined,
    renderOne: modelOf,
    render: (models, query = '') => {
      const { page, hasMore } = pageOf(models, query)
      return {
        data: page.map(modelOf),
        has_more: hasMore,
        first_id: page.at(0)?.id ?? null,
        last_id: page.at(-1)?.id ?? null,
      }
    },
  },
  usage: {
    // The event message_start.
    holders: ['message'],
    tokens: {
      input: ['input_tokens'],
      output: ['output_tokens'],
      total: [],
      cache_read: ['cache_read_input_tokens'],
      cache_write: ['cache_creation_input_tokens'],
      cache_write_5m: ['cache_creation.ephemeral_5m_input_tokens'],
      cache_write_30m: [],
      cache_write_1h: ['cache_creation.ephemeral_1h_input_tokens'],
      cache_write_12h: [],
      reasoning: ['output_tokens_details.thinking_tokens'],
      input_audio: [],
      output_audio: [],
      input_image: [],
      output_image: [],
    },
    // Read from the cache, and written there.
    besideInput: ['cache_read_input_tokens', 'cache_creation_input_tokens'],
    tools: {
      'usage.server_tool_use.web_search_requests': 'web_search',
      'usage.server_tool_use.web_fetch_requests': 'web_fetch',
    },
    items: {
      list: 'content',
      event: 'content_block_start',
      member: 'content_block',
      picked: { type: null, name: null },
      tools: {
        web_search: 'web_search',
        web_fetch: 'web_fetch',
        code_execution: 'code_execution',
        bash_code_execution: 'code_execution',
        text_editor_code_execution: 'code_execution',
      },
    },
  },
  outcome: {
    content: ['content', 'input_tokens', 'type'],
    lastEvents: ['message_stop'],
    finishes: ['delta.stop_reason'],
  },
}

/** Returns the part that a caller asks for: all, unless it says after which one, before which, or how many. */
function pageOf(
  models: readonly OfferedModel[],
  query: string,
): { readonly page: readonly OfferedModel[]; readonly hasMore: boolean } {
  if (query === '') return { page: models, hasMore: false }
  const params = new URLSearchParams(query)
  const [after, before] = [params.get('after_id'), params.get('before_id')]
  const limit = Number(params.get('limit')) || models.length
  const start = after === null ? 0 : models.findIndex(({ id }) => id === after) + 1
  if (after !== null && start === 0) return { page: [], hasMore: false }
  const end = before === null ? models.length : models.findIndex(({ id }) => id === before)
  if (end < 0) return { page: [], hasMore: false }
  const between = models.slice(start, end)
  const count = Math.max(1, limit)
  // Before an id: those that stand next to it.
  const page = before !== null && after === null ? between.slice(-count) : between.slice(0, count)
  return { page, hasMore: page.length < between.length }
}

/** RFC 3339 without fractions, as the API states it. A date out of range is none. */
function isoDate(seconds: number): string {
  const date = new Date(seconds * 1000)
  const known = Number.isNaN(date.getTime()) ? new Date(0) : date
  return known.toISOString().replace('.000Z', 'Z')
}
