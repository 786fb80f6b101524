import type { RouteRecorders } from '../../plugins/audit/audit.ts'
import type { Principal } from '../../plugins/facts.ts'
import type { Arrival, Pipeline } from '../../plugins/plugin.ts'
import type { Reply } from '../http/reply.ts'
import { type BareRoute, openRoute, type RenderRefusal, withRouteDoc } from '../http/route.ts'
import type { issueToken } from './issue-token.ts'
import type { LoginChallenges } from './login-challenge.ts'
import {
  authorizationServer,
  jwks,
  protectedResource,
  RESOURCE_METADATA,
  refuseAuthorization,
} from './metadata.ts'
import { oauthRefusalReply } from './refusal.ts'
import * as docs from './route-docs.ts'
import type { TokenKeys } from './token-keys.ts'
import { isHelperRequest } from './token-request.ts'

type TokenFacts = Parameters<ReturnType<typeof issueToken>>[0]
type KnownFacts = Arrival & { readonly principal: Principal }

interface AuthPipelines<Token extends TokenFacts, Known extends KnownFacts, Certified extends KnownFacts> {
  readonly anyone: Pipeline<Arrival>
  readonly token: Pipeline<Token>
  readonly certificate: Pipeline<Certified>
  readonly login: Pipeline<Known>
}

export interface AuthHandlers<Certified> {
  readonly issue: ReturnType<typeof issueToken>
  readonly renew: (facts: Certified) => Promise<Reply>
  readonly logins: LoginChallenges
  readonly keys: TokenKeys
  readonly baseUrls: () => readonly string[]
  /** True if every call must come with a DPoP proof. */
  readonly proofRequired: boolean
}

/** The path that says where clients reach the gateway: only a running one knows its port. */
export const SERVER_METADATA = '/.well-known/oauth-authorization-server'
const TOKEN = '/v1/auth/token'
const CERTIFICATE = '/v1/auth/certificate'

/**
 * Tells the paths that operators need wherever they administer: for tokens, and to renew their certificates.
 */
export const isForOperators = ({ path }: Pick<BareRoute, 'path'>): boolean =>
  [SERVER_METADATA, TOKEN, CERTIFICATE].includes(path)

/** Makes the routes of signing in: tokens, the Python helper's login, and the metadata of both. */
export function authRoutes<Token extends TokenFacts, Known extends KnownFacts, Certified extends KnownFacts>(
  pipelines: AuthPipelines<Token, Known, Certified>,
  handlers: AuthHandlers<Certified>,
  { anonymous }: RouteRecorders,
): readonly BareRoute[] {
  const { token, certificate, login } = pipelines
  const { issue, renew, logins } = handlers
  const challenge = '/v1/auth/login-challenge'
  const sign = '/v1/auth/sign-challenged-assertion'
  return [
    withRouteDoc(openRoute('POST', TOKEN, token, issue, anonymous, asOAuth), docs.TOKEN),
    withRouteDoc(openRoute('POST', CERTIFICATE, certificate, renew, anonymous), docs.CERTIFICATE_RENEWAL),
    withRouteDoc(openRoute('POST', challenge, login, logins.challenge, anonymous), docs.LOGIN_CHALLENGE),
    withRouteDoc(openRoute('POST', sign, login, logins.sign, anonymous), docs.SIGN_ASSERTION),
    ...metadataRoutes(pipelines.anyone, handlers),
  ]
}

const asOAuth: RenderRefusal = (refusal, facts) =>
  oauthRefusalReply(refusal, facts.id, isHelperRequest(facts))

function metadataRoutes(
  anyone: Pipeline<Arrival>,
  { keys, baseUrls, proofRequired }: Omit<AuthHandlers<never>, 'renew'>,
): readonly BareRoute[] {
  const resource = protectedResource(baseUrls, proofRequired)
  return [
    withRouteDoc(
      openRoute('GET', SERVER_METADATA, anyone, authorizationServer(baseUrls)),
      docs.AUTHORIZATION_SERVER,
    ),
    withRouteDoc(
      openRoute('GET', '/v1/auth/authorize', anyone, refuseAuthorization, undefined, asOAuth),
      docs.AUTHORIZATION,
    ),
    withRouteDoc(openRoute('GET', RESOURCE_METADATA, anyone, resource), docs.PROTECTED_RESOURCE),
    withRouteDoc(openRoute('GET', `${RESOURCE_METADATA}/v1/mcp`, anyone, resource), docs.PROTECTED_MCP),
    ...['/v1/mcp/{resource}', '/v1/{resource}/mcp'].map((path) =>
      withRouteDoc(openRoute('GET', RESOURCE_METADATA + path, anyone, resource), docs.PROTECTED_MCP_RESOURCE),
    ),
    withRouteDoc(openRoute('GET', '/.well-known/jwks.json', anyone, jwks(keys)), docs.JWKS),
  ]
}
