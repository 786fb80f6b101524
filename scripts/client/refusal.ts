import { isObject, type UnknownRecord } from '../../db/support/json.ts'

/** A refusal by the gateway. `message` is its own sentence. */
export class GatewayRefusal extends Error {
  /** The HTTP status. */
  readonly status: number
  /** The gateway's word for its reason, e.g. `capability_missing` or `invalid_scope`. */
  readonly reason: string
  /** True if a repetition cannot help. */
  readonly final: boolean
  /** The gateway's id of the request, which its log knows; null if the answer had none. */
  readonly requestId: string | null

  constructor(
    status: number,
    reason: string,
    message: string,
    final: boolean,
    requestId: string | null = null,
  ) {
    super(message)
    this.name = 'GatewayRefusal'
    this.status = status
    this.reason = reason
    this.final = final
    this.requestId = requestId
  }
}

/**
 * Reads an error answer: the body of docs/protocol.md#error-body, the one of RFC 6749 §5.2, or neither.
 * `advice`: its `x-should-retry`.
 */
export function gatewayRefusal(status: number, text: string, advice?: unknown): GatewayRefusal {
  const { reason, error, message, error_description: description, request_id: id } = jsonMembers(text)
  return new GatewayRefusal(
    status,
    firstText(reason, error) ?? 'unknown',
    firstText(message, description) ?? `the gateway answered ${status}`,
    advice === 'false' || (status < 500 && status !== 408 && status !== 429),
    firstText(id) ?? null,
  )
}

const firstText = (...values: readonly unknown[]): string | undefined =>
  values.find((value) => typeof value === 'string' && value !== '') as string | undefined

/** Returns the members of a JSON object; none if the text is something else. */
export function jsonMembers(text: string): UnknownRecord {
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) ? value : {}
  } catch {
    // A proxy's error page, or nothing: the status alone then says what happened.
    return {}
  }
}
