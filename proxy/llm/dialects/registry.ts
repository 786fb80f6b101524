import { STATED_NAMES } from '../state/stated-ids.ts'
import { anthropic } from './anthropic.ts'
import type { AnswerNames, ApiWire, Dialect, DialectEndpoint } from './dialect.ts'
import { openai } from './openai.ts'

/** Every dialect. The first one's list of models is shown to callers who expect none in particular. */
export const DIALECTS = [openai, anthropic] as const

export type DialectName = (typeof DIALECTS)[number]['name']

/** Ordered as {@link DIALECTS}; never empty. */
export const DIALECT_NAMES = DIALECTS.map(({ name }) => name)

export const DIALECT_BY_NAME = Object.freeze(
  Object.fromEntries(DIALECTS.map((dialect) => [dialect.name, dialect])),
) as Readonly<Record<DialectName, Dialect<DialectName>>>

export type { ApiWire } from './dialect.ts'

export const WIRES = ['chat', 'responses', 'messages'] as const satisfies readonly ApiWire[]

/** The path of the calls of each API that can be told in another one, behind a provider's base_url. */
export const PATH_OF_WIRE: Readonly<Record<ApiWire, string>> = {
  chat: '/chat/completions',
  responses: '/responses',
  messages: '/messages',
}

/** The path by which Responses counts the tokens of a request. */
export const COUNT_PATH = '/responses/input_tokens'

/** The dialect by whose headers a provider is asked in each API. */
export const DIALECT_OF_WIRE: Readonly<Record<ApiWire, DialectName>> = {
  chat: 'openai',
  responses: 'openai',
  messages: 'anthropic',
}

export interface LlmEndpoint extends DialectEndpoint {
  readonly dialect: DialectName
  /** The names by which its answers are read. */
  readonly names: AnswerNames
}

/** Every LLM route (docs/protocol.md#llm). */
export const LLM_ENDPOINTS: readonly LlmEndpoint[] = DIALECTS.flatMap(({ name, endpoints, usage, outcome }) =>
  endpoints.map(
    (endpoint): LlmEndpoint => ({
      ...endpoint,
      dialect: name,
      names: {
        usage: endpoint.usage ?? usage,
        outcome,
        ...(endpoint.wire && { stated: STATED_NAMES[endpoint.wire].picked }),
      },
    }),
  ),
)
