import { z } from 'zod'
import { certifyClient, issueClientCertificate } from '../../../certs/authority/issue.ts'
import { CERTIFICATE_REASONS } from '../../../certs/certificate-error.ts'
import { isIssuing } from '../../../db/principals/issuers.ts'
import { endPin, honouredPins, insertPin, retirePins } from '../../../db/principals/pins.ts'
import type { PrincipalRecord } from '../../../db/principals/read.ts'
import { setDpopJkt, touchRevision } from '../../../db/principals/write.ts'
import { conflict, notFound } from '../../../plugins/refusal.ts'
import { certificateThread } from '../operation/certificate-thread.ts'
import { changeAuthor } from '../operation/change.ts'
import type { AdminCaller, AdminContext, ChangeAuthorship } from '../operation/context.ts'
import { AGENT, capabilityToEnroll, type PrincipalKind, spiffeIdOf } from '../operation/kinds.ts'
import { emptyOperation, operation, readOperation } from '../operation/operation.ts'
import { idParams, instant, pemText, sha256 } from '../operation/shapes.ts'
import { assertOwnerRemains, operatorRefusals } from '../operators/owners.ts'
import { changeAuthority, graceHours, graceUntil, predecessorInGrace } from './authority.ts'
import { dpopPublicJwk, jktOf, registeredKeys } from './dpop-jwk.ts'
import { attachedCaPems, givenPem, LEAF_DAYS } from './enroll.ts'
import { withoutAccess } from './principals.ts'
import { principalByParams, principalIdMember, principalOf, withId } from './view.ts'

const previousValidUntil = instant.nullable().meta({
  description: 'Until when the previous certificate is accepted; null if it is not, or if there was none.',
})

const certificateShape = (kind: PrincipalKind) =>
  withId(kind, {
    cert_pem: pemText,
    cert_chain_pem: pemText,
    cert_thumbprint: sha256,
    cert_not_after: instant,
    previous_valid_until: previousValidUntil,
  })

/**
 * POST …/{id}/rotate-cert: a new certificate and key; the previous one stays valid for `grace_hours`
 * (default: the pin plugin's `rotation_grace_hours`; 0 ends it at once).
 */
