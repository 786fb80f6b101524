import type { RouteRecorders } from '../../plugins/audit/audit.ts'
import type { AdminCapability } from '../../plugins/operators/capabilities.ts'
import type { AdministrationFacts } from '../../plugins/operators/operator.ts'
import type { Arrival, Pipeline } from '../../plugins/plugin.ts'
import { deferCard } from '../admin/audit/attention.ts'
import { OPERATIONS } from '../admin/http/operations.ts'
import type { InputSchemas, Operation } from '../admin/operation/operation.ts'
import type { Reply } from '../http/reply.ts'
import { type BareRoute, gatedRoute, openRoute } from '../http/route.ts'
import type { SubmittedForm } from '../operators/pages/form.ts'
import { refusalPage, seeOther } from '../operators/pages/page.ts'
import { activityPage, liveActivity } from './activity/activity.ts'
import { whyPage } from './activity/why.ts'
import { approvalForms, approvalPage, approvalsPage } from './approvals/approvals.ts'
import { attentionCounter, attentionPage, notNowHandler, proposalForms } from './attention/attention.ts'
import { capabilitiesJson, capabilitiesPage, setForms, setsPage } from './capabilities/capabilities.ts'
import { costsPage } from './costs/costs.ts'
import { type FormSubmission, formHandler } from './frame/acting.ts'
import type { DashboardContext } from './frame/dashboard.ts'
import { ASSET_ROUTE, type DashboardPage, pageHandler, refusedPage, serveAsset } from './frame/frame.ts'
import { refusedOnItsForm } from './frame/on-its-form.ts'
import { pathOf } from './frame/parts.ts'
import { limitForms, limitPage } from './limits/limit.ts'
import { createLimitForm, limitsPage } from './limits/limits.ts'
import { pkiForms, pkiPage, rotationForms } from './pki/pki.ts'
import { connectForm, connectForPrincipalPage, endAccountForm } from './principals/accounts.ts'
import { changeFoundForm, labelsForm } from './principals/bulk.ts'
import { candidatePage } from './principals/candidate.ts'
import { candidateForms, setCapabilitiesForm } from './principals/capabilities-form.ts'
import { detailPage, firstCallPage } from './principals/detail.ts'
import { adoptKeyForm, endingForms } from './principals/ending.ts'
import { enrollForm, rotateCertificateForm } from './principals/enroll.ts'
import { eraseForm, erasePage } from './principals/erase.ts'
import { endGrantForm } from './principals/grants.ts'
import { acceptForm, invitedPage, inviteForm } from './principals/invited.ts'
import { PRINCIPAL_PAGES, type PrincipalPlural } from './principals/kinds.ts'
import { listPage } from './principals/list.ts'
import { trustedCasForms } from './principals/trusted-cas.ts'
import { usagePage } from './principals/usage.ts'
import { whatIfPage } from './principals/what-if.ts'
import { archiveForms, archivePage } from './proof/archive.ts'
import { exportsPage } from './proof/exports.ts'
import { evidenceForm, proofPage, reviewedForm, verifyForm } from './proof/proof.ts'
import { providersPage, tryForm } from './providers/providers.ts'
import { modesForm, rotateForm, settingsForms, settingsPage } from './settings/settings.ts'
import { organisationForm, organisationPage } from './setup/organisation.ts'
import {
  FIRST_AGENT,
  firstAgentForm,
  firstAgentPage,
  setupForm,
  setupPage,
  setupRefused,
} from './setup/step.ts'
import { stopForms, stopsPage } from './stops/stops.ts'
import { toolPage } from './tools/tool.ts'
import { toolForms, toolsPage } from './tools/tools.ts'

/** Connecting an account for an agent lets it do what the account may. */
const CONNECTING = { action: 'upstream_account.connected', demands: 'admin.enroll' } as const

type OperationDemand = Pick<Operation<InputSchemas, unknown>, 'action' | 'demands'>

