import { PROOF_ALGORITHMS } from '../../plugins/dpop/key.ts'
import type { Refusal } from '../../plugins/refusal.ts'
import type { Reply } from './reply.ts'

/**
 * How "no" looks over HTTP: one body in which the OpenAI and Anthropic SDKs, the Python helper and a person
 * each find what they look for (docs/protocol.md#error-body). Nothing of `cause` appears in it.
 */
export function refusalReply(refusal: Refusal, requestId: string): Reply {
  return {
    status: refusal.status,
    headers: {
      'content-type': 'application/json',
      ...advice(refusal),
      ...challenge(refusal),
      ...refusal.headers,
    },
    body: refusalBody(refusal, requestId),
  }
}

/** The body of {@link refusalReply} by itself: JSON text. */
export function refusalBody({ reason, type, message, detail }: Refusal, requestId: string): string {
  const said = { reason, ...detail, request_id: requestId }
  return JSON.stringify({
    type: 'error',
    error: { type, code: reason, param: null, message, details: { error_code: reason, ...detail } },
    message,
    ...said,
    detail: said,
  })
}

// SDKs retry by themselves; what a retry cannot cure must not be hammered.
function advice({ final }: Refusal): Record<string, string> {
  return final ? { 'x-should-retry': 'false' } : {}
}

/** RFC 9449 §7.1, RFC 6750 §3.1: no `error` where the request brought no credentials at all. */
function challenge({ status, challenge: error }: Refusal): Record<string, string> {
  if (status !== 401) return {}
  return { 'www-authenticate': `DPoP ${error === null ? '' : `error="${error}", `}algs="${ALGS}"` }
}

const ALGS = PROOF_ALGORITHMS.join(' ')