export const rotateCertificate = (kind: PrincipalKind) =>
  operation({
    name: `rotate${kind.noun}Certificate`,
    demands: capabilityToEnroll(kind),
    action: `${kind.type}.cert_rotated`,
    object: principalByParams(kind),
    cannotWait:
      'This change needs a second operator, but the new key is shown only once, to the caller. Use a certificate request instead.',
    summary: 'Issues a new certificate and key. They are shown only this once.',
    takes: {
      params: idParams,
      body: z.strictObject({ grace_hours: graceHours.optional(), dpop_jwk: dpopPublicJwk.optional() }),
    },
    output: withId(kind, {
      cert_pem: pemText,
      cert_chain_pem: pemText,
      private_key_pem: pemText,
      previous_valid_until: previousValidUntil,
    }),
    conditional: true,
    reasons: ['not_found', 'precondition_failed', 'conflict', 'audit_unavailable'],
    example: { grace_hours: 24 },
    resembles: (context, { params: { id }, body }) =>
      (body.grace_hours ?? context.rotationGraceHours) > 0 ? [] : withoutAccess(context, kind, id),
    run: async (
      context,
      { params: { id }, body: { grace_hours: hours, dpop_jwk: jwk }, ifMatch },
      caller,
    ) => {
      const subject = certificateSubject(context, kind, await principalOf(context, kind, id))
      const issued = await issueClientCertificate(await context.issuing(), subject, certificateTerm(caller))
      const action = `${kind.type}.cert_rotated`
      const until = await replacePin(context, kind, caller, issued, {
        action,
        id,
        hours,
        ifMatch,
        jkt: jwk && jktOf(jwk),
      })
      const { certPem, chainPem, privateKeyPem } = issued
      return {
        value: {
          ...principalIdMember(kind, id),
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
export const certifyRequest = (kind: PrincipalKind) =>
  operation({
    name: `certify${kind.noun}`,
    demands: capabilityToEnroll(kind),
    action: `${kind.type}.certificate_issued`,
    object: principalByParams(kind),
    summary:
      'Issues a certificate for a PKCS#10 request. The private key never leaves the machine that made it.',
    takes: {
      params: idParams,
      body: z.strictObject({ csr_pem: z.string().max(65_536), grace_hours: graceHours.optional() }),
    },
    output: certificateShape(kind),
    conditional: true,
    reasons: ['not_found', 'precondition_failed', 'conflict', 'audit_unavailable', ...CERTIFICATE_REASONS],
    run: async (context, { params: { id }, body, ifMatch }, caller) => {
      const { csr_pem: csrPem, grace_hours: hours } = body
      const subject = certificateSubject(context, kind, await principalOf(context, kind, id))
      const { spiffeId } = subject
      const key = await certificateThread.ask('keyOfCsr', { csrPem, spiffeId })
      const issued = certifyClient(await context.issuing(), key, subject, certificateTerm(caller))
      const action = `${kind.type}.certificate_issued`
      const until = await replacePin(context, kind, caller, issued, { action, id, hours, ifMatch })
      return { value: certificateView(kind, id, issued, until) }
    },
  })

/** A leaf that an agent's own CA has renewed, and a request that its key has signed. */
export const renewedLeaf = z.strictObject({ cert_pem: givenPem, csr_pem: z.string().max(65_536) })

/** Checks a renewed leaf as at the enrollment of its agent. Refuses as that does. */
export async function checkRenewedLeaf(
  context: AdminContext,
  { name, spiffe_id: renewedId }: PrincipalRecord,
  { cert_pem: certPem, csr_pem: csrPem }: z.output<typeof renewedLeaf>,
  at: number,
) {
  const caPems = await attachedCaPems(context, 'organisation', at)
  const { organisation } = context
  const asked = { certPem, csrPem, caPems, at, organisation, name, renewedId }
  const { leafPem, ...checked } = await certificateThread.ask('checkByoca', asked)
  return { certPem: leafPem, ...checked }
}

/** The action of a renewed leaf's row. */
export const LEAF_RENEWED = 'agent.certificate_renewed'

/**
 * PUT /v1/admin/agents/{id}/certificate: pins the leaf that the agent's own CA has renewed, in place of the one
 * before (docs/protocol.md#renewed-leaf). The one that is pinned already changes nothing.
 */
export const putRenewedLeaf = operation({
  name: 'putAgentCertificate',
  demands: capabilityToEnroll(AGENT),
  action: LEAF_RENEWED,
  object: principalByParams(AGENT),
  summary: "Pins a certificate that an agent's own CA has renewed.",
  takes: { params: idParams, body: renewedLeaf.extend({ grace_hours: graceHours.optional() }) },
  output: certificateShape(AGENT),
  conditional: true,
  reasons: ['not_found', 'precondition_failed', 'conflict', 'audit_unavailable', ...CERTIFICATE_REASONS],
  resembles: (context, { params: { id }, body }) =>
    (body.grace_hours ?? context.rotationGraceHours) > 0 ? [] : withoutAccess(context, AGENT, id),
  run: async (context, { params: { id }, body, ifMatch }, caller) => {
    const { grace_hours: hours, ...leaf } = body
    const record = await principalOf(context, AGENT, id)
    if (record.enrollment_method !== 'byoca')
      throw conflict('This agent has no certificate of its own CA to renew.')
    const checked = await checkRenewedLeaf(context, record, leaf, caller.at)
    const until = await replacePin(context, AGENT, caller, checked, {
      ...{ action: LEAF_RENEWED, id, hours, ifMatch },
    })
    return { value: certificateView(AGENT, id, checked, until) }
  },
})

export const listCertificates = (kind: PrincipalKind) =>
  readOperation({
    name: `list${kind.noun}Certificates`,
    summary: `Lists the certificates by which the ${kind.type} can call, the current one first.`,
    takes: { params: idParams },
    output: z.array(
      z.strictObject({
        cert_thumbprint: sha256,
        cert_not_after: instant,
        current: z.boolean(),
        honoured_until: instant
          .nullable()
          .meta({ description: 'The end of the grace of one that was replaced. Null: the current one.' }),
      }),
    ),
    reasons: ['not_found'],
    run: async (context, { params: { id } }, { at }) => {
      const pins = await honouredPins(context.database, await principalOf(context, kind, id), at)
      return {
        value: pins.map(({ thumbprint, not_after, is_current, grace_until }) => ({
          cert_thumbprint: thumbprint,
          cert_not_after: not_after,
          current: is_current === 1,
          honoured_until: is_current === 1 ? null : grace_until,
        })),
      }
    },
  })

export const endCertificate = (kind: PrincipalKind) =>
  emptyOperation({
    name: `end${kind.noun}Certificate`,
    demands: capabilityToEnroll(kind),
    action: `${kind.type}.certificate_ended`,
    object: principalByParams(kind),
    summary: `Ends a certificate of the ${kind.type} at once and for good, with the calls under way by it.`,
    takes: { params: idParams.extend({ thumbprint: z.string() }) },
    conditional: true,
    reasons: ['not_found', 'precondition_failed', 'audit_unavailable', ...operatorRefusals(kind)],
    resembles: async (context, { params: { id, thumbprint } }) => {
      const { cert_thumbprint: current } = await principalOf(context, kind, id)
      return current === thumbprint ? withoutAccess(context, kind, id) : []
    },
    run: async (context, { params: { id, thumbprint }, ifMatch }, caller) => {
      const { type } = kind
      const { database } = context
      await changeAuthority(context, kind, caller, { id, ifMatch }, async (record, { thumbprints }) => {
        if (!thumbprints.some(([known]) => known === thumbprint))
          throw notFound(
            `No certificate with this thumbprint is honoured as this ${type}'s. GET its certificates lists those that are.`,
          )
        const { cert_thumbprint: current, revision } = record
        return {
          action: `${type}.certificate_ended`,
          next: { thumbprints: thumbprints.filter(([known]) => known !== thumbprint) },
          detail: { ended: [thumbprint] },
          assertions:
            current === thumbprint && !(type === 'operator' && (await context.signsIn(record.name)))
              ? await assertOwnerRemains(context, caller.at, record, { is_active: false })
              : [],
          statements: [
            endPin(database, { type, id, thumbprint }),
            touchRevision(database, { type, id, revision, ...changeAuthor(caller) }),
          ],
        }
      })
    },
  })

type ShownCertificate = Pick<
  Awaited<ReturnType<typeof certifyClient>>,
  'certPem' | 'chainPem' | 'thumbprint' | 'notAfter'
>

/** A certificate that is pinned now, and until when the one before it is honoured. */
export const certificateView = (
  kind: PrincipalKind,
  id: string,
  { certPem, chainPem, thumbprint, notAfter }: ShownCertificate,
  previousUntil: string | null,
) => ({
  ...principalIdMember(kind, id),
  cert_pem: certPem,
  cert_chain_pem: chainPem,
  cert_thumbprint: thumbprint,
  cert_not_after: new Date(notAfter).toISOString(),
  previous_valid_until: previousUntil,
})

export const certificateTerm = ({ at }: Pick<AdminCaller, 'at'>) => ({ at, days: LEAF_DAYS })

export const certificateSubject = (
  { organisation, trustDomain }: AdminContext,
  kind: PrincipalKind,
  { principal_id, name }: PrincipalRecord,
) => ({
  commonName: principal_id,
  spiffeId: spiffeIdOf(kind, trustDomain, organisation, name),
})

interface Certificate {
  readonly thumbprint: string
  /** The digest of our CA; absent: another CA has issued it. */
  readonly issuer?: string
  readonly notBefore: number
  readonly notAfter: number
}

interface PinReplacement {
  /** The row's action. */
  readonly action: string
  readonly id: string
  /** The time that the certificate before is still honoured. Hours. Absent: as configured. */
  readonly hours: number | undefined
  readonly ifMatch: string | undefined
  /** The key of its proofs from now on, in place of the one before, which has the same grace. Absent: as it is. */
  readonly jkt?: string | undefined
  /** Refuses if the principal is no longer as it must be. */
  readonly guard?: (record: PrincipalRecord) => void
}

/**
 * Pins a certificate in place of the one before. Returns until when that one is still honoured; null if there
 * was none, or no grace, or if it is the pinned one already: then nothing is changed.
 */
export async function replacePin(
  context: AdminContext,
  kind: PrincipalKind,
  caller: ChangeAuthorship,
  { thumbprint, issuer, notBefore, notAfter }: Certificate,
  { action, id, hours, ifMatch, jkt, guard }: PinReplacement,
): Promise<string | null> {
  const { type } = kind
  const { database } = context
  const { at } = caller
  const until = graceUntil(context, at, hours)
  const before = await changeAuthority(context, kind, caller, { id, ifMatch }, (record, { thumbprints }) => {
    const { cert_thumbprint: previous, dpop_jkt: key, revision } = record
    const change = { type, id, revision, ...changeAuthor(caller) }
    if (previous === thumbprint) return null
    guard?.(record)
    // Without grace, those in the grace of an earlier rotation end too.
    const kept = until === null ? [] : thumbprints.filter(([known]) => known !== previous)
    return {
      action,
      next: {
        thumbprints: [[thumbprint, null], ...predecessorInGrace(previous, until), ...kept],
        ...(jkt !== undefined && { dpop_jkts: registeredKeys(jkt, key, until) }),
      },
      detail: { cert_thumbprint: thumbprint, previous, ...(jkt !== undefined && { dpop_jkt: jkt }) },
      assertions: issuer === undefined ? [] : [isIssuing(database, issuer)],
      statements: [
        retirePins(database, { type, id, graceUntil: until }),
        insertPin(database, { thumbprint, type, id, issuer, notBefore, notAfter, at }),
        jkt === undefined
          ? touchRevision(database, change)
          : setDpopJkt(database, { ...change, jkt, previous: key, graceUntil: until }),
      ],
    }
  })
  const wasPinned = before.cert_thumbprint !== null && before.cert_thumbprint !== thumbprint
  return wasPinned && until !== null ? new Date(until).toISOString() : null
}
