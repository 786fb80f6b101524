/** An error that this side answers with in the gateway's place. */
export interface LocalError {
  readonly status: number
  readonly reason: string
  readonly message: string
  /** True if a repetition cannot help. */
  readonly final: boolean
  /** The gateway's id of the request that it refused. Absent: this side refuses, and no log has a line. */
  readonly requestId?: string | null
}

export interface ErrorEnvelope {
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/**
 * Writes an error as the gateway itself does (docs/protocol.md#error-body), so that an SDK reads both alike.
 */
export function errorEnvelope({
  status,
  reason,
  message,
  final,
  requestId = null,
}: LocalError): ErrorEnvelope {
  const fields = { reason, ...(requestId !== null && { request_id: requestId }) }
  const error = { type: typeOf(status), code: reason, param: null, message, details: { error_code: reason } }
  const body = JSON.stringify({ type: 'error', error, message, ...fields, detail: fields })
  return {
    headers: {
      'content-type': 'application/json',
      'content-length': String(Buffer.byteLength(body)),
      'cache-control': 'no-store',
      ...(requestId !== null && { 'x-request-id': requestId, 'request-id': requestId }),
      ...(final && { 'x-should-retry': 'false' }),
    },
    body,
  }
}

function typeOf(status: number): string {
  if (status === 401) return 'authentication_error'
  if (status === 403) return 'permission_error'
  if (status === 429) return 'rate_limit_error'
  return status < 500 ? 'invalid_request_error' : 'api_error'
}
