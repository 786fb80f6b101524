import { unstoredOperator } from '../plugins/operators/actor.ts'
import type { AdminCapability } from '../plugins/operators/capabilities.ts'
import type { AdministrationFacts } from '../plugins/operators/operator.ts'
import type { Pipeline } from '../plugins/plugin.ts'
import { bindAs, bindByAccept, bindOperation, docOf, type OperationFacts } from './admin/http/http.ts'
import { OPERATIONS } from './admin/http/operations.ts'
import type { InputSchemas, Operation } from './admin/operation/operation.ts'
import { authorizationServer, jwks, protectedResource } from './auth/metadata.ts'
import { oauthRefusalReply } from './auth/refusal.ts'
import { isHelperRequest } from './auth/token-request.ts'
import { activityPage } from './dashboard/activity/activity.ts'
import { liveActivity } from './dashboard/activity/live.ts'
import { whyPage } from './dashboard/activity/why.ts'
import { attentionPage, proposalForms } from './dashboard/attention/attention.ts'
import { capabilitiesJson, capabilitiesPage } from './dashboard/capabilities/capabilities.ts'
import { type FormSubmission, formHandler, inputById } from './dashboard/frame/acting.ts'
import { ASSETS } from './dashboard/frame/assets.ts'
import { type DashboardPage, pageHandler } from './dashboard/frame/page.ts'
import { pathOf } from './dashboard/frame/parts.ts'
import { refusedPage } from './dashboard/frame/refused.ts'
import { pkiForms, pkiPage } from './dashboard/pki/pki.ts'
import { setCapabilitiesForm } from './dashboard/principals/capabilities-form.ts'
import { detailPage } from './dashboard/principals/detail.ts'
import { enrollForm, rotateCertificateForm } from './dashboard/principals/enroll.ts'
import { eraseForm, erasePage } from './dashboard/principals/erase.ts'
import { firstCallPage } from './dashboard/principals/first-call.ts'
import { PRINCIPAL_PAGES } from './dashboard/principals/kinds.ts'
import { listPage } from './dashboard/principals/list.ts'
import { trustedCasForms } from './dashboard/principals/trusted-cas.ts'
import { usagePage } from './dashboard/principals/usage.ts'
import { reviewedForm } from './dashboard/proof/auditors.ts'
import { evidenceForm } from './dashboard/proof/evidence.ts'
import { proofPage } from './dashboard/proof/proof.ts'
import { verifyForm } from './dashboard/proof/verify.ts'
import { rotateForm, settingsForms } from './dashboard/settings/forms.ts'
import { modesForm } from './dashboard/settings/modes.ts'
import { settingsPage } from './dashboard/settings/settings.ts'
import { FIRST_AGENT, firstAgentForm, firstAgentPage } from './dashboard/setup/agent.ts'
import { organisationForm, organisationPage } from './dashboard/setup/organisation.ts'
import { setupForm, setupPage, setupRefused } from './dashboard/setup/secret.ts'
import { toolForms } from './dashboard/tools/forms.ts'
import { toolPage } from './dashboard/tools/tool.ts'
import { toolsPage } from './dashboard/tools/tools.ts'
import { type Router, router } from './http/arrival.ts'
import type { RouteDoc } from './http/doc.ts'
import { healthReply, metricsReply, pemReply, readinessReply } from './http/health.ts'
import type { Reply } from './http/reply.ts'
import {
  type BareRoute,
  forkedRoute,
  gatedBranch,
  gatedRoute,
  onSurface,
  openBranch,
  openRoute,
  type RenderRefusal,
  type Route,
  withRouteDoc,
} from './http/route.ts'
import { LLM_ENDPOINTS } from './llm/dialects/registry.ts'
import { mcpRecorder } from './mcp/gate/endpoint.ts'
import { branchOnHandshake } from './mcp/protocol/message.ts'
import { refuseMcp } from './mcp/refusal.ts'
import * as audit from './openapi/audit.ts'
import * as auth from './openapi/auth.ts'
import { serveOpenapi } from './openapi/document.ts'
import * as llm from './openapi/llm.ts'
import * as mcp from './openapi/mcp.ts'
import * as operators from './openapi/operators.ts'
import * as pub from './openapi/public.ts'
import { backchannelLogout, logoutRefusal } from './operators/oidc/logout.ts'
import { finishSignIn, startSignIn } from './operators/oidc/sign-in.ts'
import { refusalPage, seeOther } from './operators/pages/page.ts'
import {
  signInByCertificate,
  signInBySecret,
  signInPage,
  signInRefusalPage,
} from './operators/pages/sign-in.ts'
import { signOut } from './operators/pages/sign-out.ts'
import type { GatewayPipelines } from './pipelines.ts'
import type { ProofHandlers } from './proofs/handlers.ts'
import type { RouteHandlers } from './wiring/handlers.ts'

