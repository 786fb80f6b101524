/** Left out, as cost or speed alone depend on them. */
export type HintName =
  | 'cache'
  | 'user'
  | 'metadata'
  | 'service_tier'
  | 'context_management'
  | 'client_metadata'
  | 'prediction'
  | 'store_absent'
  | 'include'
  | 'image_detail'
  | 'defer_loading'
  | 'empty_text'
  | 'effort'
  | 'thinking_budget'
  | 'attribution'
  | 'betas'
  | 'diagnostics'
  | 'eager_streaming'
  | 'foreign_reasoning'

/** Told to the model in another form. */
export type CarriedName =
  | 'is_error'
  | 'tool_reference'
  | 'tool_image'
  | 'document_text'
  | 'stop_words'
  | 'custom_tool'
  | 'namespace'
  | 'tool_name'
  | 'tool_id'
  | 'system_as_user'
  | 'max_tokens_set'
  | 'invalid_arguments'
  | 'allowed_tools'
  | 'tool_changes'

/** Losses: the model is told something else, or may do something else. Refused unless an operator accepts it. */
export const LOSS_NAMES = [
  'hosted_tools',
  'citations',
  'document_url',
  'grammar',
  'json_object',
  'verbosity',
  'temperature',
  'seed',
  'top_k',
  'input_examples',
  'prefill',
  'penalties',
  'logit_bias',
  'logprobs',
  'participant_names',
  'max_tool_calls',
  'truncation',
  'store',
  'thinking_off',
  'stop_word',
] as const

export type LossName = (typeof LOSS_NAMES)[number]

/** Members that are never left out: the request would mean something else, or be somebody else's. */
export type NeverName =
  | 'choices'
  | 'provider_state'
  | 'moderation'
  | 'hosted_servers'
  | 'client_tools'
  | 'callers'
  | 'audio'
  | 'functions'
  | 'max_tokens'
  | 'tool_choice'
  | 'unsupported'
  | 'unknown'

export interface TranslationFault {
  /** The place in the caller's body, as `tools[8].name`. */
  readonly field: string
  readonly loss: LossName | NeverName
}

/** The faults that a refusal names. */
const MAX_FAULTS = 20

/** Collects what a translation leaves out, tells in another form, and must not go on with. */
export class TranslationNotes {
  readonly dropped = new Set<string>()
  readonly carried = new Set<CarriedName>()
  readonly faults: TranslationFault[] = []
  readonly #accepted: ReadonlySet<LossName>

  /** `accepted`: the losses that an operator accepts. They are left out and named, as hints are. */
  constructor(accepted: ReadonlySet<LossName>) {
    this.#accepted = accepted
  }

  hint(name: HintName): void {
    this.dropped.add(name)
  }

  carry(name: CarriedName): void {
    this.carried.add(name)
  }

  lose(loss: LossName, field: string): void {
    if (this.#accepted.has(loss)) this.dropped.add(loss)
    else this.#fault(loss, field)
  }

  never(loss: NeverName, field: string): void {
    this.#fault(loss, field)
  }

  #fault(loss: LossName | NeverName, field: string): void {
    if (this.faults.length < MAX_FAULTS) this.faults.push({ field, loss })
  }
}
