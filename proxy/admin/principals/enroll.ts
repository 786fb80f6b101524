import { randomBytes } from 'node:crypto'
import { z } from 'zod'
import { issueClientCertificate } from '../../../certs/authority/issue.ts'
import { checkByoca } from '../../../certs/enrollment/byoca.ts'
import { readCaCertificates } from '../../../certs/enrollment/ca-certificate.ts'
import type { EnrolledCertificate } from '../../../certs/enrollment/enrollment.ts'
import { checkSvid } from '../../../certs/enrollment/svid.ts'
import { listAttachedCas } from '../../../db/attached-cas.ts'
import { deleteApiKeys, insertApiKey } from '../../../db/principals/api-keys.ts'
import { insertPin, retirePins } from '../../../db/principals/pins.ts'
import { findPrincipal } from '../../../db/principals/read.ts'
import { insertPrincipal, reEnroll, setSpiffeBundle } from '../../../db/principals/write.ts'
import type { CaKind, EnrollmentMethod } from '../../../db/schema.ts'
import type { Statement } from '../../../db/statement.ts'
import { hashSecret } from '../../../plugins/secrets/hash.ts'
import type { Reply } from '../../http/reply.ts'
import { certificateRefusal } from '../certificate-refusal.ts'
import { type AdminContext, change } from '../change.ts'
import { capabilities, displayName, parse, shortName } from '../parse.ts'
import { jktOf, publicJwk } from './dpop-jwk.ts'
import { AGENT, idOf, spiffeIdOf } from './kinds.ts'
import { type AdminBodyRequest, answer, principalOf } from './principals.ts'

/** How long a minted client certificate is valid. Days. */
export const LEAF_DAYS = 90
const PEM_LIMIT = 256 * 1024

const pem = z.string().max(PEM_LIMIT)
const common = {
  agent_name: shortName,
  display_name: displayName.nullish(),
  capabilities: capabilities.default([]),
  federated: z.boolean().default(false),
}
const minted = z.strictObject(common)
const byoca = z.strictObject({
  ...common,
  cert_pem: pem,
  private_key_pem: pem,
  dpop_jwk: publicJwk.optional(),
})
const spiffe = z.strictObject({
  ...common,
  svid_pem: pem,
  svid_key_pem: pem,
  trust_bundle_pem: pem.optional(),
  dpop_jwk: publicJwk.optional(),
})

/** POST /v1/admin/agents: mints a certificate and shows its key this once (spec §4.1). The service keeps no copy of it. */
export const mintAgent =
  (context: AdminContext) =>
  async (facts: AdminBodyRequest): Promise<Reply> => {
    const asked = parse(minted, facts.json)
    const { organisation, trustDomain, authority } = context
    const commonName = idOf(AGENT, organisation, asked.agent_name)
    const spiffeId = spiffeIdOf(AGENT, trustDomain, organisation, asked.agent_name)
    const issued = await issueClientCertificate(
      authority,
      { commonName, spiffeId },
      { at: facts.at, days: LEAF_DAYS },
    )
    const { certPem, chainPem, privateKeyPem } = issued
    const shownOnce = { cert_pem: certPem, cert_chain_pem: chainPem, private_key_pem: privateKeyPem }
    return enroll(context, facts, {
      ...asked,
      certificate: { ...issued, spiffeId },
      method: 'minted',
      shownOnce,
    })
  }

/** POST /v1/admin/agents/enroll/byoca: pins a certificate of the organisation's own CA (spec §5.3); answers an API key, once. */
export const enrollByoca =
  (context: AdminContext) =>
  async (facts: AdminBodyRequest): Promise<Reply> => {
    const asked = parse(byoca, facts.json)
    const certificate = await checkByoca({
      certPem: asked.cert_pem,
      privateKeyPem: asked.private_key_pem,
      caPems: await attached(context, 'organisation'),
      at: facts.at,
      organisation: context.organisation,
      name: asked.agent_name,
    }).catch(certificateRefusal)
    return enroll(context, facts, {
      ...asked,
      certificate,
      method: 'byoca',
      ...(await newApiKey(context, facts, asked)),
    })
  }

