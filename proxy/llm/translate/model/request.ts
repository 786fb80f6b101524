import type { UnknownRecord } from '../../../../db/support/json.ts'

/** A picture or a document. Exactly one of `data`, `url` and `text` is stated. */
export interface MediaPart {
  readonly kind: 'image' | 'document'
  /** The media type; null if its URL alone is known. */
  readonly type: string | null
  /** Base64. */
  readonly data?: string
  readonly url?: string
  readonly text?: string
  readonly title: string | null
}

export interface TextPart {
  readonly kind: 'text'
  readonly text: string
}

export type ContentPart = TextPart | MediaPart

export interface ToolCallPart {
  readonly kind: 'call'
  readonly id: string
  /** The target's name of the tool. */
  readonly name: string
  /** JSON text of an object. */
  readonly input: UnknownRecord
}

/** Reasoning of the target's own, exactly as it was given. */
export interface ReasoningPart {
  readonly kind: 'reasoning'
  readonly exact: readonly unknown[]
}

export interface ToolResult {
  /** The id of its call. */
  readonly id: string
  readonly parts: readonly ContentPart[]
  readonly isError: boolean
}

export type RequestTurn =
  | { readonly role: 'system'; readonly parts: readonly TextPart[] }
  | { readonly role: 'user'; readonly results: readonly ToolResult[]; readonly parts: readonly ContentPart[] }
  | { readonly role: 'assistant'; readonly parts: readonly (TextPart | ToolCallPart | ReasoningPart)[] }

export interface ToolDefinition {
  /** The target's name of the tool. */
  readonly name: string
  readonly description: string | null
  /** A JSON Schema of an object. */
  readonly schema: UnknownRecord
  readonly strict: boolean | null
}

export type ToolChoice =
  | { readonly kind: 'auto' | 'any' | 'none' }
  | { readonly kind: 'tool'; readonly name: string }

export type ReasoningEffort = 'none' | 'low' | 'medium' | 'high' | 'xhigh' | 'max'

/** A parameter that not every wire has. `field`: its place in the caller's body. */
export interface ExtraParameter {
  readonly name: ExtraName
  readonly field: string
  readonly value: unknown
}

export type ExtraName =
  | 'seed'
  | 'frequency_penalty'
  | 'presence_penalty'
  | 'logit_bias'
  | 'verbosity'
  | 'top_k'
  /** The value: how many of the most likely tokens are asked for, beside the one that was chosen. */
  | 'logprobs'
  | 'json_object'

/** A request to a model, in no wire's words. Null: the caller has not stated it. */
export interface ModelRequest {
  /** Text that stands before all turns. */
  readonly system: readonly TextPart[]
  readonly turns: readonly RequestTurn[]
  readonly tools: readonly ToolDefinition[]
  readonly choice: ToolChoice | null
  readonly parallelCalls: boolean | null
  readonly maxTokens: number | null
  readonly stopWords: readonly string[]
  readonly temperature: number | null
  readonly topP: number | null
  readonly effort: ReasoningEffort | null
  /** A JSON Schema that the answer must follow. */
  readonly form: UnknownRecord | null
  readonly stream: boolean
  /** True: the caller asks for the usage in its stream. */
  readonly wantsUsage: boolean
  /** Parameters that not every wire has. */
  readonly extras: readonly ExtraParameter[]
  /** True: the caller has begun the answer itself. */
  readonly isPrefilled: boolean
}
