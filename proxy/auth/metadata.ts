import { PROOF_ALGORITHMS } from '../../plugins/dpop/key.ts'
import { jsonReply, type Reply } from '../http/reply.ts'
import type { TokenKeys } from './token-keys.ts'

/**
 * Returns the resources that a token may be for: the whole service, or its MCP endpoint (RFC 8707), under
 * each public base URL.
 */
export const tokenResources = (baseUrls: readonly string[]): readonly string[] =>
  baseUrls.flatMap((base) => [base, `${base}/v1/mcp`])

/** Makes the function that returns them as they are then: a port may be known later. */
export const tokenAudiences = (baseUrls: () => readonly string[]) => (): readonly string[] =>
  tokenResources(baseUrls())

/** GET /.well-known/oauth-authorization-server (RFC 8414, RFC 8705 §3.3, RFC 9449 §5.1). */
export const authorizationServer = (baseUrls: () => readonly string[]) => (): Reply => {
  const [issuer = ''] = baseUrls()
  return jsonReply(200, {
    issuer,
    token_endpoint: `${issuer}/v1/auth/token`,
    jwks_uri: `${issuer}/.well-known/jwks.json`,
    grant_types_supported: ['client_credentials'],
    // Demanded by RFC 8414 §2; there is no authorization endpoint, so there are none.
    response_types_supported: [],
    token_endpoint_auth_methods_supported: ['tls_client_auth', 'self_signed_tls_client_auth'],
    tls_client_certificate_bound_access_tokens: true,
    dpop_signing_alg_values_supported: PROOF_ALGORITHMS,
  })
}

/**
 * GET /.well-known/oauth-protected-resource, followed by the path of the resource if it has one (RFC 9728
 * §3).
 */
export const protectedResource =
  (baseUrls: () => readonly string[], path: string, proofRequired: boolean) => (): Reply => {
    const [issuer = ''] = baseUrls()
    return jsonReply(200, {
      resource: `${issuer}${path}`,
      authorization_servers: [issuer],
      jwks_uri: `${issuer}/.well-known/jwks.json`,
      bearer_methods_supported: ['header'],
      dpop_signing_alg_values_supported: PROOF_ALGORITHMS,
      dpop_bound_access_tokens_required: proofRequired,
      tls_client_certificate_bound_access_tokens: true,
    })
  }

/** GET /.well-known/jwks.json (RFC 7517): retired keys too, until their last token has expired. */
export const jwks = (keys: TokenKeys) => async (): Promise<Reply> => jsonReply(200, await keys.jwks())
