import { hash, type KeyObject, X509Certificate } from 'node:crypto'
import type { IssuingAuthority } from '../../../certs/authority/authority.ts'
import { certifyClient } from '../../../certs/authority/issue.ts'
import type { OrganisationAuthority } from '../../../certs/authority/rotation.ts'
import { boundedCache } from '../../../db/support/bounded-cache.ts'
import type { Principal } from '../../../plugins/facts.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { ChangeAuthor } from '../../../plugins/operators/actor.ts'
import type { Arrival, TlsPeer } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { PrincipalQuota } from '../../../plugins/secrets/quota.ts'
import type { MonotonicClock } from '../../../plugins/secrets/throttle.ts'
import { jsonReply, type Reply } from '../../http/reply.ts'
import { certificateThread } from '../operation/certificate-thread.ts'
import type { AdminContext } from '../operation/context.ts'
import { PRINCIPAL_KINDS } from '../operation/kinds.ts'
import { parse } from '../operation/operation.ts'
import {
  certificateSubject,
  certificateTerm,
  certificateView,
  checkRenewedLeaf,
  LEAF_RENEWED,
  renewedLeaf,
  replacePin,
} from './certificates.ts'
import { principalOf } from './view.ts'

type RenewalFacts = Arrival & JsonBody & { readonly principal: Principal }

const body = renewedLeaf.partial({ cert_pem: true })

/**
 * POST /v1/auth/certificate: a principal's own next certificate, for a key that it has made, asked for with
 * its current one (docs/protocol.md#renewal). One row `<type>.certificate_issued` by the principal itself.
 * Refuses with `renewal_refused` before the last third of the certificate's life, unless its CA is being
 * replaced, if another has taken its place, and if this CA did not issue it; with `renewal_throttled`; and as a certificate request is refused.
 * With `cert_pem`, the agent's own CA has issued the next one: {@link pinOwnLeaf}.
 */
export const renewClientCertificate =
  (context: AdminContext, renewals: RecentRenewals) =>
  async (facts: RenewalFacts): Promise<Reply> => {
    const { principal, peer, at } = facts
    if (!peer) throw new Refusal('certificate_required')
    renewals.count(principal.id)
    const { csr_pem: csrPem, cert_pem: certPem } = parse(body, facts.json)
    if (certPem !== undefined)
      return jsonReply(200, await pinOwnLeaf(context, facts, peer, { certPem, csrPem }))
    const authority = await context.issuing()
    checkRenewable(authority, peer, at)
    const kind = PRINCIPAL_KINDS[principal.type]
    const subject = certificateSubject(context, kind, await principalOf(context, kind, principal.id))
    const key = await certificateThread.ask('keyOfCsr', { csrPem, spiffeId: subject.spiffeId })
    const issued = renewals.once(peer, key, () => {
      const certificate = certifyClient(authority, key, subject, certificateTerm({ at }))
      return pinRenewed(context, facts, peer, certificate, `${kind.type}.certificate_issued`)
    })
    return jsonReply(200, await issued)
  }

/**
 * Pins the leaf that the agent's own CA has renewed, at the word of the one before: checked as at the
 * enrollment, for the same subject and names, and no older. Its key may be another: both were proven. Asked
 * again, the same leaf is answered again.
 */
async function pinOwnLeaf(
  context: AdminContext,
  facts: RenewalFacts,
  peer: TlsPeer,
  { certPem, csrPem }: { readonly certPem: string; readonly csrPem: string },
): Promise<object> {
  const { principal, at } = facts
  const record = await principalOf(context, PRINCIPAL_KINDS[principal.type], principal.id)
  if (record.enrollment_method !== 'byoca')
    throw new Refusal('renewal_refused', { message: 'Only an agent (byoca) may bring its own certificate.' })
  const checked = await checkRenewedLeaf(context, record, { cert_pem: certPem, csr_pem: csrPem }, at)
  const { subject, subjectAltName } = new X509Certificate(checked.certPem)
  const { certificate: before } = peer
  if (subject !== before.subject || subjectAltName !== before.subjectAltName)
    throw new Refusal('renewal_refused', {
      message: 'The certificate has another subject, or other names. An operator can put it in force.',
    })
  if (checked.notBefore < peer.notBefore)
    throw new Refusal('renewal_refused', {
      message: 'The certificate is older than the one it would replace. Send a newer one.',
    })
  return pinRenewed(context, facts, peer, checked, LEAF_RENEWED)
}

