import { approveCall, declineCall, getApproval, listAllApprovals } from '../approvals/operations.ts'
import { confirmSegment, forgetSegment, restoreSegment, runArchive, showArchive } from '../audit/archive.ts'
import { exportAudit, listAudit, showHead, verifyAudit, verifyAuditWithProgress } from '../audit/audit.ts'
import { packEvidence, reviewAudit, showLog } from '../audit/evidence.ts'
import { listExports, rewindExport } from '../audit/exports.ts'
import * as rotation from '../authority/rotation.ts'
import { listCosts, listCostsAsCsv } from '../costs/costs.ts'
import { findPrices } from '../costs/prices.ts'
import { attachCas, detachCaByDigest, listCas } from '../keys/cas.ts'
import { setOrganisation, showOrganisation } from '../keys/organisation.ts'
import { disableSecret, enableSecretAgain, rotateSecret, showSecret } from '../keys/secret.ts'
import { rotateAuditKey, rotateTokenSigningKey } from '../keys/signing-key.ts'
import {
  changeLimit,
  createLimit,
  endLimitOverride,
  getLimit,
  listAllLimits,
  overrideLimit,
  removeLimit,
} from '../limits/limits.ts'
import { showLimitUsage } from '../limits/usage.ts'
import { endAccount, listAccountsOf } from '../mcp/accounts.ts'
import { bindPrincipal, getBinding, listBindings, revokeBinding } from '../mcp/bindings.ts'
import * as resources from '../mcp/resources.ts'
import { approveIntroduction, approveTool, rejectTool } from '../mcp/tools.ts'
import { AGENT, OPERATOR, type PrincipalKind, USER, WORKLOAD } from '../operation/kinds.ts'
import type { InputSchemas, Operation } from '../operation/operation.ts'
import { endAdminSession, listAdminSessions, showSession } from '../operators/sessions.ts'
import { listCapabilities, patchCapabilities, setCapabilitiesInForm } from '../principals/capabilities.ts'
import * as certificates from '../principals/certificates.ts'
import { adoptDpopKey, endDpopKey, listProofKeys, registerDpopJwk } from '../principals/dpop-jwk.ts'
import { enrollByocaAgent, enrollSpiffeAgent, mintAgent } from '../principals/enroll.ts'
import { endGrant, endGrants, listUserGrants } from '../principals/grants.ts'
import { inviteOperator } from '../principals/invitation.ts'
import { listAgents, listPrincipalsOf } from '../principals/list.ts'
import { createPrincipal, deactivate, erase, getPrincipal, reactivate } from '../principals/principals.ts'
import * as trust from '../principals/trusted-cas.ts'
import { whatIf } from '../principals/what-if.ts'
import { proposalOperations } from '../proposals/operations.ts'
import { listProviders, tryProvider } from '../providers/providers.ts'
import { deleteCandidate, getCandidate, promoteCandidate, putCandidate } from '../rehearsals/candidates.ts'
import { getRehearsal, rehearse, rehearseWithProgress } from '../rehearsals/operations.ts'
import { getCapabilityUsage } from '../rehearsals/usage.ts'
import { changeFound } from '../sets/bulk.ts'
import { listLabels, putLabels } from '../sets/labels.ts'
import { deleteSet, getSet, listSets, putSet } from '../sets/sets.ts'
import { beginStop, endStop, listOpenStops } from '../stops/stops.ts'

/** The operations on principals of every type, enrollment and erasure aside. */
const principalOperations = (kind: PrincipalKind) => ({
  get: getPrincipal(kind),
  deactivate: deactivate(kind),
  reactivate: reactivate(kind),
  setCapabilities: patchCapabilities(kind),
  setCapabilitiesInForm: setCapabilitiesInForm(kind),
  setDpopKey: registerDpopJwk(kind),
  endDpopKey: endDpopKey(kind),
  setLabels: putLabels(kind),
  certify: certificates.certifyRequest(kind),
  rotateCertificate: certificates.rotateCertificate(kind),
  listCertificates: certificates.listCertificates(kind),
  endCertificate: certificates.endCertificate(kind),
})

const callerOperations = (kind: PrincipalKind) => ({
  ...principalOperations(kind),
  erase: erase(kind),
  listProofKeys: listProofKeys(kind),
  adoptDpopKey: adoptDpopKey(kind),
  whatIf: whatIf(kind),
  usage: getCapabilityUsage(kind),
  changeFound: changeFound(kind),
  setCandidate: putCandidate(kind),
  getCandidate: getCandidate(kind),
  removeCandidate: deleteCandidate(kind),
  promoteCandidate: promoteCandidate(kind),
})

