import type { ReasoningEffort } from './model/request.ts'

const EFFORTS: Readonly<Record<string, ReasoningEffort>> = {
  none: 'none',
  minimal: 'low',
  low: 'low',
  medium: 'medium',
  high: 'high',
  xhigh: 'xhigh',
  max: 'max',
}

/** Reads an effort by any wire's word; undefined: it is none. */
export const effortOf = (word: unknown): ReasoningEffort | undefined =>
  typeof word === 'string' && Object.hasOwn(EFFORTS, word) ? EFFORTS[word] : undefined

/** The tokens that a model may think, by its effort, for models that are told of a budget. */
export const BUDGET_TOKENS: Readonly<Record<Exclude<ReasoningEffort, 'none'>, number>> = {
  low: 2_048,
  medium: 8_192,
  high: 24_576,
  xhigh: 32_768,
  max: 32_768,
}

/** Returns the effort that a budget of tokens comes to. */
export function effortOfBudget(tokens: number): ReasoningEffort {
  if (tokens <= BUDGET_TOKENS.low) return 'low'
  if (tokens <= BUDGET_TOKENS.medium) return 'medium'
  return tokens <= BUDGET_TOKENS.high ? 'high' : 'xhigh'
}
