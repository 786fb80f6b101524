import { hash, randomBytes } from 'node:crypto'
import { z } from 'zod'
import { issueClientCertificate } from '../../../certs/authority/issue.ts'
import { CERTIFICATE_REASONS } from '../../../certs/certificate-error.ts'
import type { EnrolledCertificate } from '../../../certs/enrollment/enrollment.ts'
import { deleteApiKeys, insertApiKey } from '../../../db/principals/api-keys.ts'
import { listAttachedCas } from '../../../db/principals/attached-cas.ts'
import { type AuthorityState, authorityDetail } from '../../../db/principals/authority.ts'
import { caDigests, isTextOf, printDigests } from '../../../db/principals/ca-texts.ts'
import { isIssuing } from '../../../db/principals/issuers.ts'
import { insertPin, retirePins } from '../../../db/principals/pins.ts'
import { findPrincipal, type PrincipalRecord } from '../../../db/principals/read.ts'
import { distrustAll, trustCa } from '../../../db/principals/trusted-cas.ts'
import { insertPrincipal, reEnroll, setSpiffeBundle } from '../../../db/principals/write.ts'
import type { CaKind, EnrollmentMethod } from '../../../db/schema.ts'
import { namesUnchanged } from '../../../db/settings.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import type { LedgerStatement } from '../../../db/support/statement.ts'
import type { AdminCapability } from '../../../plugins/operators/capabilities.ts'
import { hashSecret } from '../../../plugins/secrets/hash.ts'
import { certificateThread } from '../operation/certificate-thread.ts'
import { changeAuthor, commitChange } from '../operation/change.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { AGENT, capabilityToGrant, printPrincipalId, spiffeIdOf } from '../operation/kinds.ts'
import { operation } from '../operation/operation.ts'
import {
  callerCapabilities,
  displayName,
  passedOverBlocks,
  passedOverOf,
  shortName,
  pemText as shownPem,
} from '../operation/shapes.ts'
import { newSubjectKey, serializedByPrincipal } from './authority.ts'
import { dpopPublicJwk, jktOf } from './dpop-jwk.ts'
import { PRINCIPAL_MEMBERS, principalOf, principalResult, withName } from './view.ts'

/** The life of a minted client certificate. Days. */
export const LEAF_DAYS = 90
const PEM_LIMIT = 256 * 1024

/** A certificate, a bundle of them, or a key, as it is given. */
export const givenPem = z.string().max(PEM_LIMIT)
const common = {
  agent_name: shortName,
  display_name: displayName.nullish(),
  capabilities: callerCapabilities.default([]),
  federated: z.boolean().default(false),
}
const dpop = { dpop_jwk: dpopPublicJwk.optional() }
const minted = z.strictObject({ ...common, ...dpop })
const byoca = z.strictObject({ ...common, cert_pem: givenPem, private_key_pem: givenPem, ...dpop })
const spiffe = z.strictObject({
  ...common,
  svid_pem: givenPem,
  svid_key_pem: givenPem,
  trust_bundle_pem: givenPem.optional(),
  ...dpop,
})

/** Returns the demand of an enrollment whose set opens anything. */
const requiredForGrant = (
  _context: AdminContext,
  { body }: { readonly body: { readonly capabilities: readonly string[] } },
): readonly AdminCapability[] => (body.capabilities.length > 0 ? [capabilityToGrant(AGENT)] : [])

/** An enrollment's effect on authority. */
const enrollmentEffect = (
  { organisation }: AdminContext,
  { body }: { readonly body: { readonly agent_name: string; readonly capabilities: readonly string[] } },
) => ({
  principal: {
    principal_id: printPrincipalId(AGENT, organisation, body.agent_name),
    capabilities: body.capabilities,
    is_active: true,
  },
})

const ENROLLMENT = {
  demands: 'admin.enroll',
  alsoDemands: requiredForGrant,
  cannotWait: 'Enroll it with an empty set, and grant its capabilities afterwards.',
  gives: enrollmentEffect,
  status: 201,
  revised: true,
} as const

/** POST /v1/admin/agents (spec §4.1). The service keeps no copy of the key. */
export const mintAgent = operation({
  ...ENROLLMENT,
  name: 'createAgent',
  action: 'agent.created',
  summary: 'Enrolls an agent and makes its certificate. The private key is shown only this once.',
  takes: { body: minted },
  output: withName(AGENT, {
    ...PRINCIPAL_MEMBERS,
    cert_pem: shownPem,
    cert_chain_pem: shownPem,
    private_key_pem: shownPem,
  }),
  reasons: ['conflict', 'precondition_failed', 'audit_unavailable'],
  example: { agent_name: 'daily-report', capabilities: ['llm.chat'] },
  run: async (context, { body }, caller) => {
    const { organisation, trustDomain } = context
    const commonName = printPrincipalId(AGENT, organisation, body.agent_name)
    const spiffeId = spiffeIdOf(AGENT, trustDomain, organisation, body.agent_name)
    const issued = await issueClientCertificate(
      await context.issuing(),
      { commonName, spiffeId },
      { at: caller.at, days: LEAF_DAYS },
    )
    const certificate = { ...issued, spiffeId }
    const { value, revision } = principalResult(
      AGENT,
      await enroll(context, caller, { ...body, certificate, method: 'minted' }),
    )
    const { certPem, chainPem, privateKeyPem } = issued
    const shownOnce = { cert_pem: certPem, cert_chain_pem: chainPem, private_key_pem: privateKeyPem }
    return { value: { ...value, ...shownOnce }, revision }
  },
})