/**
 * The routers of the listeners and of the control socket, made from one configuration and swapped together.
 */
export interface GatewayRouters {
  readonly runtime: Router
  readonly admin: Router
  readonly control: Router
}

const SERVER_METADATA = '/.well-known/oauth-authorization-server'
const TOKEN = '/v1/auth/token'
const CERTIFICATE = '/v1/auth/certificate'
const OPERATOR_PATHS = [SERVER_METADATA, TOKEN, CERTIFICATE]

/**
 * Makes the routers, with every route of every listener. `adminApart`: administration has a listener of its
 * own; else it shares the runtime's.
 */
export function routers(p: GatewayPipelines, h: RouteHandlers, adminApart: boolean): GatewayRouters {
  const runtime = [
    ...onSurface('llm', llmRoutes(p, h)),
    ...onSurface('mcp', mcpRoutes(p, h)),
    ...onSurface('auth', signInRoutes(p, h)),
    ...onSurface('audit', proofRoutes(p.proofs, h)),
  ]
  const admin = onSurface('admin', [
    ...adminRoutes(p.admin, h),
    ...setupRoutes(p, h),
    ...operatorPages(p.pages, p.anyone, h),
    ...dashboardRoutes(p, h),
  ])
  const control = [
    ...onSurface('admin', adminRoutes(p.control, h)),
    ...onSurface('audit', proofRoutes(p.proofsHere, h)),
  ]
  const every = (): readonly Route[] => [...runtime, ...common, ...admin, ...control]
  const common = onSurface('public', publicRoutes(p, h, every))
  // The command line reads there where clients reach the gateway: only a running one knows its port.
  const whereabouts = runtime.filter(({ path }) => path === SERVER_METADATA)
  // Operators need no other listener: for tokens, to renew their certificates, and for proofs.
  const signIn = runtime.filter(({ path, surface }) => surface === 'audit' || OPERATOR_PATHS.includes(path))
  return {
    runtime: router([...runtime, ...common, ...(adminApart ? [] : admin)]),
    admin: router([...admin, ...common, ...signIn]),
    control: router([...control, ...common, ...whereabouts]),
  }
}

/** Makes the routes that agents and their SDKs call: LLM calls and the list of models. */
function llmRoutes(p: GatewayPipelines, s: RouteHandlers): readonly BareRoute[] {
  const audited = { recorder: s.recorder }
  const models = (path: string) =>
    withRouteDoc(openRoute('GET', path, p.known, s.models.list, s.anonymous), llm.MODELS)
  const model = (path: string) =>
    withRouteDoc(openRoute('GET', path, p.known, s.models.get, s.anonymous), llm.MODEL)
  // An id may hold slashes: `provider/model`, and a model of that name by its maker.
  const one = ['{id}', '{provider}/{id}', '{provider}/{maker}/{id}']
  return [
    ...LLM_ENDPOINTS.map((endpoint) =>
      withRouteDoc(
        gatedRoute('POST', endpoint.path, { pipeline: p.llm(endpoint), ...audited }, s.llm),
        llm.llmCallDoc(endpoint),
      ),
    ),
    models('/v1/models'),
    models('/v1/egress/models'),
    ...['/v1/models', '/v1/egress/models'].flatMap((list) => one.map((id) => model(`${list}/${id}`))),
  ]
}

/**
 * Makes the MCP routes: all bound resources behind one path, and each behind one of its own
 * (docs/protocol.md#mcp-doors).
 */