interface DashboardPipelines {
  readonly anyone: Pipeline<Arrival>
  /** The first page of all and its form, while no secret is stored. */
  readonly setup: Pipeline<Arrival>
  readonly setUp: Pipeline<Arrival & SubmittedForm>
  readonly accept: Pipeline<Arrival & SubmittedForm>
  readonly page: (asked: OperationDemand) => Pipeline<AdministrationFacts>
  readonly form: (asked: OperationDemand) => Pipeline<FormSubmission>
}

/** Makes the pages of the dashboard and their forms (docs/dashboard.md), each by an operation of the API. */
export function dashboardRoutes(
  pipelines: DashboardPipelines,
  uncounted: DashboardContext,
  recorders: RouteRecorders,
): readonly BareRoute[] {
  const dashboard = { ...uncounted, countAttention: attentionCounter(uncounted) }
  const doors = dashboardDoors(pipelines, dashboard, recorders)
  return [
    ...openRoutes(pipelines, dashboard, recorders),
    ...firstStepRoutes(doors, dashboard),
    ...activityRoutes(doors, dashboard),
    ...principalPageRoutes(doors, dashboard),
    ...toolRoutes(doors, dashboard),
    ...limitRoutes(doors, dashboard),
    ...stopRoutes(doors, dashboard),
    ...pkiRoutes(doors, dashboard),
    ...ledgerRoutes(doors, dashboard),
    ...settingsRoutes(doors, dashboard),
  ]
}

type DashboardHandler = (facts: AdministrationFacts) => Reply | Promise<Reply>

interface DashboardDoors {
  readonly page: (path: string, demands: AdminCapability, page: DashboardPage) => BareRoute
  readonly rendered: (path: string, demands: AdminCapability, handler: DashboardHandler) => BareRoute
  readonly fetched: (path: string, demands: AdminCapability, handler: DashboardHandler) => BareRoute
  readonly form: (
    path: string,
    asked: OperationDemand,
    handler: (facts: FormSubmission) => Promise<Reply>,
  ) => BareRoute
}

function dashboardDoors(
  { page: pageFor, form: formFor }: DashboardPipelines,
  dashboard: DashboardContext,
  { operators: recorder }: RouteRecorders,
): DashboardDoors {
  const refuse = refusedPage
  const reading = (demands: AdminCapability) => pageFor({ action: 'admin.read', demands })
  const pages = new Map<string, DashboardPage | null>()
  const answered: DashboardDoors['rendered'] = (path, demands, handler) =>
    gatedRoute('GET', path, { pipeline: reading(demands), recorder, refuse }, handler)
  return {
    page: (path, demands, page) => {
      pages.set(path, page)
      return answered(path, demands, pageHandler(page, dashboard))
    },
    rendered: (path, demands, handler) => {
      pages.set(path, null)
      return answered(path, demands, handler)
    },
    fetched: (path, demands, handler) =>
      gatedRoute('GET', path, { pipeline: reading(demands), recorder }, handler),
    form: (path, asked, handler) => {
      const shown = refusedOnItsForm(dashboard, () => pageOf(pages, path), handler)
      return gatedRoute('POST', path, { pipeline: formFor(asked), recorder, refuse }, shown)
    },
  }
}

/** The page of a form: the one of the longest path that its own begins with. Null: the form shows itself. */
function pageOf(pages: ReadonlyMap<string, DashboardPage | null>, path: string): DashboardPage | null {
  const above = [...pages.keys()].filter((place) => path === place || path.startsWith(`${place}/`))
  return pages.get(above.reduce((one, other) => (other.length > one.length ? other : one), '')) ?? null
}

function openRoutes(
  { anyone, setup, setUp, accept }: DashboardPipelines,
  dashboard: DashboardContext,
  { anonymous }: RouteRecorders,
): readonly BareRoute[] {
  return [
    openRoute('GET', ASSET_ROUTE, anyone, serveAsset),
    openRoute('GET', '/proxy/', anyone, () => seeOther('/proxy')),
    openRoute('GET', '/proxy/setup', setup, setupPage(dashboard), anonymous, setupRefused),
    openRoute('POST', '/proxy/setup', setUp, setupForm(dashboard), anonymous, setupRefused),
    openRoute('GET', '/proxy/invited', anyone, invitedPage(dashboard), anonymous, refusalPage),
    openRoute('POST', '/proxy/invited', accept, acceptForm(dashboard), anonymous, refusalPage),
  ]
}

