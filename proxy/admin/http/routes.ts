import type { RouteRecorders } from '../../../plugins/audit/audit.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import { unstoredOperator } from '../../../plugins/operators/actor.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { Arrival, Pipeline } from '../../../plugins/plugin.ts'
import { type BareRoute, gatedRoute, openRoute, withRouteDoc } from '../../http/route.ts'
import type { FirstBootSetup } from '../keys/secret.ts'
import type { InputSchemas, Operation } from '../operation/operation.ts'
import type { AdministrationContext } from '../pipeline.ts'
import { bindAs, bindByAccept, bindOperation, docOf, type OperationFacts } from './http.ts'
import { OPERATIONS } from './operations.ts'

type OperationDemand = Pick<Operation<InputSchemas, unknown>, 'action' | 'demands'>

interface AdminPipelines {
  readonly read: (asked: OperationDemand) => Pipeline<AdministrationFacts>
  readonly write: (asked: OperationDemand) => Pipeline<AdministrationFacts & JsonBody>
}

/** Makes the routes of administration, on a listener or on the control socket. */
export function adminRoutes(
  { read, write }: AdminPipelines,
  context: AdministrationContext,
  recorders: RouteRecorders,
): readonly BareRoute[] {
  const doors = { read, write, route: adminRoute(context, recorders) }
  return [
    ...principalRoutes(doors),
    ...limitRoutes(doors),
    ...stopRoutes(doors),
    ...mcpResourceRoutes(doors),
    ...enrollmentRoutes(doors),
    ...authorityRoutes(doors),
    ...changeRoutes(doors),
    ...auditRoutes(doors),
  ]
}

/** Makes the route that sets the first operator secret. It is open until there is one. */
export function setupRoutes(
  pipeline: Pipeline<Arrival & JsonBody>,
  { operation }: FirstBootSetup,
  context: AdministrationContext,
  { anonymous }: RouteRecorders,
): readonly BareRoute[] {
  const { actor } = unstoredOperator('admin', 'setup_code', [])
  const route = openRoute('POST', '/v1/admin/setup', pipeline, bindAs(actor, operation, context), anonymous)
  return [withRouteDoc(route, docOf(operation, 'anyone'))]
}

/** Makes a route behind the operation's demands. `other`: its form in another media type. */
const adminRoute =
  (context: AdministrationContext, { operators: recorder }: RouteRecorders) =>
  <T extends InputSchemas, Output, Other = never>(
    method: BareRoute['method'],
    path: string,
    pipelineFor: (asked: OperationDemand) => Pipeline<OperationFacts<T>>,
    operation: Operation<T, Output>,
    other?: Operation<T, Other>,
  ): BareRoute => {
    const pipeline = pipelineFor(operation)
    const handler = other ? bindByAccept(operation, other, context) : bindOperation(operation, context)
    return withRouteDoc(
      gatedRoute(method, path, { pipeline, recorder }, handler),
      docOf(operation, 'operator', other),
    )
  }

interface AdminDoors extends AdminPipelines {
  readonly route: ReturnType<typeof adminRoute>
}

