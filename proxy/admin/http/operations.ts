import { exportAudit, listAudit, showHead, verifyAudit, verifyAuditInLines } from '../audit/audit.ts'
import { packEvidence, reviewAudit } from '../audit/evidence.ts'
import { showLog } from '../audit/log.ts'
import { rotateAuditKey } from '../keys/audit-key.ts'
import { attachCas, detach, listCas } from '../keys/cas.ts'
import { setOrganisation, showOrganisation } from '../keys/organisation.ts'
import { disableSecret, enableSecretAgain, rotateSecret, showSecret } from '../keys/secret.ts'
import { rotateSigningKey } from '../keys/signing-key.ts'
import { bindPrincipal, getBinding, listBindings, revokeBinding } from '../mcp/bindings.ts'
import { approveIntroduction } from '../mcp/introduction.ts'
import {
  createMcpResource,
  getMcpResource,
  listAllMcpResources,
  patchMcpResource,
  refreshMcpResource,
  removeMcpResource,
} from '../mcp/resources.ts'
import { approveTool } from '../mcp/tools.ts'
import { AGENT, type Kind, OPERATOR, USER, WORKLOAD } from '../operation/kinds.ts'
import type { Operation, Takes } from '../operation/operation.ts'
import { endSession, listSessions, showSession } from '../operators/sessions.ts'
import { listCapabilities } from '../principals/capabilities.ts'
import { certifyRequest, rotateCertificate } from '../principals/certificates.ts'
import { registerDpopJwk } from '../principals/dpop-jwk.ts'
import { enrollByoca, enrollSpiffe, mintAgent } from '../principals/enroll.ts'
import { erase } from '../principals/erase.ts'
import { listAgents, listPrincipalsOf } from '../principals/list.ts'
import { createPrincipal, deactivate, getOne, reactivate } from '../principals/principals.ts'
import { patchCapabilities, setCapabilitiesInForm } from '../principals/set-capabilities.ts'
import { distrustForAgent, listTrustedCas, trustAs, trustForAgent } from '../principals/trusted-cas.ts'
import { proposalOperations } from '../proposals/operations.ts'
import { deleteCandidate, getCandidate, promoteCandidate, putCandidate } from '../rehearsals/candidates.ts'
import { getRehearsal, rehearse, rehearseInLines } from '../rehearsals/operations.ts'
import { usageOf } from '../rehearsals/usage.ts'

/** The operations on principals of every type, enrollment and erasure aside: who has administered stays on record. */
const ofKind = (kind: Kind) => ({
  get: getOne(kind),
  deactivate: deactivate(kind),
  reactivate: reactivate(kind),
  setCapabilities: patchCapabilities(kind),
  setCapabilitiesInForm: setCapabilitiesInForm(kind),
  setDpopKey: registerDpopJwk(kind),
  certify: certifyRequest(kind),
  rotateCertificate: rotateCertificate(kind),
})

/** Those on whoever calls models and tools. */
const ofCallers = (kind: Kind) => ({
  ...ofKind(kind),
  erase: erase(kind),
  usage: usageOf(kind),
  setCandidate: putCandidate(kind),
  getCandidate: getCandidate(kind),
  removeCandidate: deleteCandidate(kind),
  promoteCandidate: promoteCandidate(kind),
})

/** Those that may be proposed: all but those on proposals. */
const DIRECT = {
  agents: {
    ...ofCallers(AGENT),
    list: listAgents,
    create: mintAgent,
    enrollByoca,
    enrollSpiffe,
    listTrustedCas,
    trustCa: trustForAgent,
    trustCaAs: trustAs,
    distrustCa: distrustForAgent,
  },
  users: {
    ...ofCallers(USER),
    list: listPrincipalsOf(USER),
    create: createPrincipal(USER),
  },
  workloads: {
    ...ofCallers(WORKLOAD),
    list: listPrincipalsOf(WORKLOAD),
    create: createPrincipal(WORKLOAD),
  },
  operators: { ...ofKind(OPERATOR), list: listPrincipalsOf(OPERATOR), create: createPrincipal(OPERATOR) },
  capabilities: { list: listCapabilities },
  mcpResources: {
    create: createMcpResource,
    list: listAllMcpResources,
    get: getMcpResource,
    update: patchMcpResource,
    delete: removeMcpResource,
    refresh: refreshMcpResource,
    approveTool,
    approveIntroduction,
  },
  mcpBindings: { create: bindPrincipal, list: listBindings, get: getBinding, revoke: revokeBinding },
  cas: { attach: attachCas, list: listCas, detach },
  keys: { rotateSigningKey, rotateAuditKey },
  organisation: { show: showOrganisation, set: setOrganisation },
  secret: { show: showSecret, rotate: rotateSecret, disable: disableSecret, enable: enableSecretAgain },
  rehearsals: { create: rehearse, createInLines: rehearseInLines, get: getRehearsal },
  sessions: { show: showSession, list: listSessions, end: endSession },
  audit: {
    list: listAudit,
    head: showHead,
    log: showLog,
    export: exportAudit,
    evidence: packEvidence,
    reviewed: reviewAudit,
    verify: verifyAudit,
    verifyInLines: verifyAuditInLines,
  },
} as const

// Each is found again by its name, with an input that its own schemas parse.
const all = Object.values(DIRECT).flatMap((kind) => Object.values(kind)) as unknown as readonly Operation<
  Takes,
  unknown
>[]

/**
 * The operations of administration, by the kind of their object; the first operator secret, which only
 * `Setup` knows how to take, aside. The HTTP API binds each to a route, in-process callers perform them as
 * they are.
 */
export const OPERATIONS = { ...DIRECT, proposals: proposalOperations(all) } as const
