import { z } from 'zod'
import {
  approvalDetail,
  decideApproval,
  findApproval,
  isApprovalUsed,
  listApprovals,
  type StoredApproval,
} from '../../../db/mcp/approvals.ts'
import { listMcpTools } from '../../../db/mcp/tools.ts'
import { APPROVAL_STATUSES, type ApprovalStatus } from '../../../db/schema.ts'
import { commitmentsBy } from '../../../plugins/pin/pin.ts'
import { conflict, notFound, Refusal } from '../../../plugins/refusal.ts'
import { openSealed } from '../../../plugins/secrets/seal.ts'
import { argumentsKey } from '../../mcp/pinning/approval-keys.ts'
import { commitChange, isOvertaken } from '../operation/change.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { emptyOperation, readOperation } from '../operation/operation.ts'
import { idParams, instant, listCursor, pageLimit, sha256 } from '../operation/shapes.ts'

const STATUSES = [...APPROVAL_STATUSES, 'used'] as const

const summary = {
  id: z.string(),
  status: z.enum(STATUSES),
  principal: z.string().meta({ description: 'The id of whose call it is.' }),
  principal_type: z.enum(['agent', 'user', 'workload', 'operator']),
  client: z.string().nullable().meta({ description: "The client's own words about itself." }),
  resource: z.string(),
  resource_id: z.string(),
  tool: z.string(),
  approver: z.enum(['operator', 'person']).meta({
    description: 'person: only the person whose call it is can approve it, on their own page.',
  }),
  request_id: z.string().meta({ description: 'The first call that asked for it.' }),
  arguments_bytes: z.int(),
  created_at: instant,
  expires_at: instant,
  decided_by: z.string().nullable(),
  decided_at: instant.nullable(),
  reason: z.string().nullable(),
}

export const approvalSummary = z.strictObject(summary).meta({ id: 'Approval' })

export const approvalView = z
  .strictObject({
    ...summary,
    resource_revision: z.int(),
    pin: sha256.meta({ description: 'The digest of the approved definition of the tool.' }),
    call_digest: sha256,
    arguments: z.string().nullable().meta({
      description: 'All arguments: JSON text in canonical form (RFC 8785). Null once it is decided or over.',
    }),
    definition: z.record(z.string(), z.unknown()).nullable().meta({
      description: "The tool's definition; null if it is not that of the pin any more.",
    }),
  })
  .meta({ id: 'ApprovalDetail' })

const NO_SUCH = 'There is no approval with this id. GET /v1/admin/approvals lists them.'

/** The state at an instant: the task that ends approvals may not have come by, and a use changes no row. */
async function statusAt(
  { database }: AdminContext,
  { approval_id: id, status, expires_at: until }: StoredApproval,
  at: number,
): Promise<(typeof STATUSES)[number]> {
  if (status === 'approved' && (await isApprovalUsed(database)(id))) return 'used'
  const isOver = at >= Date.parse(until)
  return isOver && (status === 'open' || status === 'approved') ? 'expired' : status
}

const summaryOf = async (context: AdminContext, one: StoredApproval, at: number) => ({
  id: one.approval_id,
  status: await statusAt(context, one, at),
  principal: one.principal_id,
  principal_type: one.principal_type,
  client: one.client,
  resource: one.resource_name,
  resource_id: one.resource_id,
  tool: one.tool,
  approver: one.approver,
  request_id: one.request_id,
  arguments_bytes: one.arguments_bytes,
  created_at: one.created_at,
  expires_at: one.expires_at,
  decided_by: one.decided_by,
  decided_at: one.decided_at,
  reason: one.reason,
})

/** Shows a call that waits with its definition, and with its arguments while it is open. `at`: ms. */
export async function viewApproval(context: AdminContext, found: StoredApproval, at: number) {
  const shown = await summaryOf(context, found, at)
  return {
    ...shown,
    resource_revision: found.resource_revision,
    pin: found.pin,
    call_digest: found.call_digest,
    arguments: shown.status === 'open' ? await argumentsOf(context, found) : null,
    definition: await definitionOf(context, found),
  }
}

/** Opens the arguments; null if they are forgotten. */
async function argumentsOf(
  { subjectKeys }: AdminContext,
  { approval_id: id, principal_ref: ref, arguments: sealed }: StoredApproval,
): Promise<string | null> {
  const key = sealed === null ? null : await subjectKeys.find(ref)
  if (key === null || sealed === null) return null
  const opened = openSealed(
    argumentsKey(commitmentsBy(key, '')),
    Buffer.from(sealed, 'base64'),
    Buffer.from(id),
  )
  return opened.toString()
}

