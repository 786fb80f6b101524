import type { Dialect } from '../options.ts'

/** Which vendor API an endpoint is: decides the shape of its events and errors. */
export type Api =
  | 'chat_completions'
  | 'responses'
  | 'completions'
  | 'embeddings'
  | 'messages'
  | 'count_tokens'

export interface Endpoint {
  /** As this service spells it. Matched exactly on the raw path; it never goes upstream (SECURITY T17). */
  readonly path: string
  readonly api: Api
  readonly dialect: Dialect
  /** Appended to the provider's base_url. */
  readonly upstreamPath: string
}

const openai = (path: string, api: Api, upstreamPath: string): Endpoint => ({
  path,
  api,
  dialect: 'openai',
  upstreamPath,
})
const anthropic = (path: string, api: Api, upstreamPath: string): Endpoint => ({
  path,
  api,
  dialect: 'anthropic',
  upstreamPath,
})

/** Every LLM door (WIRE.md §3). All of them POST, all of them gated by `llm.chat`. */
export const ENDPOINTS: readonly Endpoint[] = [
  openai('/v1/chat/completions', 'chat_completions', '/chat/completions'),
  openai('/v1/llm/chat', 'chat_completions', '/chat/completions'),
  openai('/v1/responses', 'responses', '/responses'),
  openai('/v1/completions', 'completions', '/completions'),
  openai('/v1/embeddings', 'embeddings', '/embeddings'),
  anthropic('/v1/messages', 'messages', '/messages'),
  // What an Anthropic client sends whose base URL ends with /v1.
  anthropic('/v1/v1/messages', 'messages', '/messages'),
  anthropic('/v1/messages/count_tokens', 'count_tokens', '/messages/count_tokens'),
]
