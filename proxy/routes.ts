import { exportAudit, listAudit, verifyAudit } from './admin/audit.ts'
import { attachCas, detach, listCas } from './admin/keys/cas.ts'
import { rotateSecret } from './admin/keys/secret.ts'
import { rotateSigningKey } from './admin/keys/signing-key.ts'
import { bindPrincipal, getBinding, listBindings, revokeBinding } from './admin/mcp/bindings.ts'
import {
  createMcpResource,
  getMcpResource,
  listAllMcpResources,
  patchMcpResource,
  refreshMcpResource,
  removeMcpResource,
} from './admin/mcp/resources.ts'
import { approveTool } from './admin/mcp/tools.ts'
import { listCapabilities } from './admin/principals/capabilities.ts'
import { certifyRequest, rotateCertificate } from './admin/principals/certificates.ts'
import { registerDpopJwk } from './admin/principals/dpop-jwk.ts'
import { enrollByoca, enrollSpiffe, mintAgent } from './admin/principals/enroll.ts'
import { AGENT, USER, WORKLOAD } from './admin/principals/kinds.ts'
import {
  createPrincipal,
  getOne,
  listAll,
  patchCapabilities,
  setActivity,
} from './admin/principals/principals.ts'
import { authorizationServer, jwks, protectedResource } from './auth/metadata.ts'
import { oauthRefusalReply } from './auth/refusal.ts'
import { isHelper } from './auth/token-request.ts'
import type { Handlers } from './handlers.ts'
import { health, metrics, pem, ready } from './http/health.ts'
import {
  type BareRoute,
  forked,
  gated,
  gatedBranch,
  onSurface,
  open,
  openBranch,
  type Refuse,
} from './http/route.ts'
import { type Router, router } from './http/router.ts'
import { ENDPOINTS } from './llm/dialects/registry.ts'
import { mcpRecorder } from './mcp/gate/recorded.ts'
import { isHandshake } from './mcp/protocol/methods.ts'
import { refuseMcp } from './mcp/refusal.ts'
import type { Pipelines } from './pipelines.ts'

/** The routers of each place that listens, made from one configuration and swapped together. */
export interface Routers {
  readonly runtime: Router
  readonly admin: Router
  readonly control: Router
}

/**
 * Every route of every listener. `adminApart`: whether administration has a listener of its own; else it shares the runtime's.
 */
export function routers(p: Pipelines, h: Handlers, adminApart: boolean): Routers {
  const admin = onSurface('admin', [...adminRoutes(p.admin, h), ...setupRoutes(p, h)])
  const common = onSurface('public', publicRoutes(p, h))
  const runtime = [
    ...onSurface('llm', llmRoutes(p, h)),
    ...onSurface('mcp', mcpRoutes(p, h)),
    ...onSurface('auth', signInRoutes(p, h)),
    ...common,
  ]
  return {
    runtime: router(adminApart ? runtime : [...runtime, ...admin]),
    admin: router([...admin, ...common]),
    control: router([...onSurface('admin', adminRoutes(p.control, h)), ...common]),
  }
}

/** LLM calls, and the list of models: what agents and their SDKs call. */
function llmRoutes(p: Pipelines, s: Handlers): readonly BareRoute[] {
  const audited = { recorder: s.recorder, recheck: p.stillHolds }
  return [
    ...ENDPOINTS.map((endpoint) =>
      gated('POST', endpoint.path, { pipeline: p.llm(endpoint), ...audited }, s.llm),
    ),
    open('GET', '/v1/models', p.known, s.models, s.anonymous),
    open('GET', '/v1/egress/models', p.known, s.models, s.anonymous),
  ]
}

/** MCP: all bound resources behind one path, and each behind one of its own (WIRE.md §4). */
function mcpRoutes(p: Pipelines, s: Handlers): readonly BareRoute[] {
  const { anonymous } = s
  const recorder = mcpRecorder(s.recorder)
  const refuse = refuseMcp(s.auth.baseUrls)
  const handshake = openBranch(p.mcp.handshake, s.mcp.handshake, anonymous, refuse)
  const work = gatedBranch({ pipeline: p.mcp.work, recorder, recheck: p.mcpStillHolds, refuse }, s.mcp.work)
  const read = { pipeline: p.mcp.read, refused: recorder.refused, refuse }
  return ['/v1/mcp', '/v1/mcp/{resource}'].flatMap((path) => [
    forked('POST', path, read, ({ message }) => (isHandshake(message) ? handshake : work)),
    open('DELETE', path, p.mcp.session, s.mcp.endSession, anonymous, refuse),
  ])
}