function mcpRoutes(p: GatewayPipelines, s: RouteHandlers): readonly BareRoute[] {
  const { anonymous } = s
  const recorder = mcpRecorder(s.recorder, s.mcp.standing)
  const refuse = refuseMcp(s.auth.baseUrls)
  const handshake = openBranch(p.mcp.handshake, s.mcp.handshake, anonymous, refuse)
  const work = gatedBranch({ pipeline: p.mcp.work, recorder, refuse }, s.mcp.work)
  const read = { pipeline: p.mcp.read, recorder, refuse }
  const message = (path: string) => forkedRoute('POST', path, read, branchOnHandshake(handshake, work))
  const end = (path: string) => openRoute('DELETE', path, p.mcp.session, s.mcp.endSession, anonymous, refuse)
  return [
    withRouteDoc(message('/v1/mcp'), mcp.MESSAGE),
    withRouteDoc(end('/v1/mcp'), mcp.SESSION_END),
    // The second for clients that know an MCP server by the end of its URL.
    ...['/v1/mcp/{resource}', '/v1/{resource}/mcp'].flatMap((path) => [
      withRouteDoc(message(path), mcp.RESOURCE_MESSAGE),
      withRouteDoc(end(path), mcp.RESOURCE_SESSION_END),
    ]),
  ]
}

/** Makes the routes of signing in: tokens, the Python helper's login, and the metadata of both. */
function signInRoutes(p: GatewayPipelines, s: RouteHandlers): readonly BareRoute[] {
  const { issue, renew, logins, keys, baseUrls, proofRequired } = s.auth
  const asOAuth: RenderRefusal = (refusal, facts) =>
    oauthRefusalReply(refusal, facts.id, isHelperRequest(facts))
  const login = '/v1/auth/login-challenge'
  const sign = '/v1/auth/sign-challenged-assertion'
  const resource = '/.well-known/oauth-protected-resource'
  const resourceMcp = `${resource}/v1/mcp`
  const service = protectedResource(baseUrls, '', proofRequired)
  const serviceMcp = protectedResource(baseUrls, '/v1/mcp', proofRequired)
  return [
    withRouteDoc(openRoute('POST', TOKEN, p.token, issue, s.anonymous, asOAuth), auth.TOKEN),
    withRouteDoc(openRoute('POST', CERTIFICATE, p.certificate, renew, s.anonymous), auth.CERTIFICATE_RENEWAL),
    withRouteDoc(openRoute('POST', login, p.login, logins.challenge, s.anonymous), auth.LOGIN_CHALLENGE),
    withRouteDoc(openRoute('POST', sign, p.login, logins.sign, s.anonymous), auth.SIGN_ASSERTION),
    withRouteDoc(
      openRoute('GET', SERVER_METADATA, p.anyone, authorizationServer(baseUrls)),
      auth.AUTHORIZATION_SERVER,
    ),
    withRouteDoc(openRoute('GET', resource, p.anyone, service), auth.PROTECTED_RESOURCE),
    withRouteDoc(openRoute('GET', resourceMcp, p.anyone, serviceMcp), auth.PROTECTED_MCP),
    withRouteDoc(openRoute('GET', '/.well-known/jwks.json', p.anyone, jwks(keys)), auth.JWKS),
  ]
}

/** Makes the routes of the ledger's proofs: hashes for everybody who is known, leaves for whom they concern. */
function proofRoutes(
  pipeline: GatewayPipelines['proofs'],
  { proofs, anonymous }: RouteHandlers,
): readonly BareRoute[] {
  const route = (path: string, handler: ProofHandlers[keyof ProofHandlers], doc: RouteDoc) =>
    withRouteDoc(openRoute('GET', path, pipeline, handler, anonymous), doc)
  // N has three digits in each segment, and the width of a tile that is not full stands behind.
  const tiles = ['{n}', '{n}/{n1}', '{n}/{n1}/{n2}', '{n}/{n1}/{n2}/{n3}', '{n}/{n1}/{n2}/{n3}/{n4}']
  return [
    route('/v1/audit/key', proofs.key, audit.KEY),
    route('/v1/audit/checkpoint', proofs.checkpoint, audit.CHECKPOINT),
    ...tiles.map((tile) => route(`/v1/audit/tile/{level}/${tile}`, proofs.tile, audit.TILE)),
    route('/v1/audit/proofs/{request_id}', proofs.proofs, audit.PROOFS),
  ]
}

