import { isObject, type JsonObject, type UnknownRecord } from '../../../db/support/json.ts'
import type { TokenCount } from './dialect.ts'

export type TokenCounts = Readonly<Partial<Record<TokenCount, number>>>

/** Tokens that are no part of the answer's own: of another model, or at another rate. */
export interface FurtherUsage extends JsonObject {
  readonly kind: string
  readonly model?: string
  readonly tokens: TokenCounts
}

/** Tokens that the answer's own counts leave out. */
export interface UsageOfOthers {
  /** The counts of compactions, which are the answer's own too. */
  readonly compaction: readonly TokenCounts[]
  readonly further: readonly FurtherUsage[]
  /** True: there was more than is kept. */
  readonly isTooLong: boolean
}

/** Characters of a word of a provider. A longer one is not kept. */
export const MAX_NAME = 256
const MAX_FURTHER = 16

/** Reads the work of other models, and of a compaction, from the steps of an answer and the usage of a tool for images. */
export function furtherUsageIn(
  iterations: unknown,
  imageTool: unknown,
  countsIn: (usage: UnknownRecord) => TokenCounts,
): UsageOfOthers {
  const steps = (Array.isArray(iterations) ? iterations : []).filter(isObject)
  // The answer's own counts are then those of the model that served.
  const isServedByOther = steps.some(({ type }) => type === 'fallback_message')
  const compaction: TokenCounts[] = []
  const further = new Map<string, FurtherUsage>()
  let isTooLong = false
  const addFurther = (kind: string, model: unknown, tokens: TokenCounts): void => {
    const named = typeof model === 'string' && model.length <= MAX_NAME ? model.toWellFormed() : undefined
    const key = JSON.stringify([kind, named])
    const { tokens: before = {} } = further.get(key) ?? {}
    if (further.size === MAX_FURTHER && !further.has(key)) isTooLong = true
    else
      further.set(key, {
        kind,
        ...(named !== undefined && { model: named }),
        tokens: sumOfTokens(before, tokens),
      })
  }
  for (const step of steps) {
    const { type, model } = step
    if (type === 'compaction') compaction.push(countsIn(step))
    else if (type === 'advisor_message') addFurther('advisor', model, countsIn(step))
    else if (type === 'message' && isServedByOther) addFurther('fallen_back', model, countsIn(step))
  }
  const images = isObject(imageTool) ? countsIn(imageTool) : {}
  if (Object.values(images).some((count) => count > 0)) addFurther('image_generation', undefined, images)
  return { compaction, further: [...further.values()], isTooLong }
}

/** Leaves out a sum that is no safe number. */
export function sumOfTokens(one: TokenCounts, other: TokenCounts): TokenCounts {
  const sums = { ...one }
  // Its keys are these counts.
  for (const count of Object.keys(other) as TokenCount[]) {
    const sum = (one[count] ?? 0) + (other[count] ?? 0)
    if (Number.isSafeInteger(sum)) sums[count] = sum
  }
  return sums
}
