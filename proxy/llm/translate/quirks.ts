import type { LATER_SYSTEM_WAYS, MAX_TOKENS_MEMBERS, REASONING_MEMBERS } from './model/target.ts'

/** The ways in which servers of one wire differ. */
export interface ServerQuirks {
  readonly max_tokens: (typeof MAX_TOKENS_MEMBERS)[number]
  readonly later_system: (typeof LATER_SYSTEM_WAYS)[number]
  readonly reasoning: (typeof REASONING_MEMBERS)[number]
  readonly replay_reasoning: boolean
  readonly usage_in_stream: boolean
  readonly top_k: boolean
  readonly stop_word: boolean
  readonly named_choice: boolean
}

const OPENAI: ServerQuirks = {
  max_tokens: 'max_completion_tokens',
  later_system: 'in_place',
  reasoning: 'none',
  replay_reasoning: false,
  usage_in_stream: true,
  top_k: false,
  stop_word: false,
  named_choice: true,
}

/** A server that runs models of others. */
const LOCAL: ServerQuirks = {
  ...OPENAI,
  max_tokens: 'max_tokens',
  later_system: 'as_user',
  reasoning: 'reasoning_content',
  top_k: true,
}

/** The quirks of each server that has a preset (docs/translation.md#quirks). */
const QUIRKS: Readonly<Record<string, ServerQuirks>> = {
  openai: OPENAI,
  azure: OPENAI,
  vllm: { ...LOCAL, stop_word: true },
  // It takes no choice of tools at all.
  ollama: { ...LOCAL, reasoning: 'reasoning', top_k: false, named_choice: false },
  // It takes an object for `auto`.
  llamacpp: { ...LOCAL, named_choice: false },
  deepseek: { ...LOCAL, replay_reasoning: true, top_k: false },
  gemini: { ...OPENAI, max_tokens: 'max_tokens' },
  // Older models refuse a system message behind others.
  anthropic: { ...OPENAI, later_system: 'as_user', top_k: true },
}

type StatedQuirks = { readonly [Name in keyof ServerQuirks]?: ServerQuirks[Name] | undefined }

/** Returns the quirks of a provider: those that its file states, and those of its server. */
export const quirksOf = (server: string, stated: StatedQuirks): ServerQuirks => ({
  ...(QUIRKS[server] ?? OPENAI),
  ...Object.fromEntries(Object.entries(stated).filter(([, value]) => value !== undefined)),
})