/** Makes the routes of every listener: health, public keys and the description of `every` route. */
function publicRoutes(
  p: GatewayPipelines,
  s: RouteHandlers,
  every: () => readonly Route[],
): readonly BareRoute[] {
  const { authority } = s.admin
  const live = (path: string) => withRouteDoc(openRoute('GET', path, p.anyone, healthReply), pub.HEALTH)
  const fit = (path: string) =>
    withRouteDoc(openRoute('GET', path, p.anyone, readinessReply(s.readiness)), pub.READY)
  const ca = pemReply(() => authority.rootPem)
  const chain = pemReply(() => authority.intermediatePem + authority.rootPem)
  return [
    ...['/health', '/healthz', '/health/liveness', '/health/liveliness'].map(live),
    ...['/ready', '/readyz', '/health/readiness'].map(fit),
    withRouteDoc(openRoute('GET', '/pki/ca.crt', p.anyone, ca), pub.CA),
    withRouteDoc(openRoute('GET', '/pki/ca-chain.pem', p.anyone, chain), pub.CA_CHAIN),
    withRouteDoc(openRoute('GET', '/openapi.json', p.anyone, serveOpenapi(every)), pub.OPENAPI),
  ]
}

/** Makes the route that sets the first operator secret. It is open until there is one. */
function setupRoutes(p: GatewayPipelines, s: RouteHandlers): readonly BareRoute[] {
  const { operation } = s.setup
  const { actor } = unstoredOperator('admin', 'setup_code', [])
  const set = bindAs(actor, operation, s.admin)
  const route = openRoute('POST', '/v1/admin/setup', p.setup, set, s.anonymous)
  return [withRouteDoc(route, docOf(operation, 'anyone'))]
}

/**
 * Makes the pages by which people sign in with a browser, and out (docs/operators.md#oidc). Open to anybody: what they
 * open, a session does.
 */
function operatorPages(
  p: GatewayPipelines['pages'],
  anyone: GatewayPipelines['anyone'],
  { signIn, anonymous }: RouteHandlers,
): readonly BareRoute[] {
  const logout = backchannelLogout(signIn)
  return [
    openRoute('GET', '/proxy/sign-in', anyone, signInPage(signIn), anonymous, refusalPage),
    openRoute('POST', '/proxy/sign-in', p.secret, signInBySecret(signIn), anonymous, signInRefusalPage),
    openRoute(
      'POST',
      '/proxy/sign-in/certificate',
      p.certificate,
      signInByCertificate(signIn),
      anonymous,
      refusalPage,
    ),
    openRoute('POST', '/proxy/sign-out', p.signOut, signOut(signIn), anonymous, refusalPage),
    openRoute('GET', '/proxy/oidc/start', anyone, startSignIn(signIn), anonymous, refusalPage),
    openRoute('GET', '/proxy/oidc/callback', anyone, finishSignIn(signIn), anonymous, refusalPage),
    withRouteDoc(
      openRoute('POST', '/proxy/oidc/backchannel-logout', p.logout, logout, anonymous, logoutRefusal),
      operators.LOGOUT,
    ),
  ]
}

/**
 * Makes the pages of the dashboard and their forms (docs/dashboard.md): behind a browser's session and the same gate as
 * the API, each by the operation that the API has.
 */