const ORGANISATION = '/proxy/setup/organisation'

function firstStepRoutes({ rendered, form }: DashboardDoors, d: DashboardContext): readonly BareRoute[] {
  const { agents, organisation } = OPERATIONS
  return [
    rendered(ORGANISATION, organisation.set.demands, organisationPage(d)),
    form(ORGANISATION, organisation.set, organisationForm(d)),
    rendered(FIRST_AGENT, 'admin.enroll', firstAgentPage(d)),
    form(FIRST_AGENT, agents.create, firstAgentForm(d)),
  ]
}

function activityRoutes({ page, fetched, form }: DashboardDoors, d: DashboardContext): readonly BareRoute[] {
  const { approvals, proposals } = OPERATIONS
  const people = proposalForms(d)
  const calls = approvalForms(d)
  return [
    page('/proxy', 'admin.read', attentionPage),
    page('/proxy/approvals', 'admin.read', approvalsPage),
    page('/proxy/approvals/{id}', 'admin.read', approvalPage),
    form('/proxy/approvals/{id}/approve', approvals.approve, calls.approve),
    form('/proxy/approvals/{id}/decline', approvals.decline, calls.decline),
    form('/proxy/proposals/{id}/confirm', proposals.confirm, people.confirm),
    form('/proxy/proposals/{id}/decline', proposals.decline, people.decline),
    form('/proxy/attention/not-now', deferCard, notNowHandler(d)),
    page('/proxy/activity', 'admin.audit', activityPage),
    // Before the page of a request, whose id it would be taken for.
    fetched('/proxy/activity/live', 'admin.audit', liveActivity(d)),
    page('/proxy/activity/{request_id}', 'admin.audit', whyPage),
  ]
}

const CALLERS = ['agents', 'users', 'workloads'] as const
const EVERYBODY = [...CALLERS, 'operators'] as const

function principalPageRoutes(doors: DashboardDoors, d: DashboardContext): readonly BareRoute[] {
  const { page, form } = doors
  const { agents, operators } = OPERATIONS
  const trust = trustedCasForms(d)
  return [
    ...EVERYBODY.flatMap((plural) => kindRoutes(plural, doors, d)),
    ...CALLERS.flatMap((plural) => callerRoutes(plural, doors, d)),
    form('/proxy/operators/{id}/invitation', operators.invite, inviteForm(d)),
    form('/proxy/agents/{id}/trusted-cas', agents.trustCa, trust.trust),
    form('/proxy/agents/{id}/trusted-cas/{digest}/withdraw', agents.distrustCa, trust.distrust),
    form('/proxy/agents/{id}/trust-bundle', agents.replaceTrustBundle, trust.bundle),
    form('/proxy/agents/{id}/trust-bundle/end', agents.endPreviousBundles, trust.endPrevious),
    form('/proxy/agents/{id}/certificate', agents.putRenewedLeaf, trust.leaf),
    page('/proxy/agents/{id}/first-call', 'admin.audit', firstCallPage),
  ]
}