function principalRoutes({ route, read, write }: AdminDoors): readonly BareRoute[] {
  const { agents, users, workloads, operators, labels, sets, grants, accounts } = OPERATIONS
  const callers = Object.entries({ agents, users, workloads }).flatMap(([plural, kind]) => {
    const one = `/v1/admin/${plural}/{id}`
    return [
      route('POST', `${one}/erase`, read, kind.erase),
      route('GET', `${one}/dpop-jwk`, read, kind.listProofKeys),
      route('POST', `${one}/dpop-jwk/{jkt}/adopt`, read, kind.adoptDpopKey),
      route('POST', `/v1/admin/${plural}/capabilities`, write, kind.changeFound),
      route('GET', `${one}/usage`, read, kind.usage),
      route('GET', `${one}/what-if`, read, kind.whatIf),
      route('PUT', `${one}/candidate`, write, kind.setCandidate),
      route('GET', `${one}/candidate`, read, kind.getCandidate),
      route('DELETE', `${one}/candidate`, read, kind.removeCandidate),
      route('POST', `${one}/candidate/promote`, read, kind.promoteCandidate),
    ]
  })
  const all = Object.entries({ agents, users, workloads, operators }).flatMap(([plural, kind]) => {
    const one = `/v1/admin/${plural}/{id}`
    return [
      route('GET', one, read, kind.get),
      route('DELETE', one, read, kind.deactivate),
      route('POST', `${one}/reactivate`, read, kind.reactivate),
      route('PATCH', `${one}/capabilities`, write, kind.setCapabilities),
      route('PUT', `${one}/labels`, write, kind.setLabels),
      route('POST', `${one}/dpop-jwk`, write, kind.setDpopKey),
      route('DELETE', `${one}/dpop-jwk/{jkt}`, read, kind.endDpopKey),
      route('POST', `${one}/certificate`, write, kind.certify),
      route('POST', `${one}/rotate-cert`, write, kind.rotateCertificate),
      route('GET', `${one}/certificates`, read, kind.listCertificates),
      route('DELETE', `${one}/certificates/{thumbprint}`, read, kind.endCertificate),
    ]
  })
  return [
    route('POST', '/v1/admin/agents', write, agents.create),
    route('GET', '/v1/admin/agents', read, agents.list),
    route('POST', '/v1/admin/users', write, users.create),
    route('GET', '/v1/admin/users', read, users.list),
    route('GET', '/v1/admin/users/{id}/grants', read, users.grants),
    route('DELETE', '/v1/admin/grants/{id}', read, grants.end),
    route('POST', '/v1/admin/grants/end', write, grants.endSome),
    route('GET', '/v1/admin/accounts', read, accounts.list),
    route('DELETE', '/v1/admin/accounts/{id}', read, accounts.end),
    route('POST', '/v1/admin/workloads', write, workloads.create),
    route('GET', '/v1/admin/workloads', read, workloads.list),
    route('POST', '/v1/admin/operators', write, operators.create),
    route('GET', '/v1/admin/operators', read, operators.list),
    route('POST', '/v1/admin/operators/{id}/invitation', read, operators.invite),
    ...callers,
    ...all,
    route('GET', '/v1/admin/labels', read, labels.list),
    route('GET', '/v1/admin/sets', read, sets.list),
    route('GET', '/v1/admin/sets/{name}', read, sets.get),
    route('PUT', '/v1/admin/sets/{name}', write, sets.put),
    route('DELETE', '/v1/admin/sets/{name}', read, sets.delete),
  ]
}

function stopRoutes({ route, read, write }: AdminDoors): readonly BareRoute[] {
  const { stops } = OPERATIONS
  return [
    route('GET', '/v1/admin/stops', read, stops.list),
    route('POST', '/v1/admin/stops', write, stops.begin),
    route('POST', '/v1/admin/stops/{id}/end', write, stops.end),
  ]
}

function limitRoutes({ route, read, write }: AdminDoors): readonly BareRoute[] {
  const { limits } = OPERATIONS
  const one = '/v1/admin/limits/{id}'
  return [
    route('GET', '/v1/admin/limits', read, limits.list),
    route('POST', '/v1/admin/limits', write, limits.create),
    route('GET', one, read, limits.get),
    route('PATCH', one, write, limits.change),
    route('DELETE', one, read, limits.remove),
    route('POST', `${one}/override`, write, limits.override),
    route('DELETE', `${one}/override`, read, limits.endOverride),
    route('GET', `${one}/usage`, read, limits.usage),
  ]
}

function mcpResourceRoutes({ route, read, write }: AdminDoors): readonly BareRoute[] {
  const { mcpResources, mcpBindings, providers } = OPERATIONS
  const resources = '/v1/admin/mcp-resources'
  const bindings = `${resources}/bindings`
  const one = `${resources}/{resource_id}`
  return [
    route('POST', resources, write, mcpResources.create),
    route('GET', resources, read, mcpResources.list),
    // Before those with a resource's id, which these would be taken for.
    route('POST', bindings, write, mcpBindings.create),
    route('GET', bindings, read, mcpBindings.list),
    route('GET', `${bindings}/{binding_id}`, read, mcpBindings.get),
    route('DELETE', `${bindings}/{binding_id}`, read, mcpBindings.revoke),
    route('GET', '/v1/admin/providers', read, providers.list),
    route('POST', '/v1/admin/providers/{name}/try', read, providers.try),
    route('GET', one, read, mcpResources.get),
    route('PATCH', one, write, mcpResources.update),
    route('DELETE', one, read, mcpResources.delete),
    route('POST', `${one}/refresh`, read, mcpResources.refresh),
    route('POST', `${one}/tools/{tool}/approve`, write, mcpResources.approveTool),
    route('POST', `${one}/tools/{tool}/reject`, write, mcpResources.rejectTool),
    route('POST', `${one}/server/approve`, write, mcpResources.approveIntroduction),
  ]
}