function dashboardRoutes(p: GatewayPipelines, s: RouteHandlers): readonly BareRoute[] {
  const { dashboard: d } = s
  const gate = { recorder: s.operators, refuse: refusedPage }
  const read = (
    path: string,
    demands: AdminCapability,
    handler: Parameters<typeof gatedRoute<AdministrationFacts>>[3],
    more: Omit<Parameters<typeof gatedRoute<AdministrationFacts>>[2], 'pipeline'> = gate,
  ) =>
    gatedRoute('GET', path, { pipeline: p.pages.page({ action: 'admin.read', demands }), ...more }, handler)
  const page = (path: string, demands: AdminCapability, shown: DashboardPage) =>
    read(path, demands, pageHandler(shown, d))
  const form = (path: string, operation: FormOperation, handler: (facts: FormSubmission) => Promise<Reply>) =>
    gatedRoute('POST', path, { pipeline: p.pages.form(operation), ...gate }, handler)
  const { agents, mcpResources, mcpBindings, cas, organisation, secret, sessions } = OPERATIONS
  const { proposals, rehearsals, audit } = OPERATIONS
  const [tools, pki, settings, people] = [toolForms(d), pkiForms(d), settingsForms(d), proposalForms(d)]
  const trust = trustedCasForms(d)
  const callers = ['agents', 'users', 'workloads'] as const
  const server = '/proxy/tools/{resource}'
  const asset = ({ path, serve }: (typeof ASSETS)[keyof typeof ASSETS]) =>
    openRoute('GET', path, p.anyone, serve)
  return [
    ...Object.values(ASSETS).map(asset),
    openRoute('GET', '/proxy/', p.anyone, () => seeOther('/proxy')),
    openRoute('GET', '/proxy/setup', p.pages.setup, setupPage(d), s.anonymous, setupRefused),
    openRoute('POST', '/proxy/setup', p.pages.setUp, setupForm(d), s.anonymous, setupRefused),
    read(ORGANISATION, organisation.set.demands, organisationPage(d)),
    form(ORGANISATION, organisation.set, organisationForm(d)),
    read(FIRST_AGENT, 'admin.enroll', firstAgentPage(d)),
    form(FIRST_AGENT, agents.create, firstAgentForm(d)),
    page('/proxy', 'admin.read', attentionPage),
    page('/proxy/activity', 'admin.audit', activityPage),
    // Before the page of a request, whose id it would be taken for.
    read('/proxy/activity/live', 'admin.audit', liveActivity(d), { recorder: s.operators }),
    page('/proxy/activity/{request_id}', 'admin.audit', whyPage),
    ...([...callers, 'operators'] as const).flatMap((plural) => {
      const { operations } = PRINCIPAL_PAGES[plural]
      const [list, one] = [`/proxy/${plural}`, `/proxy/${plural}/{id}`]
      const back = { given: inputById, to: ({ params }: FormSubmission) => pathOf(plural, params.id ?? '') }
      return [
        page(list, 'admin.read', listPage(plural)),
        form(list, operations.create, enrollForm(plural, d)),
        page(one, 'admin.read', detailPage(plural)),
        form(`${one}/capabilities`, operations.setCapabilitiesInForm, setCapabilitiesForm(plural, d)),
        form(`${one}/rotate-cert`, operations.rotateCertificate, rotateCertificateForm(plural, d)),
        form(
          `${one}/deactivate`,
          operations.deactivate,
          formHandler(d, operations.deactivate, { ...back, notice: 'deactivated' }),
        ),
        form(
          `${one}/reactivate`,
          operations.reactivate,
          formHandler(d, operations.reactivate, { ...back, notice: 'reactivated' }),
        ),
      ]
    }),
    ...callers.flatMap((plural) => {
      const { operations } = PRINCIPAL_PAGES[plural]
      const one = `/proxy/${plural}/{id}`
      return [
        page(`${one}/usage`, 'admin.read', usagePage(plural)),
        page(`${one}/erase`, 'admin.read', erasePage(plural)),
        form(`${one}/erase`, operations.erase, eraseForm(plural, d)),
      ]
    }),
    form('/proxy/agents/{id}/trusted-cas', agents.trustCa, trust.trust),
    form('/proxy/agents/{id}/trusted-cas/{digest}/withdraw', agents.distrustCa, trust.distrust),
    page('/proxy/agents/{id}/first-call', 'admin.audit', firstCallPage),
    page('/proxy/tools', 'admin.read', toolsPage),
    form('/proxy/tools', mcpResources.create, tools.register),
    form(`${server}/enable`, mcpResources.update, tools.enable),
    form(`${server}/disable`, mcpResources.update, tools.disable),
    page(server, 'admin.read', toolPage),
    form(`${server}/refresh`, mcpResources.refresh, tools.refresh),
    form(`${server}/tools/{tool}/approve`, mcpResources.approveTool, tools.approve),
    form(`${server}/approve`, mcpResources.approveIntroduction, tools.approveIntroduction),
    form(`${server}/bindings`, mcpBindings.create, tools.bind),
    form(`${server}/bindings/{binding_id}/revoke`, mcpBindings.revoke, tools.revoke),
    page('/proxy/capabilities', 'admin.read', capabilitiesPage),
    read('/proxy/capabilities.json', 'admin.read', capabilitiesJson(d), { recorder: s.operators }),
    page('/proxy/pki', 'admin.read', pkiPage),
    form('/proxy/pki', cas.attach, pki.attach),
    form('/proxy/pki/{digest}/detach', cas.detach, pki.detach),
    form('/proxy/pki/{digest}/vouch', agents.trustCaAs, pki.vouch),
    page('/proxy/proof', 'admin.read', proofPage),
    read('/proxy/proof/evidence', audit.evidence.demands, evidenceForm(d)),
    form('/proxy/proof/verify', audit.verify, verifyForm(d)),
    form('/proxy/proof/reviewed', audit.reviewed, reviewedForm(d)),
    page('/proxy/settings', 'admin.read', settingsPage),
    form('/proxy/settings/secret', secret.rotate, rotateForm(d)),
    form('/proxy/settings/modes', rehearsals.create, modesForm(d)),
    form('/proxy/settings/secret/disable', secret.disable, settings.disable),
    form('/proxy/settings/sessions/{id}/end', sessions.end, settings.end),
    form('/proxy/proposals/{id}/confirm', proposals.confirm, people.confirm),
    form('/proxy/proposals/{id}/decline', proposals.decline, people.decline),
  ]
}

