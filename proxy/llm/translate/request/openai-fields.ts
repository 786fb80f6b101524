import { hint, type MemberClasses, never } from './members.ts'

/** Members of requests that both of OpenAI's wires have. */
export const OPENAI: MemberClasses = {
  metadata: hint('metadata'),
  model: 'read',
  moderation: never('moderation'),
  parallel_tool_calls: 'read',
  prompt_cache_key: hint('cache'),
  prompt_cache_options: hint('cache'),
  prompt_cache_retention: hint('cache'),
  safety_identifier: hint('user'),
  service_tier: hint('service_tier'),
  store: 'read',
  stream: 'read',
  stream_options: 'read',
  temperature: 'read',
  tool_choice: 'read',
  tools: 'read',
  top_logprobs: 'read',
  top_p: 'read',
  user: hint('user'),
}