function kindRoutes(plural: PrincipalPlural, { page, form }: DashboardDoors, d: DashboardContext) {
  const { operations } = PRINCIPAL_PAGES[plural]
  const { deactivate, reactivate, endCertificate, endDpopKey } = operations
  const [list, one] = [`/proxy/${plural}`, `/proxy/${plural}/{id}`]
  const to = ({ params }: FormSubmission) => pathOf(plural, params.id ?? '')
  const ending = endingForms(plural, d)
  return [
    page(list, 'admin.read', listPage(plural)),
    form(list, operations.create, enrollForm(plural, d)),
    page(one, 'admin.read', detailPage(plural)),
    form(`${one}/labels`, operations.setLabels, labelsForm(plural, d)),
    form(`${one}/capabilities`, operations.setCapabilitiesInForm, setCapabilitiesForm(plural, d)),
    form(`${one}/rotate-cert`, operations.rotateCertificate, rotateCertificateForm(plural, d)),
    form(`${one}/certificates/{thumbprint}/end`, endCertificate, ending.certificate),
    form(`${one}/dpop-jwk/{jkt}/end`, endDpopKey, ending.key),
    form(`${one}/deactivate`, deactivate, ending.deactivate),
    form(`${one}/reactivate`, reactivate, formHandler(d, reactivate, { to, notice: 'reactivated' })),
  ]
}

function callerRoutes(
  plural: (typeof CALLERS)[number],
  { page, form }: DashboardDoors,
  d: DashboardContext,
): readonly BareRoute[] {
  const { operations } = PRINCIPAL_PAGES[plural]
  const one = `/proxy/${plural}/{id}`
  const candidate = candidateForms(plural, d)
  return [
    form(`/proxy/${plural}/capabilities`, operations.changeFound, changeFoundForm(plural, d)),
    page(`${one}/usage`, 'admin.read', usagePage(plural)),
    page(`${one}/what-if`, 'admin.read', whatIfPage(plural)),
    page(`${one}/candidate`, 'admin.read', candidatePage(plural)),
    form(`${one}/dpop-jwk/{jkt}/adopt`, operations.adoptDpopKey, adoptKeyForm(plural, d)),
    form(`${one}/accounts/{account}/end`, OPERATIONS.accounts.end, endAccountForm(plural, d)),
    ...(plural === 'users'
      ? [form(`${one}/grants/{grant}/end`, OPERATIONS.grants.end, endGrantForm(d))]
      : []),
    form(`${one}/candidate`, operations.setCandidate, candidate.set),
    form(`${one}/candidate/promote`, operations.promoteCandidate, candidate.promote),
    form(`${one}/candidate/remove`, operations.removeCandidate, candidate.remove),
    page(`${one}/erase`, 'admin.read', erasePage(plural)),
    form(`${one}/erase`, operations.erase, eraseForm(plural, d)),
  ]
}

function toolRoutes({ page, fetched, form }: DashboardDoors, d: DashboardContext): readonly BareRoute[] {
  const { mcpResources, mcpBindings, providers, sets } = OPERATIONS
  const named = setForms(d)
  const tools = toolForms(d)
  const server = '/proxy/tools/{resource}'
  return [
    page('/proxy/connect/{id}', CONNECTING.demands, connectForPrincipalPage),
    form('/proxy/connect/{id}', CONNECTING, connectForm(d)),
    page('/proxy/tools', 'admin.read', toolsPage),
    form('/proxy/tools', mcpResources.create, tools.register),
    form(`${server}/enable`, mcpResources.update, tools.enable),
    form(`${server}/disable`, mcpResources.update, tools.disable),
    page(server, 'admin.read', toolPage),
    form(`${server}/refresh`, mcpResources.refresh, tools.refresh),
    form(`${server}/address`, mcpResources.update, tools.address),
    form(`${server}/approval`, mcpResources.update, tools.approval),
    form(`${server}/proof`, mcpResources.update, tools.proof),
    form(`${server}/remove`, mcpResources.delete, tools.remove),
    form(`${server}/tools/{tool}/approve`, mcpResources.approveTool, tools.approve),
    form(`${server}/tools/{tool}/reject`, mcpResources.rejectTool, tools.reject),
    form(`${server}/approve`, mcpResources.approveIntroduction, tools.approveIntroduction),
    form(`${server}/bindings`, mcpBindings.create, tools.bind),
    form(`${server}/bindings/{binding_id}/revoke`, mcpBindings.revoke, tools.revoke),
    page('/proxy/providers', 'admin.read', providersPage),
    form('/proxy/providers/{name}/try', providers.try, tryForm(d)),
    page('/proxy/costs', 'admin.audit', costsPage),
    page('/proxy/capabilities', 'admin.read', capabilitiesPage),
    page('/proxy/capabilities/sets', 'admin.read', setsPage),
    form('/proxy/capabilities/sets', sets.put, named.put),
    form('/proxy/capabilities/sets/{name}/delete', sets.delete, named.delete),
    fetched('/proxy/capabilities.json', 'admin.read', capabilitiesJson(d)),
  ]
}

