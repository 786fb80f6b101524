import { isObject, type JsonObject } from '../../db/support/json.ts'

/** A kind of place in which content is judged. */
export type ContentPlace = 'request' | 'tool_arguments' | 'response' | 'tool_result'

export const CONTENT_PLACES = ['request', 'tool_arguments', 'response', 'tool_result'] as const

/** Secrets of one rule in one part of a message. Never a value, an offset or a digest of one. */
export interface ContentFinding extends JsonObject {
  readonly rule: string
  /** The part: `messages[3]`, `params.arguments`. `text`: it is no JSON. */
  readonly where: string
  readonly count: number
}

/** The account of a judgement in rows (docs/content.md#rows). */
export interface ContentVerdict extends JsonObject {
  /** Hex SHA-256 of the rules that judged. */
  readonly rules_digest: string
  readonly verdict: 'pass' | 'refuse' | 'failed'
  readonly findings: readonly ContentFinding[]
}

/** Returns the account of content in a report of a call, if it has one. */
export function contentIn({ content }: JsonObject): ContentVerdict | undefined {
  // Proven by its makers: no other report has a member of that name.
  return isObject(content) && 'rules_digest' in content ? (content as unknown as ContentVerdict) : undefined
}

/** The findings that a row keeps. */
const MAX_FINDINGS = 32

/** Adds up findings of the same rule in the same part; keeps the first 32. */
export function mergeFindings(all: Iterable<ContentFinding>): readonly ContentFinding[] {
  const merged = new Map<string, ContentFinding>()
  for (const { rule, where, count } of all) {
    const key = `${rule} ${where}`
    merged.set(key, { rule, where, count: (merged.get(key)?.count ?? 0) + count })
  }
  return [...merged.values()].slice(0, MAX_FINDINGS)
}