async function pinRenewed(
  context: AdminContext,
  { id, at, principal }: RenewalFacts,
  peer: TlsPeer,
  issued: Parameters<typeof replacePin>[3] & Parameters<typeof certificateView>[2],
  action: string,
): Promise<object> {
  const kind = PRINCIPAL_KINDS[principal.type]
  const actor: ChangeAuthor = { id: principal.ref, type: principal.type, via: 'certificate', standing: [] }
  const until = await replacePin(context, kind, { id, at, actor }, issued, {
    action,
    id: principal.id,
    // The answer may be lost: with no grace at all its caller would be locked out.
    hours: Math.max(context.rotationGraceHours, 1),
    ifMatch: undefined,
    // A deactivation, or another renewal, that came in between wins.
    guard: (record) => {
      if (!record.is_active) throw new Refusal('principal_deactivated')
      if (record.cert_thumbprint !== peer.thumbprint) throw replacedRefusal()
    },
  })
  return certificateView(kind, principal.id, issued, until)
}

function checkRenewable(
  authority: OrganisationAuthority,
  { certificate, ...peer }: TlsPeer,
  at: number,
): void {
  // It will end with its CA, however long it would live.
  const other = authority.rotation?.other
  if (other && isIssuedBy(certificate, other)) return
  if (!isIssuedBy(certificate, authority)) {
    throw new Refusal('renewal_refused', {
      message: 'This certificate was not issued here. Renew it with the CA that issued it.',
    })
  }
  const from = peer.notAfter - (peer.notAfter - peer.notBefore) / 3
  if (at >= from) return
  const instant = new Date(from).toISOString()
  throw new Refusal('renewal_refused', {
    message: `A certificate can be renewed only in the last third of its life: this one from ${instant} on.`,
    detail: { renewable_from: instant },
  })
}

function isIssuedBy(certificate: X509Certificate, { intermediatePem }: IssuingAuthority): boolean {
  const issuer = new X509Certificate(intermediatePem)
  return certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey)
}

const replacedRefusal = (): Refusal =>
  new Refusal('renewal_refused', {
    message: 'Another certificate has replaced this one. If that was not you, tell the operator.',
  })

/** The renewals that a principal may ask for in a minute. */
const MAX_RENEWALS_PER_MINUTE = 10
/** The answers that are kept: some 3 KiB each. */
const MAX_ANSWERS = 1_000

/**
 * Remembers renewals. Their recent number for each principal: a request is read and checked before it is
 * refused. And the last answers: one that was lost on its way is given again to the same certificate for the
 * same key, since that certificate is no longer the current one. Lost with the process.
 */
export class RecentRenewals {
  readonly #quota: PrincipalQuota
  readonly #answers = boundedCache<Promise<object>>(MAX_ANSWERS)

  constructor(now: MonotonicClock) {
    this.#quota = new PrincipalQuota(now, () => MAX_RENEWALS_PER_MINUTE)
  }

  /** Refuses with `renewal_throttled` a principal that has asked too often. */
  count(principalId: string): void {
    const waitS = this.#quota.consume(principalId)
    if (waitS > 0) throw new Refusal('renewal_throttled', { headers: { 'retry-after': String(waitS) } })
  }

  /** Returns this certificate's earlier answer for this key; makes one if there is none. */
  once({ thumbprint }: TlsPeer, key: KeyObject, issue: () => Promise<object>): Promise<object> {
    const name = `${thumbprint} ${hash('sha256', key.export({ type: 'spki', format: 'der' }))}`
    const known = this.#answers.get(name)
    if (known) return known
    const issued = issue()
    this.#answers.set(name, issued)
    issued.catch(() => this.#answers.delete(name))
    return issued
  }
}
