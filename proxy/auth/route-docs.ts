import { z } from 'zod'
import { CERTIFICATE_REASONS } from '../../certs/certificate-error.ts'
import { PROOF_ALGORITHMS } from '../../plugins/dpop/key.ts'
import {
  BODY_REASONS,
  CLIENT_CERTIFICATE_REASONS as CERTIFIED,
  EXAMPLE_ID,
  KNOWN_CALLER_REASONS,
  type RouteDoc,
} from '../http/doc.ts'
import { oauthRefusalReply } from './refusal.ts'

const form = z.strictObject({
  grant_type: z.literal('client_credentials'),
  client_id: z.string().exactOptional(),
  scope: z
    .string()
    .exactOptional()
    .meta({ description: 'Capabilities, separated by spaces: narrows the token.' }),
  resource: z
    .url()
    .exactOptional()
    .meta({ description: 'RFC 8707: a public URL of the gateway, or an MCP endpoint below it.' }),
  expires_in: z
    .string()
    .regex(/^\d{1,6}$/)
    .exactOptional()
    .meta({ description: 'Seconds, at most 900.' }),
})

const token = z
  .strictObject({
    access_token: z.string(),
    token_type: z.enum(['DPoP', 'Bearer']),
    expires_in: z.int(),
    scope: z.string(),
    vendor_keys: z.literal(true).exactOptional(),
  })
  .meta({ id: 'Token' })

/** POST /v1/auth/token */
export const TOKEN: RouteDoc = {
  name: 'issueToken',
  summary:
    'Issues a short-lived token that is bound to the certificate of this connection (RFC 6749, RFC 8705).',
  caller: 'principal',
  headers: { DPoP: 'If a proof comes with the request, the token is bound to its key too (RFC 9449 §5).' },
  body: {
    media: 'application/x-www-form-urlencoded',
    schema: form,
    example: { grant_type: 'client_credentials', scope: 'llm.chat' },
  },
  answers: { 200: { description: 'The token.', content: [{ schema: token }] } },
  reasons: [
    ...CERTIFIED,
    'body_encoded',
    'body_too_large',
    'overloaded',
    'token_request_invalid',
    'grant_unsupported',
    'scope_invalid',
    'target_invalid',
    'client_invalid',
    'assertion_invalid',
    'proof_invalid',
    'use_dpop_nonce',
    'token_throttled',
    'audit_unavailable',
  ],
  refuse: (refusal) => oauthRefusalReply(refusal, EXAMPLE_ID, false),
}

/** POST /v1/auth/certificate */
export const CERTIFICATE_RENEWAL: RouteDoc = {
  name: 'renewCertificate',
  summary:
    "Issues the caller's next certificate, for a new key of the caller, in the last third of the life of the current one; or pins the one that its own CA has renewed.",
  caller: 'principal',
  body: {
    schema: z.strictObject({
      csr_pem: z.string().max(65_536),
      cert_pem: z
        .string()
        .max(256 * 1024)
        .exactOptional()
        .meta({ description: "A leaf that the agent's own CA has renewed; csr_pem proves its key." }),
    }),
  },
  answers: {
    200: {
      description: 'The certificate. The previous one stays valid for the configured grace.',
      content: [
        {
          schema: z.strictObject({
            agent_id: z.string().exactOptional(),
            principal_id: z.string().exactOptional(),
            cert_pem: z.string(),
            cert_chain_pem: z.string(),
            cert_thumbprint: z.string(),
            cert_not_after: z.string(),
            previous_valid_until: z.string().nullable(),
          }),
        },
      ],
    },
  },
  reasons: [
    ...KNOWN_CALLER_REASONS,
    ...BODY_REASONS,
    'body_unprocessable',
    'renewal_refused',
    'renewal_throttled',
    'precondition_failed',
    'audit_unavailable',
    ...CERTIFICATE_REASONS,
  ],
}

