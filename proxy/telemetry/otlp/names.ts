/**
 * The names of everything that is exported by OTLP. The conventions are in development and still move: a change of
 * a name is a change of this file alone.
 */

/** The revisions that the names are taken from. */
export const CONVENTIONS = {
  /** semantic-conventions: `error.*`, `http.*`, `server.*`, `service.*`, `enduser.*`, `rpc.*`, `jsonrpc.*`. */
  general: 'v1.43.0',
  /** semantic-conventions-genai: `gen_ai.*`, `mcp.*`. */
  genai: 'v0.1.0',
} as const

export const ATTRIBUTES = {
  operation: 'gen_ai.operation.name',
  provider: 'gen_ai.provider.name',
  requestModel: 'gen_ai.request.model',
  responseModel: 'gen_ai.response.model',
  inputTokens: 'gen_ai.usage.input_tokens',
  outputTokens: 'gen_ai.usage.output_tokens',
  cacheReadTokens: 'gen_ai.usage.cache_read.input_tokens',
  cacheWriteTokens: 'gen_ai.usage.cache_creation.input_tokens',
  tokenType: 'gen_ai.token.type',
  tool: 'gen_ai.tool.name',
  mcpMethod: 'mcp.method.name',
  mcpVersion: 'mcp.protocol.version',
  mcpSession: 'mcp.session.id',
  rpcId: 'jsonrpc.request.id',
  rpcStatus: 'rpc.response.status_code',
  errorType: 'error.type',
  httpMethod: 'http.request.method',
  httpRoute: 'http.route',
  httpStatus: 'http.response.status_code',
  httpResend: 'http.request.resend_count',
  address: 'server.address',
  port: 'server.port',
  user: 'enduser.id',
  requestId: 'sallyport.request_id',
  stream: 'sallyport.ledger.stream',
  seq: 'sallyport.ledger.seq',
  decision: 'sallyport.decision',
  reason: 'sallyport.reason',
  refusedBy: 'sallyport.refused_by',
  capability: 'sallyport.capability',
  bound: 'sallyport.bound',
  upstream: 'sallyport.upstream',
  contentRequest: 'sallyport.content.request',
  contentAnswer: 'sallyport.content.answer',
  overflow: 'otel.metric.overflow',
} as const

/** The names of our calls in the conventions, by the end of their path. Another call is named by that end. */
export const GENAI_OPERATIONS: Readonly<Record<string, string>> = {
  'chat/completions': 'chat',
  messages: 'chat',
  responses: 'chat',
  completions: 'text_completion',
  embeddings: 'embeddings',
  'images/generations': 'generate_content',
}

export const EXECUTE_TOOL = 'execute_tool'
/** `error.type` of a result that says by `isError` that the tool failed. */
export const TOOL_ERROR = 'tool_error'

/** The histograms of the conventions, with the bounds that they advise. */
export const HISTOGRAMS = {
  duration: {
    name: 'gen_ai.client.operation.duration',
    unit: 's',
    description: 'Requests to providers, from the request to the end of the answer.',
    bounds: [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92],
  },
  tokens: {
    name: 'gen_ai.client.token.usage',
    unit: '{token}',
    description: 'Tokens of a call, as its provider stated them.',
    bounds: Array.from({ length: 14 }, (_, power) => 4 ** power),
  },
  mcp: {
    name: 'mcp.server.operation.duration',
    unit: 's',
    description: 'MCP messages, from their arrival to the end of the answer.',
    bounds: [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300],
  },
} as const
