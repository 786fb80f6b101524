import { PROOF_ALGORITHMS } from '../../plugins/dpop/key.ts'
import type { Refusal, RefusalReason } from '../../plugins/refusal.ts'
import type { Reply } from '../http/reply.ts'

interface OAuthError {
  readonly status: number
  readonly error: string
}

const CLIENT: OAuthError = { status: 401, error: 'invalid_client' }
const REQUEST: OAuthError = { status: 400, error: 'invalid_request' }

// RFC 6749 §5.2, RFC 9449 §5 and §8, RFC 8707 §2. A reason that is not here is no error of the protocol.
const ERRORS: Partial<Record<RefusalReason, OAuthError>> = {
  certificate_required: CLIENT,
  certificate_not_pinned: CLIENT,
  certificate_not_valid_now: CLIENT,
  principal_deactivated: CLIENT,
  origin_not_allowed: { status: 403, error: 'access_denied' },
  client_invalid: CLIENT,
  assertion_invalid: CLIENT,
  bad_request: REQUEST,
  body_encoded: { ...REQUEST, status: 415 },
  body_too_large: { ...REQUEST, status: 413 },
  token_request_invalid: REQUEST,
  grant_unsupported: { status: 400, error: 'unsupported_grant_type' },
  scope_invalid: { status: 400, error: 'invalid_scope' },
  target_invalid: { status: 400, error: 'invalid_target' },
  proof_invalid: { status: 400, error: 'invalid_dpop_proof' },
  use_dpop_nonce: { status: 400, error: 'use_dpop_nonce' },
}

/**
 * Renders a refusal of the token endpoint (RFC 6749 §5.2): `error` is a code and not an object, alongside the
 * members of every refusal of this service. `asHelper`: the Python helper signs again only on a 401.
 */
export function oauthRefusalReply(refusal: Refusal, requestId: string, asHelper: boolean): Reply {
  const { reason, message, detail } = refusal
  const known = ERRORS[reason] ?? { status: refusal.status, error: 'temporarily_unavailable' }
  const { error } = known
  const status = asHelper && error === 'use_dpop_nonce' ? 401 : known.status
  const fields = { reason, ...detail, request_id: requestId }
  return {
    status,
    headers: {
      'content-type': 'application/json',
      ...(status === 401 && {
        'www-authenticate': `DPoP error="${error}", algs="${PROOF_ALGORITHMS.join(' ')}"`,
      }),
      ...refusal.headers,
    },
    body: JSON.stringify({ error, error_description: message, message, ...fields, detail: fields }),
  }
}
