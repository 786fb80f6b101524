import { z } from 'zod'
import { readCaCertificates } from '../../../certs/enrollment/ca-certificate.ts'
import { type AttachedCa, attachCa, detachCa, listAttachedCas } from '../../../db/attached-cas.ts'
import { Refusal, unprocessable } from '../../../plugins/refusal.ts'
import { json, type Reply } from '../../http/reply.ts'
import { certificateRefusal } from '../certificate-refusal.ts'
import { type AdminContext, change } from '../change.ts'
import { parse } from '../parse.ts'
import type { AdminBodyRequest, AdminRequest } from '../principals/principals.ts'

// The TLS listener names them all in each handshake, and a handshake's messages have an end.
const MAX_CAS = 100

const attachment = z.strictObject({
  ca_pem: z.string().max(256 * 1024),
  kind: z.enum(['organisation', 'spiffe']),
})

/** POST /v1/admin/ca/attach: trusts one CA, or all of a bundle, for enrollment. Existing pins do not change. */
export const attachCas =
  (context: AdminContext) =>
  async (facts: AdminBodyRequest): Promise<Reply> => {
    const { ca_pem: text, kind } = parse(attachment, facts.json)
    const cas = read(text, facts.at)
    const { database } = context
    if ((await listAttachedCas(database)).length + cas.length > MAX_CAS) {
      throw unprocessable([{ field: 'ca_pem', message: `would make more than ${MAX_CAS} attached CAs` }])
    }
    const statements = cas.map((ca) => attachCa(database, { ...ca, caPem: ca.pem, kind, at: facts.at }))
    const detail = { kind, digests: cas.map(({ digest }) => digest) }
    await change(context, facts, { action: 'ca.attached', detail, statements }, 'ca_attached_already')
    await context.clientCasChanged()
    const attached = await listAttachedCas(database, kind)
    return json(201, attached.filter(({ digest }) => detail.digests.includes(digest)).map(shown))
  }

/** GET /v1/admin/ca */
export const listCas =
  ({ database }: AdminContext) =>
  async (): Promise<Reply> =>
    json(200, (await listAttachedCas(database)).map(shown))

/** DELETE /v1/admin/ca/{digest}: nothing new is enrolled by it. What is pinned stays; what is known by SPIFFE id alone does not. */
export const detach =
  (context: AdminContext) =>
  async (facts: AdminRequest): Promise<Reply> => {
    const { digest = '' } = facts.params
    const found = (await listAttachedCas(context.database)).find((ca) => ca.digest === digest)
    if (!found) throw new Refusal('not_found', { message: 'No CA of this digest is attached.' })
    const statements = [detachCa(context.database, digest)]
    await change(context, facts, { action: 'ca.detached', detail: { digest, kind: found.kind }, statements })
    await context.clientCasChanged()
    return { status: 204 }
  }

function read(text: string, at: number) {
  try {
    return readCaCertificates(text, at)
  } catch (error) {
    return certificateRefusal(error)
  }
}

const shown = ({ digest, kind, subject, not_after, attached_at, ca_pem }: AttachedCa) => ({
  digest,
  kind,
  subject,
  not_after,
  attached_at,
  ca_pem,
})
