import type { ApiWire } from '../../dialects/dialect.ts'
import type { LossName } from '../losses.ts'
import type { DroppableName } from '../request/extras.ts'

/** The ways in which models of the Messages API are told of effort: older ones of a budget, some of none. */
export const THINKING_WAYS = ['adaptive', 'budget', 'none'] as const
/** The ways in which a system message is told that stands behind others. */
export const LATER_SYSTEM_WAYS = ['as_user', 'in_place'] as const
/** The members by which servers of Chat Completions tell reasoning. */
export const REASONING_MEMBERS = ['reasoning_content', 'reasoning', 'none'] as const
export const MAX_TOKENS_MEMBERS = ['max_tokens', 'max_completion_tokens'] as const

/** A model that a request is told to, and how. */
export interface TargetModel {
  readonly wire: ApiWire
  readonly model: string
  /** The name of the provider, which sealed reasoning is bound to. */
  readonly provider: string
  readonly accepted: ReadonlySet<LossName>
  readonly drop: readonly DroppableName[]
  readonly laterSystem: (typeof LATER_SYSTEM_WAYS)[number]
  /** True: the model's reasoning is asked for as text, and shown. */
  readonly showReasoning: boolean
  /** The most tokens of an answer where the caller states none, for a wire that demands a number. */
  readonly maxOutputTokens: number
  readonly thinking: (typeof THINKING_WAYS)[number]
  /** True: the provider keeps the beginning of the request, and reads it at a lower price. */
  readonly isCached: boolean
  /** The name of the caller's session at the provider's cache; null: it has none. */
  readonly cacheKey: string | null
  readonly maxTokensMember: (typeof MAX_TOKENS_MEMBERS)[number]
  readonly reasoningMember: (typeof REASONING_MEMBERS)[number]
  /** True: the server wants the model's reasoning back on turns of tools, even where it is empty. */
  readonly replaysReasoning: boolean
  /** True: the server takes `stream_options`. */
  readonly usageInStream: boolean
  /** True: the server takes `top_k`. */
  readonly takesTopK: boolean
  /** True: the server says which stop word has ended its answer. */
  readonly statesStopWord: boolean
  /** True: the server takes a choice of one tool by its name. */
  readonly takesNamedChoice: boolean
}