function limitRoutes({ page, form }: DashboardDoors, d: DashboardContext): readonly BareRoute[] {
  const { limits } = OPERATIONS
  const [all, one] = ['/proxy/limits', '/proxy/limits/{id}']
  const forms = limitForms(d)
  return [
    page(all, 'admin.read', limitsPage),
    form(all, limits.create, createLimitForm(d)),
    page(one, 'admin.read', limitPage),
    form(`${one}/amount`, limits.change, forms.amount),
    form(`${one}/override`, limits.override, forms.override),
    form(`${one}/end-override`, limits.endOverride, forms.endOverride),
    form(`${one}/remove`, limits.remove, forms.remove),
  ]
}

function stopRoutes({ page, form }: DashboardDoors, d: DashboardContext): readonly BareRoute[] {
  const { stops } = OPERATIONS
  const forms = stopForms(d)
  return [
    page('/proxy/stops', 'admin.read', stopsPage),
    form('/proxy/stops', stops.begin, forms.begin),
    form('/proxy/stops/{id}/end', stops.end, forms.end),
  ]
}

function pkiRoutes({ page, form }: DashboardDoors, d: DashboardContext): readonly BareRoute[] {
  const { agents, cas, caRotation } = OPERATIONS
  const pki = pkiForms(d)
  const rotation = rotationForms(d)
  return [
    page('/proxy/pki', 'admin.read', pkiPage),
    form('/proxy/pki', cas.attach, pki.attach),
    form('/proxy/pki/rotation/prepare', caRotation.prepare, rotation.prepare),
    form('/proxy/pki/rotation/issue', caRotation.issue, rotation.issue),
    form('/proxy/pki/rotation/finish', caRotation.finish, rotation.finish),
    form('/proxy/pki/rotation/cancel', caRotation.cancel, rotation.cancel),
    form('/proxy/pki/{digest}/detach', cas.detach, pki.detach),
    form('/proxy/pki/{digest}/vouch', agents.trustCaAs, pki.vouch),
  ]
}

function ledgerRoutes({ page, rendered, form }: DashboardDoors, d: DashboardContext): readonly BareRoute[] {
  const { audit, archive } = OPERATIONS
  const file = '/proxy/archive/{file}'
  const forms = archiveForms(d)
  return [
    page('/proxy/proof', 'admin.read', proofPage),
    rendered('/proxy/proof/evidence', audit.evidence.demands, evidenceForm(d)),
    form('/proxy/proof/verify', audit.verify, verifyForm(d)),
    form('/proxy/proof/reviewed', audit.reviewed, reviewedForm(d)),
    page('/proxy/archive', 'admin.read', archivePage),
    page('/proxy/exports', 'admin.read', exportsPage),
    form('/proxy/archive', archive.run, forms.run),
    form(`${file}/confirm`, archive.confirm, forms.confirm),
    form(`${file}/forget`, archive.forget, forms.forget),
    form(`${file}/restore`, archive.restore, forms.restore),
  ]
}

function settingsRoutes({ page, form }: DashboardDoors, d: DashboardContext): readonly BareRoute[] {
  const { secret, rehearsals, sessions } = OPERATIONS
  const settings = settingsForms(d)
  return [
    page('/proxy/settings', 'admin.read', settingsPage),
    form('/proxy/settings/secret', secret.rotate, rotateForm(d)),
    form('/proxy/settings/modes', rehearsals.create, modesForm(d)),
    form('/proxy/settings/secret/disable', secret.disable, settings.disable),
    form('/proxy/settings/sessions/{id}/end', sessions.end, settings.end),
  ]
}