/** POST /v1/auth/login-challenge */
export const LOGIN_CHALLENGE: RouteDoc = {
  name: 'challengeLogin',
  summary: "Issues a nonce for the Python helper's login.",
  caller: 'principal',
  answers: {
    200: {
      description: 'The nonce, valid for one token.',
      content: [{ schema: z.strictObject({ nonce: z.string(), expires_in: z.int(), agent_id: z.string() }) }],
    },
  },
  reasons: CERTIFIED,
}

/** POST /v1/auth/sign-challenged-assertion */
export const SIGN_ASSERTION: RouteDoc = {
  name: 'signChallengedAssertion',
  summary: 'Checks whether an assertion would be accepted, and returns it.',
  caller: 'principal',
  body: { schema: z.looseObject({ client_assertion: z.string(), nonce: z.string() }) },
  answers: {
    200: {
      description: 'It would be accepted.',
      content: [
        {
          schema: z.strictObject({
            client_assertion: z.string(),
            agent_id: z.string(),
            mastio_signature: z.null(),
          }),
        },
      ],
    },
  },
  reasons: [...CERTIFIED, 'body_encoded', 'body_too_large', 'overloaded', 'assertion_invalid'],
}

const algorithms = z.array(z.string()).meta({ examples: [PROOF_ALGORITHMS] })

const publicDocument = (name: string, summary: string, schema: z.ZodType): RouteDoc => ({
  name,
  summary,
  caller: 'anyone',
  answers: { 200: { description: 'As it is now.', content: [{ schema }] } },
  reasons: [],
})

/** GET /.well-known/oauth-authorization-server */
export const AUTHORIZATION_SERVER = publicDocument(
  'getAuthorizationServer',
  'Describes the authorization server (RFC 8414).',
  z.strictObject({
    issuer: z.string(),
    token_endpoint: z.string(),
    authorization_endpoint: z.string(),
    jwks_uri: z.string(),
    grant_types_supported: z.array(z.string()),
    response_types_supported: z.array(z.string()),
    token_endpoint_auth_methods_supported: z.array(z.string()),
    tls_client_certificate_bound_access_tokens: z.boolean(),
    dpop_signing_alg_values_supported: algorithms,
  }),
)

/** GET /v1/auth/authorize */
export const AUTHORIZATION: RouteDoc = {
  name: 'refuseAuthorization',
  summary: 'Refuses: tokens are issued by client_credentials alone.',
  caller: 'anyone',
  answers: {},
  reasons: ['grant_unsupported'],
  refuse: (refusal) => oauthRefusalReply(refusal, EXAMPLE_ID, false),
}

/** GET /.well-known/oauth-protected-resource */
export const PROTECTED_RESOURCE = publicDocument(
  'getProtectedResource',
  'Names the issuer of tokens for this resource (RFC 9728).',
  z.strictObject({
    resource: z.string(),
    authorization_servers: z.array(z.string()),
    jwks_uri: z.string(),
    bearer_methods_supported: z.array(z.string()),
    dpop_signing_alg_values_supported: algorithms,
    dpop_bound_access_tokens_required: z.boolean(),
    tls_client_certificate_bound_access_tokens: z.boolean(),
  }),
)

/** GET /.well-known/oauth-protected-resource/v1/mcp */
export const PROTECTED_MCP: RouteDoc = { ...PROTECTED_RESOURCE, name: 'getProtectedMcpResource' }

/** The same, about the endpoint of one resource, by either of its names. */
export const PROTECTED_MCP_RESOURCE: RouteDoc = {
  ...PROTECTED_MCP,
  name: 'getProtectedResourceOfMcpResource',
  reasons: ['not_found'],
}

/** GET /.well-known/jwks.json */
export const JWKS = publicDocument(
  'getJwks',
  'Lists the public keys of access tokens (RFC 7517), with retired keys until their last token has expired.',
  z.strictObject({ keys: z.array(z.looseObject({ kty: z.string(), kid: z.string() })) }),
)