/** Signing in: tokens, the Python helper's login, and what tells clients about both. */
function signInRoutes(p: Pipelines, s: Handlers): readonly BareRoute[] {
  const { issue, logins, keys, baseUrls, proofRequired } = s.auth
  const asOAuth: Refuse = (refusal, facts) => oauthRefusalReply(refusal, facts.id, isHelper(facts))
  const resource = '/.well-known/oauth-protected-resource'
  return [
    open('POST', '/v1/auth/token', p.token, issue, s.anonymous, asOAuth),
    open('POST', '/v1/auth/login-challenge', p.login, logins.challenge, s.anonymous),
    open('POST', '/v1/auth/sign-challenged-assertion', p.login, logins.sign, s.anonymous),
    open('GET', '/.well-known/oauth-authorization-server', p.anyone, authorizationServer(baseUrls)),
    open('GET', resource, p.anyone, protectedResource(baseUrls, '', proofRequired)),
    open('GET', `${resource}/v1/mcp`, p.anyone, protectedResource(baseUrls, '/v1/mcp', proofRequired)),
    open('GET', '/.well-known/jwks.json', p.anyone, jwks(keys)),
  ]
}

/** Health and public keys: on every listener. */
function publicRoutes(p: Pipelines, s: Handlers): readonly BareRoute[] {
  const live = ['/health', '/healthz', '/health/liveness', '/health/liveliness']
  const fit = ['/ready', '/readyz', '/health/readiness']
  return [
    ...live.map((path) => open('GET', path, p.anyone, health)),
    ...fit.map((path) => open('GET', path, p.anyone, ready(s.readiness))),
    open(
      'GET',
      '/pki/ca.crt',
      p.anyone,
      pem(() => s.admin.authority.rootPem),
    ),
    open(
      'GET',
      '/pki/ca-chain.pem',
      p.anyone,
      pem(() => s.admin.authority.intermediatePem + s.admin.authority.rootPem),
    ),
  ]
}

/** The first operator secret: open until there is one. */
function setupRoutes(p: Pipelines, s: Handlers): readonly BareRoute[] {
  return [open('POST', '/v1/admin/setup', p.setup, s.setup.handler(s.admin), s.anonymous)]
}

/** Administration: behind `X-Admin-Secret` on a listener, behind the file system on the control socket. */
function adminRoutes(
  { read, write }: Pipelines['admin'] | Pipelines['control'],
  s: Handlers,
): readonly BareRoute[] {
  const a = s.admin
  const refused = s.anonymous
  const principals = [AGENT, USER, WORKLOAD].flatMap((kind) => {
    const all = `/v1/admin/${kind.plural}`
    return [
      open('POST', all, write, kind === AGENT ? mintAgent(a) : createPrincipal(a, kind), refused),
      open('GET', all, read, listAll(a, kind), refused),
      open('GET', `${all}/{id}`, read, getOne(a, kind), refused),
      open('DELETE', `${all}/{id}`, read, setActivity(a, kind, false), refused),
      open('POST', `${all}/{id}/reactivate`, read, setActivity(a, kind, true), refused),
      open('PATCH', `${all}/{id}/capabilities`, write, patchCapabilities(a, kind), refused),
      open('POST', `${all}/{id}/dpop-jwk`, write, registerDpopJwk(a, kind), refused),
      open('POST', `${all}/{id}/certificate`, write, certifyRequest(a, kind), refused),
      open('POST', `${all}/{id}/rotate-cert`, write, rotateCertificate(a, kind), refused),
    ]
  })
  const mcp = '/v1/admin/mcp-resources'
  return [
    ...principals,
    open('POST', mcp, write, createMcpResource(a), refused),
    open('GET', mcp, read, listAllMcpResources(a), refused),
    // Before those with a resource's id, which these would be taken for.
    open('POST', `${mcp}/bindings`, write, bindPrincipal(a), refused),
    open('GET', `${mcp}/bindings`, read, listBindings(a), refused),
    open('GET', `${mcp}/bindings/{binding_id}`, read, getBinding(a), refused),
    open('DELETE', `${mcp}/bindings/{binding_id}`, read, revokeBinding(a), refused),
    open('GET', `${mcp}/{resource_id}`, read, getMcpResource(a), refused),
    open('PATCH', `${mcp}/{resource_id}`, write, patchMcpResource(a), refused),
    open('DELETE', `${mcp}/{resource_id}`, read, removeMcpResource(a), refused),
    open('POST', `${mcp}/{resource_id}/refresh`, read, refreshMcpResource(a), refused),
    open('POST', `${mcp}/{resource_id}/tools/{tool}/approve`, write, approveTool(a), refused),
    open('GET', '/v1/admin/capabilities', read, listCapabilities(a), refused),
    open('POST', '/v1/admin/agents/enroll/byoca', write, enrollByoca(a), refused),
    open('POST', '/v1/admin/agents/enroll/spiffe', write, enrollSpiffe(a), refused),
    open('POST', '/v1/admin/ca/attach', write, attachCas(a), refused),
    open('GET', '/v1/admin/ca', read, listCas(a), refused),
    open('DELETE', '/v1/admin/ca/{digest}', read, detach(a), refused),
    open('POST', '/v1/admin/signing-key/rotate', read, rotateSigningKey(a, s.auth.keys), refused),
    open('POST', '/v1/admin/secret/rotate', write, rotateSecret(a), refused),
    open('GET', '/v1/admin/audit', read, listAudit(a), refused),
    open('GET', '/v1/admin/audit/export', read, exportAudit(a), refused),
    open('POST', '/v1/admin/audit/verify', read, verifyAudit(a), refused),
    open('GET', '/metrics', read, metrics(s.registry), refused),
  ]
}
