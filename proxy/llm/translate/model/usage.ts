import type { AnswerUsage } from './answer.ts'

/** Returns a count that was stated; nothing if it is none. */
export const countOf = (name: keyof AnswerUsage, value: unknown): AnswerUsage =>
  Number.isSafeInteger(value) && Number(value) >= 0 ? { [name]: Number(value) } : {}

/** Returns the part of a prompt that was neither read from the cache nor written to it. */
export const freshTokens = ({ prompt = 0, cached = 0, written = 0 }: AnswerUsage): number =>
  Math.max(0, prompt - cached - written)
