import { PROOF_ALGORITHMS } from '../../plugins/dpop/key.ts'
import type { Refusal } from '../../plugins/refusal.ts'
import type { CallReport, Reply } from './reply.ts'

/** Renders a refusal over HTTP (docs/protocol.md#error-body). Nothing of `cause` appears in it. */
export function refusalReply(refusal: Refusal, requestId: string): Reply {
  return {
    status: refusal.status,
    headers: {
      'content-type': 'application/json',
      // SDKs retry by themselves: they must not if a retry cures nothing.
      ...(refusal.final && { 'x-should-retry': 'false' }),
      ...challengeHeaders(refusal),
      ...refusal.headers,
    },
    body: refusalBody(refusal, requestId),
  }
}

/** Renders the body of {@link refusalReply} alone: JSON text. `requestId`: null if no log has a line of it. */
export function refusalBody(refusal: Refusal, requestId: string | null): string {
  const { reason, message, detail, said } = refusal
  const { type = refusal.type, code = reason, param = null, ...more } = said
  const fields = { reason, ...detail, ...(requestId !== null && { request_id: requestId }) }
  return JSON.stringify({
    type: 'error',
    error: { type, code, param, message, ...more, details: { error_code: reason, ...detail } },
    message,
    ...fields,
    detail: fields,
  })
}

/** Makes the challenge of a 401 (RFC 9449 §7.1, RFC 6750 §3.1); no `error` without credentials. */
export function challengeHeaders({ status, reason, challenge: error }: Refusal): Record<string, string> {
  // A provider's 401 to the caller's own vendor key is nothing that a proof could cure.
  if (status !== 401 || reason === 'provider_refused') return {}
  return { 'www-authenticate': `DPoP ${error === null ? '' : `error="${error}", `}algs="${ALGS}"` }
}

const ALGS = PROOF_ALGORITHMS.join(' ')

export function refusalReport({ reason, cause, detail, report }: Refusal): CallReport {
  const { provider, resource, tool, upstream_status: status } = detail
  const name = provider ?? resource
  return {
    reason,
    cause,
    ...(typeof name === 'string' && { provider: name }),
    ...(typeof tool === 'string' && { tool }),
    ...(detail.outcome === 'unknown' && { unknown: true }),
    detail: { ...(typeof status === 'number' && { upstream_status: status }), ...report },
  }
}