/** POST /v1/admin/agents/enroll/byoca (spec §5.3). */
export const enrollByocaAgent = operation({
  ...ENROLLMENT,
  name: 'enrollAgentByoca',
  action: 'agent.enrolled_byoca',
  summary:
    "Enrolls an agent with a certificate of the organisation's own CA. The API key is shown only this once.",
  takes: { body: byoca },
  output: withName(AGENT, { ...PRINCIPAL_MEMBERS, api_key: z.string() }),
  reasons: ['conflict', 'precondition_failed', 'audit_unavailable', ...CERTIFICATE_REASONS],
  run: async (context, { body }, caller) => {
    const enrolling = {
      certPem: body.cert_pem,
      privateKeyPem: body.private_key_pem,
      caPems: await attachedCaPems(context, 'organisation', caller.at),
      at: caller.at,
      organisation: context.organisation,
      name: body.agent_name,
    }
    const certificate = await certificateThread.ask('checkByoca', enrolling)
    const { apiKey, digest, statements } = await newApiKey(context, caller, body.agent_name)
    const trust = { api_key: digest }
    const enrollment = { ...body, certificate, method: 'byoca', trust, statements } as const
    const { value, revision } = principalResult(AGENT, await enroll(context, caller, enrollment))
    return { value: { ...value, api_key: apiKey }, revision }
  },
})

/** POST /v1/admin/agents/enroll/spiffe: its SVID may rotate (docs/protocol.md#principals). */
export const enrollSpiffeAgent = operation({
  ...ENROLLMENT,
  name: 'enrollAgentSpiffe',
  action: 'agent.enrolled_spiffe',
  summary: 'Enrolls an agent with a SPIFFE SVID, under the given bundle or the attached ones.',
  takes: { body: spiffe },
  output: withName(AGENT, { ...PRINCIPAL_MEMBERS, passed_over: passedOverBlocks }),
  reasons: ['conflict', 'precondition_failed', 'audit_unavailable', ...CERTIFICATE_REASONS],
  run: async (context, { body }, caller) => {
    const { pem: bundle, passedOver } =
      body.trust_bundle_pem === undefined
        ? { pem: null, passedOver: [] }
        : await trustBundleOf(body.trust_bundle_pem, caller.at)
    const odd = passedOverOf(passedOver)
    const enrolling = {
      svidPem: body.svid_pem,
      svidKeyPem: body.svid_key_pem,
      bundlePems: bundle === null ? await attachedCaPems(context, 'spiffe', caller.at) : [bundle],
      at: caller.at,
    }
    const { anchors, ...certificate } = await certificateThread.ask('checkSvid', enrolling)
    const { database } = context
    const id = printPrincipalId(AGENT, context.organisation, body.agent_name)
    // Only those that it chains to: other attached CAs were attached by somebody without a say in enrollment.
    const trustedCas = bundle === null ? anchors : []
    const trust = { trusted_cas: trustedCas, trust_bundle: bundle === null ? [] : caDigests(bundle) }
    const statements = [
      setSpiffeBundle(database, id, bundle),
      ...trustedCas.map((digest) => trustCa(database, id, { digest, ...changeAuthor(caller) })),
    ]
    const enrollment = { ...body, certificate, method: 'spiffe', trust, statements, odd } as const
    const { value, revision } = principalResult(AGENT, await enroll(context, caller, enrollment))
    return { value: { ...value, ...odd }, revision }
  },
})

interface NewAgentEnrollment extends Readonly<z.output<typeof minted>> {
  readonly certificate: Pick<EnrolledCertificate, 'thumbprint' | 'notBefore' | 'notAfter' | 'spiffeId'> & {
    /** The digest of our CA; absent: another CA has issued it. */
    readonly issuer?: string
  }
  readonly method: EnrollmentMethod
  /** The digests of the CAs that vouch for it or its certificate, and of its API key, for the row. */
  readonly trust?: JsonObject
  /** The blocks of its bundle that are left out. */
  readonly odd?: ReturnType<typeof passedOverOf>
  /** Further writes of the same transaction. */
  readonly statements?: readonly LedgerStatement[]
}

