import { z } from 'zod'
import { certifyClient, issueClientCertificate } from '../../../certs/authority/issue.ts'
import { CERTIFICATE_REASONS } from '../../../certs/certificate-error.ts'
import { aside } from '../../../certs/enrollment/aside.ts'
import { insertPin, retirePins } from '../../../db/principals/pins.ts'
import type { PrincipalRecord } from '../../../db/principals/read.ts'
import { touchRevision } from '../../../db/principals/write.ts'
import { certificateRefusal } from '../operation/certificate-refusal.ts'
import { by } from '../operation/change.ts'
import type { AdminContext, By, Caller } from '../operation/context.ts'
import { enrolling } from '../operation/demands.ts'
import { type Kind, spiffeIdOf } from '../operation/kinds.ts'
import { operation } from '../operation/operation.ts'
import { instant, pem, sha256 } from '../operation/shapes.ts'
import { changeAuthority } from './authority.ts'
import { LEAF_DAYS } from './enroll.ts'
import { graceHours, graceUntil, inGrace } from './grace.ts'
import { params } from './principals.ts'
import { identified, objectOf, principalOf, withId } from './view.ts'

const previousValidUntil = instant.nullable().meta({
  description: 'Until when the certificate before it is honoured; null where it is not, or none was.',
})

/**
 * POST …/{id}/rotate-cert: a new certificate and key; the previous one stays valid for `grace_hours`
 * (default: the pin plugin's `rotation_grace_hours`; 0 ends it at once).
 */
export const rotateCertificate = (kind: Kind) =>
  operation({
    name: `rotate${kind.noun}Certificate`,
    demands: enrolling(kind),
    action: `${kind.type}.cert_rotated`,
    object: objectOf(kind),
    cannotWait: 'The new key is shown once, to whoever asks. Ask for a certificate by a request of its own.',
    summary: 'Issues a new certificate and key, which are shown this once.',
    takes: { params, body: z.strictObject({ grace_hours: graceHours.optional() }) },
    output: withId(kind, {
      cert_pem: pem,
      cert_chain_pem: pem,
      private_key_pem: pem,
      previous_valid_until: previousValidUntil,
    }),
    status: 200,
    conditional: true,
    reasons: ['not_found', 'precondition_failed', 'conflict', 'audit_unavailable'],
    example: { grace_hours: 24 },
    run: async (context, { params: { id }, body: { grace_hours: hours }, ifMatch }, caller) => {
      const subject = subjectOf(context, kind, await principalOf(context, kind, id))
      const issued = await issueClientCertificate(context.authority, subject, term(caller))
      const action = `${kind.type}.cert_rotated`
      const until = await repin(context, kind, caller, issued, { action, id, hours, ifMatch })
      const { certPem, chainPem, privateKeyPem } = issued
      return {
        value: {
          ...identified(kind, id),
          cert_pem: certPem,
          cert_chain_pem: chainPem,
          private_key_pem: privateKeyPem,
          previous_valid_until: until,
        },
      }
    },
  })

/**
 * POST …/{id}/certificate: a certificate for the key of a request, which never leaves its maker
 * (docs/protocol.md#csr).
 */
export const certifyRequest = (kind: Kind) =>
  operation({
    name: `certify${kind.noun}`,
    demands: enrolling(kind),
    action: `${kind.type}.certificate_issued`,
    object: objectOf(kind),
    summary: 'Issues a certificate for the key of a PKCS#10 request, which never leaves its maker.',
    takes: {
      params,
      body: z.strictObject({ csr_pem: z.string().max(65_536), grace_hours: graceHours.optional() }),
    },
    output: withId(kind, {
      cert_pem: pem,
      cert_chain_pem: pem,
      cert_thumbprint: sha256,
      cert_not_after: instant,
      previous_valid_until: previousValidUntil,
    }),
    status: 200,
    conditional: true,
    reasons: ['not_found', 'precondition_failed', 'conflict', 'audit_unavailable', ...CERTIFICATE_REASONS],
    run: async (context, { params: { id }, body, ifMatch }, caller) => {
      const { csr_pem: csrPem, grace_hours: hours } = body
      const subject = subjectOf(context, kind, await principalOf(context, kind, id))
      const { spiffeId } = subject
      const key = await aside.ask('keyOfCsr', { csrPem, spiffeId }).catch(certificateRefusal)
      const issued = certifyClient(context.authority, key, subject, term(caller))
      const action = `${kind.type}.certificate_issued`
      const until = await repin(context, kind, caller, issued, { action, id, hours, ifMatch })
      return {
        value: {
          ...identified(kind, id),
          cert_pem: issued.certPem,
          cert_chain_pem: issued.chainPem,
          cert_thumbprint: issued.thumbprint,
          cert_not_after: new Date(issued.notAfter).toISOString(),
          previous_valid_until: until,
        },
      }
    },
  })

export const term = ({ at }: Pick<Caller, 'at'>) => ({ at, days: LEAF_DAYS })

export const subjectOf = (
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

interface Replacing {
  /** Of the row. */
  readonly action: string
  readonly id: string
  /** The time that the certificate before is still honoured. Hours. Absent: as configured. */
  readonly hours: number | undefined
  readonly ifMatch: string | undefined
  /** Refuses where the principal is no longer as it must be. */
  readonly guard?: (record: PrincipalRecord) => void
}

/**
 * Pins a certificate in place of the one before. Returns until when that one is still honoured; null where
 * there was none, or no grace.
 */
export async function repin(
  context: AdminContext,
  kind: Kind,
  caller: By,
  { thumbprint, notBefore, notAfter }: Certificate,
  { action, id, hours, ifMatch, guard }: Replacing,
): Promise<string | null> {
  const { type } = kind
  const { database } = context
  const { at } = caller
  const until = graceUntil(context, at, hours)
  const before = await changeAuthority(context, kind, caller, { id, ifMatch }, (record, { thumbprints }) => {
    guard?.(record)
    const { cert_thumbprint: previous, revision } = record
    // Without grace, those in the grace of an earlier rotation end too.
    const kept = until === null ? [] : thumbprints.filter(([known]) => known !== previous)
    return {
      action,
      next: { thumbprints: [[thumbprint, null], ...inGrace(previous, until), ...kept] },
      detail: { cert_thumbprint: thumbprint, previous },
      statements: [
        retirePins(database, { type, id, graceUntil: until }),
        insertPin(database, { thumbprint, type, id, notBefore, notAfter, at }),
        touchRevision(database, { type, id, revision, ...by(caller) }),
      ],
    }
  })
  return before.cert_thumbprint === null || until === null ? null : new Date(until).toISOString()
}