function enrollmentRoutes({ route, read, write }: AdminDoors): readonly BareRoute[] {
  const { agents, capabilities } = OPERATIONS
  const trusted = '/v1/admin/agents/{id}/trusted-cas'
  return [
    route('GET', '/v1/admin/capabilities', read, capabilities.list),
    route('POST', '/v1/admin/agents/enroll/byoca', write, agents.enrollByoca),
    route('POST', '/v1/admin/agents/enroll/spiffe', write, agents.enrollSpiffe),
    route('POST', '/v1/admin/agents/trusted-cas', write, agents.trustCaAs),
    route('GET', trusted, read, agents.listTrustedCas),
    route('POST', trusted, write, agents.trustCa),
    route('DELETE', `${trusted}/{digest}`, read, agents.distrustCa),
    route('PUT', '/v1/admin/agents/{id}/trust-bundle', write, agents.replaceTrustBundle),
    route('DELETE', '/v1/admin/agents/{id}/trust-bundle/previous', read, agents.endPreviousBundles),
    route('PUT', '/v1/admin/agents/{id}/certificate', write, agents.putRenewedLeaf),
  ]
}

function authorityRoutes({ route, read, write }: AdminDoors): readonly BareRoute[] {
  const { cas, caRotation, organisation, keys, secret } = OPERATIONS
  const rotation = '/v1/admin/ca/rotation'
  return [
    route('POST', '/v1/admin/ca/attach', write, cas.attach),
    route('GET', '/v1/admin/ca', read, cas.list),
    route('GET', '/v1/admin/ca/organisation', read, organisation.show),
    route('PUT', '/v1/admin/ca/organisation', write, organisation.set),
    route('GET', rotation, read, caRotation.show),
    route('POST', `${rotation}/prepare`, write, caRotation.prepare),
    route('POST', `${rotation}/issue`, read, caRotation.issue),
    route('POST', `${rotation}/finish`, read, caRotation.finish),
    route('POST', `${rotation}/cancel`, read, caRotation.cancel),
    route('DELETE', '/v1/admin/ca/{digest}', read, cas.detach),
    route('POST', '/v1/admin/signing-key/rotate', read, keys.rotateSigningKey),
    route('POST', '/v1/admin/audit-key/rotate', read, keys.rotateAuditKey),
    route('GET', '/v1/admin/secret', read, secret.show),
    route('POST', '/v1/admin/secret/rotate', write, secret.rotate),
    route('POST', '/v1/admin/secret/disable', read, secret.disable),
    route('POST', '/v1/admin/secret/enable', read, secret.enable),
  ]
}

function changeRoutes({ route, read, write }: AdminDoors): readonly BareRoute[] {
  const { approvals, proposals, rehearsals, sessions } = OPERATIONS
  return [
    route('GET', '/v1/admin/approvals', read, approvals.list),
    route('GET', '/v1/admin/approvals/{id}', read, approvals.get),
    route('POST', '/v1/admin/approvals/{id}/approve', write, approvals.approve),
    route('POST', '/v1/admin/approvals/{id}/decline', write, approvals.decline),
    route('GET', '/v1/admin/proposals', read, proposals.list),
    route('GET', '/v1/admin/proposals/{id}', read, proposals.get),
    route('POST', '/v1/admin/proposals/{id}/confirm', read, proposals.confirm),
    route('POST', '/v1/admin/proposals/{id}/decline', read, proposals.decline),
    route('POST', '/v1/admin/rehearsals', write, rehearsals.create, rehearsals.createInLines),
    route('GET', '/v1/admin/rehearsals/{id}', read, rehearsals.get),
    route('GET', '/v1/admin/session', read, sessions.show),
    route('GET', '/v1/admin/sessions', read, sessions.list),
    route('DELETE', '/v1/admin/sessions/{id}', read, sessions.end),
  ]
}

function auditRoutes({ route, read, write }: AdminDoors): readonly BareRoute[] {
  const { audit, archive, exports, costs, prices } = OPERATIONS
  const file = '/v1/admin/archive/{file}'
  return [
    route('GET', '/v1/admin/audit', read, audit.list),
    route('GET', '/v1/admin/log', read, audit.log),
    route('GET', '/v1/admin/audit/export', read, audit.export),
    route('POST', '/v1/admin/audit/verify', read, audit.verify, audit.verifyInLines),
    route('GET', '/v1/admin/audit/evidence', read, audit.evidence),
    route('POST', '/v1/admin/audit/reviewed', write, audit.reviewed),
    route('GET', '/v1/admin/costs', read, costs.list, costs.listAsCsv),
    route('GET', '/v1/admin/prices', read, prices.find),
    route('GET', '/v1/admin/exports', read, exports.list),
    route('POST', '/v1/admin/exports/{sink}/rewind', write, exports.rewind),
    route('GET', '/v1/admin/archive', read, archive.show),
    route('POST', '/v1/admin/archive', write, archive.run),
    route('POST', `${file}/confirm`, write, archive.confirm),
    route('POST', `${file}/forget`, write, archive.forget),
    route('POST', `${file}/restore`, read, archive.restore),
  ]
}