const ACTIONS: Partial<Record<EnrollmentMethod, string>> = {
  minted: 'agent.created',
  byoca: 'agent.enrolled_byoca',
  spiffe: 'agent.enrolled_spiffe',
}

/**
 * Stores the agent, its pin, everything else that belongs to it, and its one row: all or nothing. The name of
 * a deactivated agent may be taken again.
 */
function enroll(
  context: AdminContext,
  caller: AdminCaller,
  enrollment: NewAgentEnrollment,
): Promise<PrincipalRecord> {
  const id = printPrincipalId(AGENT, context.organisation, enrollment.agent_name)
  return serializedByPrincipal(context, AGENT, id, async () => {
    const existing = await findPrincipal(context.database, 'agent', id)
    await store(context, caller, enrollment, existing?.is_active === false ? existing : null)
    return principalOf(context, AGENT, id)
  })
}

/** `before`: the deactivated agent whose name is taken again. */
async function store(
  context: AdminContext,
  caller: AdminCaller,
  enrollment: NewAgentEnrollment,
  before: PrincipalRecord | null,
): Promise<void> {
  const { agent_name: name, capabilities: held, certificate, method } = enrollment
  const { database, organisation } = context
  const id = printPrincipalId(AGENT, organisation, name)
  const jkt = enrollment.dpop_jwk ? jktOf(enrollment.dpop_jwk) : null
  const principal = {
    type: 'agent',
    id,
    ref: id,
    name,
    displayName: enrollment.display_name ?? null,
    capabilities: held,
    enrollmentMethod: method,
    spiffeId: certificate.spiffeId,
    dpopJkt: jkt,
    federated: enrollment.federated,
    ...changeAuthor(caller),
  } as const
  const { thumbprint, issuer, notBefore, notAfter } = certificate
  const state: AuthorityState = {
    capabilities: held,
    is_active: true,
    thumbprints: [[thumbprint, null]],
    dpop_jkts: jkt === null ? [] : [[jkt, null]],
  }
  const subject = { principal_ref: id, enrollment_method: method, spiffe_id: certificate.spiffeId }
  await commitChange(context, caller, {
    action: ACTIONS[method] ?? 'agent.created',
    detail: {
      ...authorityDetail(subject, (before?.authority_revision ?? 0) + 1, state),
      cert_thumbprint: thumbprint,
      enrollment_method: method,
      ...enrollment.trust,
      ...enrollment.odd,
      ...(before && { again: true, previous: before.capabilities }),
    },
    assertions: [
      namesUnchanged(database, context),
      ...(issuer === undefined ? [] : [isIssuing(database, issuer)]),
    ],
    statements: [
      ...(before
        ? [
            reEnroll(database, { ...principal, revision: before.revision }),
            retirePins(database, { type: 'agent', id, graceUntil: null }),
            deleteApiKeys(database, principal),
            distrustAll(database, id),
          ]
        : [insertPrincipal(database, principal)]),
      newSubjectKey(context, principal),
      insertPin(database, {
        ...{ thumbprint, type: 'agent', id, notBefore, notAfter, at: caller.at },
        issuer,
      }),
      ...(enrollment.statements ?? []),
    ],
  })
}

/** Reads the attached CAs of a kind. One whose text is not that of its digest enrolls nobody. */
export async function attachedCaPems(
  { database, editedTexts }: AdminContext,
  kind: CaKind,
  at: number,
): Promise<readonly string[]> {
  return (await listAttachedCas(database, kind)).flatMap(({ digest, ca_pem: pem }) => {
    if (isTextOf(pem, printDigests([digest]))) return [pem]
    editedTexts.note(`the attached CA ${digest}`, at)
    return []
  })
}

/** Reads a trust bundle as it is stored, and what of it is left out. */
export async function trustBundleOf(caPem: string, at: number) {
  const { cas, passedOver } = await certificateThread.ask('readCaBundle', { caPem, at })
  return { pem: cas.map((ca) => ca.pem).join(''), passedOver }
}

/** Makes `sk_<id>_<secret>`: shown once, kept as a hash, found by its id (docs/protocol.md#principals). */
async function newApiKey(
  { database, organisation }: AdminContext,
  { at }: AdminCaller,
  name: string,
): Promise<{
  readonly apiKey: string
  /** The look-up id of the key, and the digest of the stored hash. */
  readonly digest: readonly [string, string]
  readonly statements: readonly LedgerStatement[]
}> {
  const keyId = randomBytes(8).toString('hex')
  const apiKey = `sk_${keyId}_${randomBytes(32).toString('base64url')}`
  const principalId = printPrincipalId(AGENT, organisation, name)
  const keyHash = await hashSecret(apiKey)
  return {
    apiKey,
    digest: [keyId, hash('sha256', keyHash)],
    statements: [insertApiKey(database, { keyId, type: 'agent', principalId, keyHash }, at)],
  }
}
