import { z } from 'zod'
import { issueClientCertificate } from '../../../certs/authority/issue.ts'
import { issueFromCsr } from '../../../certs/enrollment/csr.ts'
import { insertPin, retirePins } from '../../../db/principals/pins.ts'
import type { PrincipalRecord } from '../../../db/principals/read.ts'
import { touchRevision } from '../../../db/principals/write.ts'
import { json, type Reply } from '../../http/reply.ts'
import { certificateRefusal } from '../certificate-refusal.ts'
import { type AdminContext, change } from '../change.ts'
import { checkIfMatch } from '../etag.ts'
import { parse } from '../parse.ts'
import { LEAF_DAYS } from './enroll.ts'
import { type Kind, spiffeIdOf } from './kinds.ts'
import { type AdminBodyRequest, principalOf } from './principals.ts'

const HOUR_MS = 3_600_000

const rotation = z.strictObject({ grace_hours: z.number().min(0).max(720).optional() })
const request = z.strictObject({
  csr_pem: z.string().max(65_536),
  grace_hours: z.number().min(0).max(720).optional(),
})

/**
 * POST …/{id}/rotate-cert: a new certificate and key; the previous one stays valid for `grace_hours` (default: the pin
 * plugin's `rotation_grace_hours`; 0 ends it at once).
 */
export const rotateCertificate =
  (context: AdminContext, kind: Kind) =>
  async (facts: AdminBodyRequest): Promise<Reply> => {
    const { grace_hours: hours } = parse(rotation, facts.json)
    const record = await principalOf(context, kind, facts.params.id)
    const issued = await issueClientCertificate(
      context.authority,
      subjectOf(context, kind, record),
      term(facts),
    )
    const until = await repin(context, kind, facts, record, issued, hours)
    const { certPem, chainPem, privateKeyPem } = issued
    return json(200, {
      [kind.idField]: record.principal_id,
      cert_pem: certPem,
      cert_chain_pem: chainPem,
      private_key_pem: privateKeyPem,
      previous_valid_until: until,
    })
  }

/** POST …/{id}/certificate: a certificate for the key of a request, which never leaves its maker (WIRE.md §2). */
export const certifyRequest =
  (context: AdminContext, kind: Kind) =>
  async (facts: AdminBodyRequest): Promise<Reply> => {
    const { csr_pem: csr, grace_hours: hours } = parse(request, facts.json)
    const record = await principalOf(context, kind, facts.params.id)
    const subject = subjectOf(context, kind, record)
    const issued = await issueFromCsr(context.authority, csr, subject, term(facts)).catch(certificateRefusal)
    const until = await repin(context, kind, facts, record, issued, hours)
    return json(200, {
      [kind.idField]: record.principal_id,
      cert_pem: issued.certPem,
      cert_chain_pem: issued.chainPem,
      cert_thumbprint: issued.thumbprint,
      cert_not_after: new Date(issued.notAfter).toISOString(),
      previous_valid_until: until,
    })
  }

const term = ({ at }: AdminBodyRequest) => ({ at, days: LEAF_DAYS })

const subjectOf = (
  { organisation, trustDomain }: AdminContext,
  kind: Kind,
  { principal_id, name }: PrincipalRecord,
) => ({
  commonName: principal_id,
  spiffeId: spiffeIdOf(kind, trustDomain, organisation, name),
})

interface Certificate {
  readonly thumbprint: string
  readonly notBefore: number
  readonly notAfter: number
}

/** Pins a certificate in place of the one before. Says until when that one is still honoured; null where there was none, or no grace. */
async function repin(
  context: AdminContext,
  { type }: Kind,
  facts: AdminBodyRequest,
  record: PrincipalRecord,
  { thumbprint, notBefore, notAfter }: Certificate,
  hours = context.configuration().pin.rotation_grace_hours,
): Promise<string | null> {
  const { principal_id: id, cert_thumbprint: previous } = record
  const revision = checkIfMatch(facts.headers['if-match'], record)
  const { database } = context
  const { at } = facts
  const graceUntil = hours === 0 ? null : at + hours * HOUR_MS
  await change(context, facts, {
    action: `${type}.cert_rotated`,
    detail: { subject: id, cert_thumbprint: thumbprint, previous },
    statements: [
      retirePins(database, { type, id, graceUntil }),
      insertPin(database, { thumbprint, type, id, notBefore, notAfter, at }),
      touchRevision(database, { type, id, revision, at }),
    ],
  })
  return previous === null || graceUntil === null ? null : new Date(graceUntil).toISOString()
}