/** Operations that may be proposed: all but those on proposals. */
const DIRECT = {
  agents: {
    ...callerOperations(AGENT),
    list: listAgents,
    create: mintAgent,
    enrollByoca: enrollByocaAgent,
    enrollSpiffe: enrollSpiffeAgent,
    putRenewedLeaf: certificates.putRenewedLeaf,
    listTrustedCas: trust.listTrustedCas,
    trustCa: trust.trustCaForAgent,
    trustCaAs: trust.trustReplacementCa,
    distrustCa: trust.distrustCaForAgent,
    replaceTrustBundle: trust.replaceTrustBundle,
    endPreviousBundles: trust.endPreviousBundles,
  },
  users: {
    ...callerOperations(USER),
    list: listPrincipalsOf(USER),
    create: createPrincipal(USER),
    grants: listUserGrants,
  },
  grants: { end: endGrant, endSome: endGrants },
  accounts: { list: listAccountsOf, end: endAccount },
  workloads: {
    ...callerOperations(WORKLOAD),
    list: listPrincipalsOf(WORKLOAD),
    create: createPrincipal(WORKLOAD),
  },
  operators: {
    ...principalOperations(OPERATOR),
    list: listPrincipalsOf(OPERATOR),
    create: createPrincipal(OPERATOR),
    invite: inviteOperator,
  },
  capabilities: { list: listCapabilities },
  sets: { list: listSets, get: getSet, put: putSet, delete: deleteSet },
  labels: { list: listLabels },
  limits: {
    list: listAllLimits,
    get: getLimit,
    create: createLimit,
    change: changeLimit,
    remove: removeLimit,
    override: overrideLimit,
    endOverride: endLimitOverride,
    usage: showLimitUsage,
  },
  stops: { list: listOpenStops, begin: beginStop, end: endStop },
  mcpResources: {
    create: resources.createMcpResource,
    list: resources.listAllMcpResources,
    get: resources.getMcpResource,
    update: resources.patchMcpResource,
    delete: resources.removeMcpResource,
    refresh: resources.refreshMcpResource,
    approveTool,
    rejectTool,
    approveIntroduction,
  },
  mcpBindings: { create: bindPrincipal, list: listBindings, get: getBinding, revoke: revokeBinding },
  providers: { list: listProviders, try: tryProvider },
  costs: { list: listCosts, listAsCsv: listCostsAsCsv },
  prices: { find: findPrices },
  cas: { attach: attachCas, list: listCas, detach: detachCaByDigest },
  caRotation: {
    show: rotation.showRotation,
    prepare: rotation.prepareCa,
    issue: rotation.issueByNextCa,
    finish: rotation.finishRotation,
    cancel: rotation.cancelRotation,
  },
  keys: { rotateSigningKey: rotateTokenSigningKey, rotateAuditKey },
  organisation: { show: showOrganisation, set: setOrganisation },
  secret: { show: showSecret, rotate: rotateSecret, disable: disableSecret, enable: enableSecretAgain },
  rehearsals: { create: rehearse, createInLines: rehearseWithProgress, get: getRehearsal },
  sessions: { show: showSession, list: listAdminSessions, end: endAdminSession },
  audit: {
    list: listAudit,
    head: showHead,
    log: showLog,
    export: exportAudit,
    evidence: packEvidence,
    reviewed: reviewAudit,
    verify: verifyAudit,
    verifyInLines: verifyAuditWithProgress,
  },
  exports: { list: listExports, rewind: rewindExport },
  archive: {
    show: showArchive,
    run: runArchive,
    confirm: confirmSegment,
    forget: forgetSegment,
    restore: restoreSegment,
  },
} as const

// Each is found again by its name, with an input that its own schemas parse.
const all = Object.values(DIRECT).flatMap((kind) => Object.values(kind)) as unknown as readonly Operation<
  InputSchemas,
  unknown
>[]

/** The operations of administration by the kind of their object, the first operator secret aside. */
export const OPERATIONS = {
  ...DIRECT,
  proposals: proposalOperations(all),
  approvals: { list: listAllApprovals, get: getApproval, approve: approveCall, decline: declineCall },
} as const
