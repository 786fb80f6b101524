import { isMcpDoor } from '../../plugins/dpop/audience.ts'
import { PROOF_ALGORITHMS } from '../../plugins/dpop/key.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { jsonReply, type Reply } from '../http/reply.ts'
import type { TokenKeys } from './token-keys.ts'

/** Returns the public base URL that a request was sent to; the first if it names none of them. */
function baseUrlAsked(
  { headers: { host = '' } }: Pick<Arrival, 'headers'>,
  baseUrls: readonly string[],
): string {
  const asked = URL.parse(`https://${host}`)?.host
  return baseUrls.find((base) => URL.parse(base)?.host === asked) ?? baseUrls[0] ?? ''
}

/** The path of the document about the whole service. That of a resource follows it. */
export const RESOURCE_METADATA = '/.well-known/oauth-protected-resource'

/** Returns the URL of the document about the MCP endpoint that a request was sent to (RFC 9728 §3.1). */
export function mcpMetadataUrl(
  asked: Pick<Arrival, 'headers' | 'path'>,
  baseUrls: readonly string[],
): string {
  const door = isMcpDoor(asked.path) ? asked.path : '/v1/mcp'
  return `${baseUrlAsked(asked, baseUrls)}${RESOURCE_METADATA}${door}`
}

/** GET /.well-known/oauth-authorization-server (RFC 8414, RFC 8705 §3.3, RFC 9449 §5.1). */
export const authorizationServer = (baseUrls: () => readonly string[]) => (): Reply => {
  const [issuer = ''] = baseUrls()
  return jsonReply(200, {
    issuer,
    token_endpoint: `${issuer}/v1/auth/token`,
    // Nobody is sent there, but SDKs of MCP read no document without it.
    authorization_endpoint: `${issuer}/v1/auth/authorize`,
    jwks_uri: `${issuer}/.well-known/jwks.json`,
    grant_types_supported: ['client_credentials'],
    // Demanded by RFC 8414 §2; the authorization endpoint only refuses, so there are none.
    response_types_supported: [],
    token_endpoint_auth_methods_supported: ['tls_client_auth', 'self_signed_tls_client_auth'],
    tls_client_certificate_bound_access_tokens: true,
    dpop_signing_alg_values_supported: PROOF_ALGORITHMS,
  })
}

/**
 * GET /.well-known/oauth-protected-resource, followed by the path of the resource if it has one. `resource` is
 * what the client asked: this host, if it is one of ours (RFC 9728 §3.3).
 */
export const protectedResource =
  (baseUrls: () => readonly string[], proofRequired: boolean) =>
  (facts: Arrival): Reply => {
    const urls = baseUrls()
    const [issuer = ''] = urls
    const path = facts.path.slice(RESOURCE_METADATA.length)
    if (path !== '' && !isMcpDoor(path)) throw new Refusal('not_found')
    return jsonReply(200, {
      resource: `${baseUrlAsked(facts, urls)}${path}`,
      authorization_servers: [issuer],
      jwks_uri: `${issuer}/.well-known/jwks.json`,
      bearer_methods_supported: ['header'],
      dpop_signing_alg_values_supported: PROOF_ALGORITHMS,
      dpop_bound_access_tokens_required: proofRequired,
      tls_client_certificate_bound_access_tokens: true,
    })
  }

/** GET /v1/auth/authorize: says that this server has no use for it. */
export const refuseAuthorization = (): never => {
  throw new Refusal('grant_unsupported', {
    message: 'No token is given out by redirect. Ask /v1/auth/token with grant_type=client_credentials.',
  })
}

/** GET /.well-known/jwks.json (RFC 7517): retired keys too, until their last token has expired. */
export const jwks = (keys: TokenKeys) => async (): Promise<Reply> => jsonReply(200, await keys.jwks())
