import { isObject } from '../../../../db/support/json.ts'

interface LikelyToken {
  readonly token: string
  /** The bytes of its UTF-8; null: they are not stated. */
  readonly bytes: readonly number[] | null
  readonly logprob: number
}

/** The log probability of a token that was chosen, and of those that were likely there, as both wires of OpenAI say it. */
export interface TokenLogprob extends LikelyToken {
  readonly top_logprobs: readonly LikelyToken[]
}

/** The most likely tokens that are kept of one place. */
const MAX_LIKELY = 20
/** Characters that one token is counted as where answers are bounded. */
const TOKEN_SIZE = 64

/** Reads what a provider states of the tokens of a text. Leaves out what is none. */
export const readLogprobs = (stated: unknown): readonly TokenLogprob[] =>
  listOf(stated).flatMap((one) => {
    const likely = likelyOf(one)
    const top = isObject(one) ? listOf(one.top_logprobs).slice(0, MAX_LIKELY) : []
    return likely ? [{ ...likely, top_logprobs: top.flatMap((other) => likelyOf(other) ?? []) }] : []
  })

/** Returns the characters that they count as. */
export const sizeOfLogprobs = (logprobs: readonly TokenLogprob[]): number =>
  logprobs.reduce((sum, { top_logprobs: top }) => sum + TOKEN_SIZE * (1 + top.length), 0)

const listOf = (list: unknown): readonly unknown[] => (Array.isArray(list) ? list : [])

function likelyOf(stated: unknown): LikelyToken | null {
  if (!isObject(stated)) return null
  const { token, bytes, logprob } = stated
  if (typeof token !== 'string' || typeof logprob !== 'number') return null
  const isBytes = Array.isArray(bytes) && bytes.every((byte) => Number.isInteger(byte))
  return { token, bytes: isBytes ? (bytes as readonly number[]) : null, logprob }
}
