import { isObject, type UnknownRecord } from '../../db/support/json.ts'

/** The verdict of a policy. */
export type PolicyDecision =
  | { readonly allow: true }
  /** `reason`: for the caller, in the policy's own words; null where it gave none. */
  | { readonly allow: false; readonly reason: string | null }

/** In characters. */
const MAX_REASON_LENGTH = 256

/**
 * Reads a policy's answer. Only `true` and `{allow: true}` allow; `false`, `{allow: false}` and no answer at
 * all (`undefined`: no rule of the policy held) are a plain no, with `reason` where it is given.
 * Throws where the answer is anything else: a policy that answers so is wrong, and an unknown member could be
 * a condition that nobody here would see to.
 */
export function readDecision(answer: unknown): PolicyDecision {
  if (answer === true) return { allow: true }
  if (answer === false || answer === undefined) return { allow: false, reason: null }
  const { allow, reason, ...rest } = members(answer)
  const [strange] = Object.keys(rest)
  if (strange !== undefined) {
    throw new Error(
      `the policy answered with the member ${JSON.stringify(strange)}; only allow and reason are known`,
    )
  }
  if (typeof allow !== 'boolean')
    throw new Error('the policy answered with an object whose allow is no boolean')
  if (reason !== undefined && typeof reason !== 'string') {
    throw new Error('the policy answered with a reason that is no string')
  }
  return allow ? { allow } : { allow, reason: reason === undefined ? null : printable(reason) }
}

function members(answer: unknown): UnknownRecord {
  if (isObject(answer)) return answer
  const kind = Array.isArray(answer) ? 'a list' : answer === null ? 'null' : `a ${typeof answer}`
  throw new Error(`the policy answered with ${kind}, neither a boolean nor {allow, reason}`)
}

/** It may quote what the caller sent: nothing in it may steer a terminal or hide from a reader. */
function printable(reason: string): string | null {
  const seen = reason.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, '').trim()
  return Array.from(seen).slice(0, MAX_REASON_LENGTH).join('') || null
}