type FormOperation = Pick<Operation<InputSchemas, unknown>, 'action' | 'demands'>

const ORGANISATION = '/proxy/setup/organisation'

/**
 * Makes the routes of administration: behind an operator's certificate, session or secret on a listener, behind the
 * file mode of the control socket.
 */
function adminRoutes(
  { read, write, metrics: scrape }: GatewayPipelines['admin'],
  s: RouteHandlers,
): readonly BareRoute[] {
  const route = adminRoute(s)
  const { agents, users, workloads, operators, capabilities, mcpResources, mcpBindings } = OPERATIONS
  const { cas, organisation, keys, secret, sessions, proposals, rehearsals, audit } = OPERATIONS
  const resources = '/v1/admin/mcp-resources'
  return [
    route('POST', '/v1/admin/agents', write, agents.create),
    route('GET', '/v1/admin/agents', read, agents.list),
    route('POST', '/v1/admin/users', write, users.create),
    route('GET', '/v1/admin/users', read, users.list),
    route('POST', '/v1/admin/workloads', write, workloads.create),
    route('GET', '/v1/admin/workloads', read, workloads.list),
    route('POST', '/v1/admin/operators', write, operators.create),
    route('GET', '/v1/admin/operators', read, operators.list),
    ...Object.entries({ agents, users, workloads }).flatMap(([plural, kind]) => [
      route('POST', `/v1/admin/${plural}/{id}/erase`, read, kind.erase),
      route('GET', `/v1/admin/${plural}/{id}/usage`, read, kind.usage),
    ]),
    ...Object.entries({ agents, users, workloads, operators }).flatMap(([plural, kind]) => {
      const one = `/v1/admin/${plural}/{id}`
      return [
        route('GET', one, read, kind.get),
        route('DELETE', one, read, kind.deactivate),
        route('POST', `${one}/reactivate`, read, kind.reactivate),
        route('PATCH', `${one}/capabilities`, write, kind.setCapabilities),
        route('POST', `${one}/dpop-jwk`, write, kind.setDpopKey),
        route('POST', `${one}/certificate`, write, kind.certify),
        route('POST', `${one}/rotate-cert`, write, kind.rotateCertificate),
      ]
    }),
    route('POST', resources, write, mcpResources.create),
    route('GET', resources, read, mcpResources.list),
    // Before those with a resource's id, which these would be taken for.
    route('POST', `${resources}/bindings`, write, mcpBindings.create),
    route('GET', `${resources}/bindings`, read, mcpBindings.list),
    route('GET', `${resources}/bindings/{binding_id}`, read, mcpBindings.get),
    route('DELETE', `${resources}/bindings/{binding_id}`, read, mcpBindings.revoke),
    route('GET', `${resources}/{resource_id}`, read, mcpResources.get),
    route('PATCH', `${resources}/{resource_id}`, write, mcpResources.update),
    route('DELETE', `${resources}/{resource_id}`, read, mcpResources.delete),
    route('POST', `${resources}/{resource_id}/refresh`, read, mcpResources.refresh),
    route('POST', `${resources}/{resource_id}/tools/{tool}/approve`, write, mcpResources.approveTool),
    route('POST', `${resources}/{resource_id}/server/approve`, write, mcpResources.approveIntroduction),
    route('GET', '/v1/admin/capabilities', read, capabilities.list),
    route('POST', '/v1/admin/agents/enroll/byoca', write, agents.enrollByoca),
    route('POST', '/v1/admin/agents/enroll/spiffe', write, agents.enrollSpiffe),
    route('POST', '/v1/admin/agents/trusted-cas', write, agents.trustCaAs),
    route('GET', '/v1/admin/agents/{id}/trusted-cas', read, agents.listTrustedCas),
    route('POST', '/v1/admin/agents/{id}/trusted-cas', write, agents.trustCa),
    route('DELETE', '/v1/admin/agents/{id}/trusted-cas/{digest}', read, agents.distrustCa),
    route('POST', '/v1/admin/ca/attach', write, cas.attach),
    route('GET', '/v1/admin/ca', read, cas.list),
    route('GET', '/v1/admin/ca/organisation', read, organisation.show),
    route('PUT', '/v1/admin/ca/organisation', write, organisation.set),
    route('DELETE', '/v1/admin/ca/{digest}', read, cas.detach),
    route('POST', '/v1/admin/signing-key/rotate', read, keys.rotateSigningKey),
    route('POST', '/v1/admin/audit-key/rotate', read, keys.rotateAuditKey),
    route('GET', '/v1/admin/secret', read, secret.show),
    route('POST', '/v1/admin/secret/rotate', write, secret.rotate),
    route('POST', '/v1/admin/secret/disable', read, secret.disable),
    route('POST', '/v1/admin/secret/enable', read, secret.enable),
    route('GET', '/v1/admin/proposals', read, proposals.list),
    route('GET', '/v1/admin/proposals/{id}', read, proposals.get),
    route('POST', '/v1/admin/proposals/{id}/confirm', read, proposals.confirm),
    route('POST', '/v1/admin/proposals/{id}/decline', read, proposals.decline),
    route('POST', '/v1/admin/rehearsals', write, rehearsals.create, rehearsals.createInLines),
    route('GET', '/v1/admin/rehearsals/{id}', read, rehearsals.get),
    route('GET', '/v1/admin/session', read, sessions.show),
    route('GET', '/v1/admin/sessions', read, sessions.list),
    route('DELETE', '/v1/admin/sessions/{id}', read, sessions.end),
    route('GET', '/v1/admin/audit', read, audit.list),
    route('GET', '/v1/admin/log', read, audit.log),
    route('GET', '/v1/admin/audit/export', read, audit.export),
    route('POST', '/v1/admin/audit/verify', read, audit.verify, audit.verifyInLines),
    route('GET', '/v1/admin/audit/evidence', read, audit.evidence),
    route('POST', '/v1/admin/audit/reviewed', write, audit.reviewed),
    withRouteDoc(
      gatedRoute('GET', '/metrics', { pipeline: scrape, recorder: s.operators }, metricsReply(s.registry)),
      pub.METRICS,
    ),
  ]
}

/**
 * Makes the function that makes a route of administration: the gate asks for what the operation demands. `other`: the
 * form of it in another media type.
 */
const adminRoute =
  (s: RouteHandlers) =>
  <T extends InputSchemas, Output, Other = never>(
    method: BareRoute['method'],
    path: string,
    pipelineFor: (asked: Pick<Operation<T, Output>, 'action' | 'demands'>) => Pipeline<OperationFacts<T>>,
    operation: Operation<T, Output>,
    other?: Operation<T, Other>,
  ): BareRoute => {
    const pipeline = pipelineFor(operation)
    const handler = other ? bindByAccept(operation, other, s.admin) : bindOperation(operation, s.admin)
    return withRouteDoc(
      gatedRoute(method, path, { pipeline, recorder: s.operators }, handler),
      docOf(operation, 'operator', other),
    )
  }
