import { z } from 'zod'
import { CERTIFICATE_REASONS } from '../../../certs/certificate-error.ts'
import { type AttachedCa, attachCa, detachCa, listAttachedCas } from '../../../db/principals/attached-cas.ts'
import { type CaReliance, caReliance, noAgentTrustsOnly } from '../../../db/principals/trusted-cas.ts'
import { notFound, Refusal, unprocessableBody } from '../../../plugins/refusal.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import { certificateThread } from '../operation/certificate-thread.ts'
import { commitChange } from '../operation/change.ts'
import type { AdminContext } from '../operation/context.ts'
import { emptyOperation, operation, readOperation } from '../operation/operation.ts'
import { instant, passedOverBlocks, passedOverOf, pemText, sha256 } from '../operation/shapes.ts'

// An enrollment, and the first call of a rotated SVID, build a chain among all of them.
const MAX_CAS = 100

const KINDS = ['organisation', 'spiffe'] as const

export const attachment = z.strictObject({ ca_pem: z.string().max(256 * 1024), kind: z.enum(KINDS) })

const attachedCa = z
  .strictObject({
    digest: sha256,
    kind: z.enum(KINDS),
    subject: z.string(),
    not_after: instant,
    attached_at: instant,
    ca_pem: pemText,
    agents: z.int().meta({ description: 'The number of active agents that it vouches for.' }),
    agents_alone: z.int().meta({ description: 'The number of them that no other CA vouches for.' }),
  })
  .meta({ id: 'AttachedCa' })

/** Reads a CA to attach: the statements and the note of one change. Refuses a certificate that is no CA. */
export async function prepareCaAttachment(
  { database }: Pick<AdminContext, 'database'>,
  { ca_pem: caPem, kind }: z.output<typeof attachment>,
  at: number,
) {
  const read = await certificateThread.ask('readCaBundle', { caPem, at })
  const attached = await listAttachedCas(database)
  const [known, cas] = partition(read.cas, ({ digest }) => attached.some((ca) => ca.digest === digest))
  if (attached.length + cas.length > MAX_CAS) {
    throw unprocessableBody([{ field: 'ca_pem', message: `would make more than ${MAX_CAS} attached CAs` }])
  }
  if (cas.length === 0) throw new Refusal('ca_attached_already')
  const passedOver = [
    ...read.passedOver,
    ...known.map(({ line, subject }) => ({
      ...{ line, subject, reason: 'attached_already' },
      message: 'This CA is attached already. Leave it out.',
    })),
  ].toSorted((a, b) => a.line - b.line)
  return {
    statements: cas.map((ca) => attachCa(database, { ...ca, caPem: ca.pem, kind, at })),
    action: 'ca.attached',
    detail: { kind, digests: cas.map(({ digest }) => digest), ...passedOverOf(passedOver) },
  }
}

function partition<T>(all: readonly T[], test: (one: T) => boolean): readonly [readonly T[], readonly T[]] {
  return [all.filter(test), all.filter((one) => !test(one))]
}

/**
 * POST /v1/admin/ca/attach: trusts the CAs of a bundle for enrollment. They vouch for nobody enrolled before
 * (docs/protocol.md#trusted-cas).
 */
export const attachCas = operation({
  name: 'attachCas',
  demands: 'admin.settings',
  action: 'ca.attached',
  twoPersonKind: 'trust',
  summary: 'Attaches one CA, or all CAs of a bundle: they are trusted for enrollment from now on.',
  takes: { body: attachment },
  output: z.array(
    attachedCa.extend({
      passed_over: passedOverBlocks.meta({
        description: 'Of the first alone: the blocks of the text that are left out, if there are any.',
      }),
    }),
  ),
  status: 201,
  reasons: ['ca_attached_already', 'audit_unavailable', ...CERTIFICATE_REASONS],
  run: async (context, { body }, caller) => {
    const made = await prepareCaAttachment(context, body, caller.at)
    await commitChange(context, caller, made, 'ca_attached_already')
    const attached = await listAttachedCas(context.database, body.kind)
    const found = attached.filter(({ digest }) => made.detail.digests.includes(digest))
    const { digests: _, kind: __, ...odd } = made.detail
    return { value: found.map((ca, i) => ({ ...attachedCaView(ca), ...(i === 0 && odd) })) }
  },
})

export const listCas = readOperation({
  name: 'listCas',
  summary: 'Lists the CAs that are trusted for enrollment, oldest first.',
  takes: {},
  output: z.array(attachedCa),
  run: async ({ database }) => {
    const reliance = await caReliance(database, eventLoopTurn)
    return {
      value: (await listAttachedCas(database)).map((ca) => attachedCaView(ca, reliance.get(ca.digest))),
    }
  },
})

const lockOut = z
  .enum(['true', 'false'])
  .transform((text) => text === 'true')
  .default(false)
  .meta({
    type: 'string',
    enum: ['true', 'false'],
    default: 'false',
    description: 'True: detach it even if agents rely on it alone. Those agents lose access.',
  })

/**
 * DELETE /v1/admin/ca/{digest}: enrolls nothing new, and vouches for nobody. A pinned certificate stays.
 * Refuses with `ca_relied_on`, naming them, if SPIFFE agents rest on it alone, unless `lock_out` is set.
 */
export const detachCaByDigest = emptyOperation({
  name: 'detachCa',
  demands: 'admin.settings',
  action: 'ca.detached',
  twoPersonKind: 'trust',
  summary: 'Detaches a CA. Certificates that are pinned stay pinned.',
  takes: { params: z.object({ digest: z.string() }), query: z.object({ lock_out: lockOut }) },
  reasons: ['not_found', 'ca_relied_on', 'audit_unavailable'],
  resembles: async ({ database }, { params: { digest }, query: { lock_out: locksOut } }) => {
    const { named = [] } = (await caReliance(database, eventLoopTurn)).get(digest) ?? {}
    return locksOut ? named.map((principal) => ({ principal, is_active: false as const })) : []
  },
  run: async (context, { params: { digest }, query: { lock_out: locksOut } }, caller) => {
    const { database } = context
    const found = (await listAttachedCas(database)).find((ca) => ca.digest === digest)
    if (!found) throw notFound('No CA with this digest is attached. GET /v1/admin/ca lists those that are.')
    const { alone = 0, named = [] } = (await caReliance(database, eventLoopTurn)).get(digest) ?? {}
    if (alone > 0 && !locksOut) {
      throw new Refusal('ca_relied_on', { detail: { agents: [...named], agents_alone: alone } })
    }
    await commitChange(context, caller, {
      action: 'ca.detached',
      detail: { digest, kind: found.kind, ...(alone > 0 && { locked_out: alone }) },
      assertions: locksOut ? [] : [noAgentTrustsOnly(database, digest)],
      statements: [detachCa(database, digest)],
    })
  },
})

const attachedCaView = (
  ca: AttachedCa,
  { agents, alone }: Pick<CaReliance, 'agents' | 'alone'> = { agents: 0, alone: 0 },
) => ({ ...ca, agents, agents_alone: alone })