async function definitionOf(
  { database }: AdminContext,
  { resource_id: id, tool: name, pin }: StoredApproval,
): Promise<Record<string, unknown> | null> {
  const tool = (await listMcpTools(database, id)).find((one) => one.name === name && one.digest === pin)
  // Proven by the reader of tools: only objects were ever stored.
  return tool?.definition ? (JSON.parse(tool.definition) as Record<string, unknown>) : null
}

const page = z.strictObject({
  status: z.enum(APPROVAL_STATUSES).exactOptional(),
  limit: pageLimit(),
  cursor: listCursor.exactOptional(),
})

/** Lists calls that wait for an approval, or did in the last day, without their arguments. */
export const listAllApprovals = readOperation({
  name: 'listApprovals',
  summary: 'Lists the calls that wait for an approval, or have waited for one, newest first.',
  takes: { query: page },
  output: z.strictObject({ approvals: z.array(approvalSummary) }),
  paged: true,
  fromStrangers: true,
  run: async (context, { query }, { at }) => {
    const { items, nextCursor } = await listApprovals(context.database, query)
    const { status, limit } = query
    const more = { ...(status && { status }), limit: String(limit) }
    const next = nextCursor === null ? null : { ...more, cursor: nextCursor }
    return { value: { approvals: await Promise.all(items.map((one) => summaryOf(context, one, at))) }, next }
  },
})

export const getApproval = readOperation({
  name: 'getApproval',
  summary: 'Shows a call that waits for an approval, with all of its arguments.',
  takes: { params: idParams },
  output: approvalView,
  fromStrangers: true,
  reasons: ['not_found'],
  run: async (context, { params: { id } }, { at }) => {
    const found = await findApproval(context.database, id)
    if (!found) throw notFound(NO_SUCH)
    return { value: await viewApproval(context, found, at) }
  },
})

/** The reason for a decision: the caller reads it. */
export const approvalReason = z
  .string()
  .max(500)
  .regex(/^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*$/u, 'must not contain control or formatting characters')

const decision = z.strictObject({ reason: approvalReason.nullish() }).default({})

/** Finds an open approval that this operator may decide about. Refuses with `own_call`. */
async function decidable(
  { database }: AdminContext,
  id: string,
  status: DecidedStatus,
  { at, actor }: AdminCaller,
): Promise<StoredApproval> {
  const found = await findApproval(database, id)
  if (!found) throw notFound(NO_SUCH)
  if (actor.via === 'secret' || actor.id === found.principal_ref || actor.id === found.principal_id)
    throw new Refusal('own_call')
  if (status === 'approved' && found.approver === 'person')
    throw new Refusal('own_call', { message: 'Only the person whose call it is can approve it.' })
  requireOpen(found, at)
  return found
}

/** Refuses with `conflict` an approval that is decided, or over. */
export function requireOpen(found: StoredApproval, at: number): void {
  if (found.status !== 'open')
    throw conflict(`This call is already ${found.status}. If it is sent again, it asks again.`)
  if (at >= Date.parse(found.expires_at))
    throw conflict('The time to approve this call is over. If it is sent again, it asks again.')
}

export type DecidedStatus = Extract<ApprovalStatus, 'approved' | 'declined'>

const deciding = (status: DecidedStatus, name: string, text: string) =>
  emptyOperation({
    name,
    demands: 'admin.approve',
    action: `approval.${status}`,
    summary: text,
    takes: { params: idParams, body: decision },
    reasons: ['not_found', 'conflict', 'own_call', 'precondition_failed', 'audit_unavailable'],
    example: { reason: 'As agreed.' },
    run: async (context, { params: { id }, body }, caller) => {
      const found = await decidable(context, id, status, caller)
      const { at, actor } = caller
      const reason = body.reason || null
      try {
        await commitChange(context, caller, {
          action: `approval.${status}`,
          detail: { ...approvalDetail(found), ...(reason !== null && { reason }) },
          statements: [
            decideApproval(context.database, { id, status, by: actor.id, via: actor.via, reason, at }),
          ],
        })
      } catch (error) {
        if (isOvertaken(error)) await decidable(context, id, status, caller)
        throw error
      }
    },
  })

export const approveCall = deciding(
  'approved',
  'approveCall',
  'Approves one call: exactly this one, once, until its time is over.',
)

export const declineCall = deciding(
  'declined',
  'declineCall',
  'Declines a call. Its caller is told the reason.',
)