/** POST /v1/admin/agents/enroll/spiffe: an SVID under the given or the attached bundle; it may rotate (WIRE.md §2). */
export const enrollSpiffe =
  (context: AdminContext) =>
  async (facts: AdminBodyRequest): Promise<Reply> => {
    const asked = parse(spiffe, facts.json)
    const bundle = asked.trust_bundle_pem === undefined ? null : bundleOf(asked.trust_bundle_pem, facts.at)
    const certificate = await checkSvid({
      svidPem: asked.svid_pem,
      svidKeyPem: asked.svid_key_pem,
      bundlePems: bundle === null ? await attached(context, 'spiffe') : [bundle],
      at: facts.at,
    }).catch(certificateRefusal)
    const id = idOf(AGENT, context.organisation, asked.agent_name)
    const statements = [setSpiffeBundle(context.database, id, bundle)]
    return enroll(context, facts, { ...asked, certificate, method: 'spiffe', statements })
  }

interface Enrollment {
  readonly agent_name: string
  readonly display_name?: string | null | undefined
  readonly capabilities: readonly string[]
  readonly federated: boolean
  readonly dpop_jwk?: z.output<typeof publicJwk> | undefined
  readonly certificate: Pick<EnrolledCertificate, 'thumbprint' | 'notBefore' | 'notAfter' | 'spiffeId'>
  readonly method: EnrollmentMethod
  /** Further writes of the same transaction. */
  readonly statements?: readonly Statement[]
  readonly shownOnce?: Readonly<Record<string, string>>
}

const ACTIONS: Partial<Record<EnrollmentMethod, string>> = {
  minted: 'agent.created',
  byoca: 'agent.enrolled_byoca',
  spiffe: 'agent.enrolled_spiffe',
}

/** The principal, its pin, what else belongs to it, and its one row: all or nothing. A deactivated agent's name may be taken anew. */
async function enroll(
  context: AdminContext,
  facts: AdminBodyRequest,
  enrollment: Enrollment,
): Promise<Reply> {
  const { agent_name: name, certificate, method } = enrollment
  const { database, organisation } = context
  const id = idOf(AGENT, organisation, name)
  const principal = {
    type: 'agent',
    id,
    name,
    displayName: enrollment.display_name ?? null,
    capabilities: enrollment.capabilities,
    enrollmentMethod: method,
    spiffeId: certificate.spiffeId,
    dpopJkt: enrollment.dpop_jwk ? jktOf(enrollment.dpop_jwk) : null,
    federated: enrollment.federated,
    at: facts.at,
  } as const
  const existing = await findPrincipal(database, 'agent', id)
  const again = existing?.is_active === false
  const { thumbprint, notBefore, notAfter } = certificate
  await change(context, facts, {
    action: ACTIONS[method] ?? 'agent.created',
    detail: {
      subject: id,
      capabilities: enrollment.capabilities,
      cert_thumbprint: thumbprint,
      enrollment_method: method,
      ...(again && { again, previous: existing.capabilities }),
    },
    statements: [
      ...(again
        ? [
            reEnroll(database, principal),
            retirePins(database, { type: 'agent', id, graceUntil: null }),
            deleteApiKeys(database, principal),
          ]
        : [insertPrincipal(database, principal)]),
      insertPin(database, { thumbprint, type: 'agent', id, notBefore, notAfter, at: facts.at }),
      ...(enrollment.statements ?? []),
    ],
  })
  return answer(AGENT, await principalOf(context, AGENT, id), 201, enrollment.shownOnce)
}

/** `sk_<id>_<secret>`: shown once, kept as a hash, found by its id (WIRE.md §2). */
async function newApiKey(
  { database, organisation }: AdminContext,
  { at }: AdminBodyRequest,
  { agent_name: name }: { readonly agent_name: string },
): Promise<Pick<Enrollment, 'statements' | 'shownOnce'>> {
  const keyId = randomBytes(8).toString('hex')
  const apiKey = `sk_${keyId}_${randomBytes(32).toString('base64url')}`
  const principalId = idOf(AGENT, organisation, name)
  const keyHash = await hashSecret(apiKey)
  const statements = [insertApiKey(database, { keyId, type: 'agent', principalId, keyHash }, at)]
  return { statements, shownOnce: { api_key: apiKey } }
}

async function attached({ database }: AdminContext, kind: CaKind): Promise<readonly string[]> {
  return (await listAttachedCas(database, kind)).map((ca) => ca.ca_pem)
}

function bundleOf(text: string, at: number): string {
  try {
    return readCaCertificates(text, at)
      .map((ca) => ca.pem)
      .join('')
  } catch (error) {
    return certificateRefusal(error)
  }
}
