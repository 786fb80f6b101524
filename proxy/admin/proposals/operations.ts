import { z } from 'zod'
import { findProposal, listProposals, type Proposal } from '../../../db/operators/proposals.ts'
import { conflict, notFound, Refusal } from '../../../plugins/refusal.ts'
import {
  emptyOperation,
  type InputSchemas,
  type Operation,
  operation,
  readOperation,
  requireCapability,
} from '../operation/operation.ts'
import { capabilityToken, idParams, instant, listCursor, pageLimit } from '../operation/shapes.ts'
import { confirmProposal, endProposal, openProposal } from './confirm.ts'

const STATUSES = ['open', 'confirmed', 'declined', 'expired', 'void'] as const

const view = z
  .strictObject({
    id: z.string(),
    by: z.string(),
    via: z.string(),
    at: instant,
    expires_at: instant,
    action: z.string().meta({ examples: ['agent.capabilities_patched'] }),
    capabilities: z.array(capabilityToken).meta({ description: 'What proposer and confirmer must hold.' }),
    change: z
      .looseObject({ operation: z.string() })
      .meta({ description: 'What was asked for; once it is decided, only the operation.' }),
    rehearsal: z
      .string()
      .nullable()
      .meta({ description: 'The rehearsal of the change; null if it could not be rehearsed.' }),
    etag: z.string().nullable(),
    status: z.enum(STATUSES),
    decided_by: z.string().nullable(),
    decided_at: instant.nullable(),
  })
  .meta({ id: 'Proposal' })

const proposalView = (proposal: Proposal): z.output<typeof view> => ({
  id: proposal.proposal_id,
  by: proposal.proposed_by,
  via: proposal.via,
  at: proposal.created_at,
  expires_at: proposal.expires_at,
  action: proposal.action,
  capabilities: [...proposal.capabilities],
  // Proven by propose: an object.
  change: { operation: proposal.operation, ...(JSON.parse(proposal.input) as object) },
  rehearsal: proposal.rehearsal_id,
  etag: proposal.etag,
  status: proposal.status,
  decided_by: proposal.decided_by,
  decided_at: proposal.decided_at,
})

const page = z.strictObject({
  status: z.enum(STATUSES).exactOptional(),
  limit: pageLimit(),
  cursor: listCursor.exactOptional(),
})

const list = readOperation({
  name: 'listProposals',
  summary: 'Lists the changes that are or were waiting for a second operator, newest first.',
  takes: { query: page },
  output: z.strictObject({ proposals: z.array(view) }),
  paged: true,
  run: async ({ database }, { query }) => {
    const { items, nextCursor } = await listProposals(database, query)
    const { status, limit } = query
    const more = { ...(status && { status }), limit: String(limit) }
    const next = nextCursor === null ? null : { ...more, cursor: nextCursor }
    return { value: { proposals: items.map(proposalView) }, next }
  },
})

const get = readOperation({
  name: 'getProposal',
  summary: 'Shows the proposal with that id.',
  takes: { params: idParams },
  output: view,
  reasons: ['not_found'],
  run: async ({ database }, { params: { id } }) => {
    const found = await findProposal(database, id)
    if (!found) throw notFound('There is no proposal with this id. GET /v1/admin/proposals lists them.')
    return { value: proposalView(found) }
  },
})

const decline = emptyOperation({
  name: 'declineProposal',
  demands: 'admin.read',
  action: 'proposal.declined',
  summary: "Declines a proposal, or withdraws the caller's own.",
  takes: { params: idParams },
  reasons: ['not_found', 'conflict', 'own_proposal', 'precondition_failed', 'audit_unavailable'],
  run: async (context, { params: { id } }, caller) => {
    const proposal = await openProposal(context, id, caller.at)
    const isOwn = proposal.proposed_by === caller.actor.id
    if (!isOwn && caller.actor.via === 'secret') throw new Refusal('own_proposal')
    if (!isOwn) for (const capability of proposal.capabilities) requireCapability(caller, capability)
    await endProposal(context, caller, proposal, 'declined')
  },
})

export function proposalOperations(all: readonly Operation<InputSchemas, unknown>[]) {
  const byName = new Map(all.map((one) => [one.name, one]))
  const confirm = operation({
    name: 'confirmProposal',
    demands: 'admin.read',
    action: 'proposal.confirmed',
    summary: 'Confirms a proposal of another operator: makes the change, and answers as that change would.',
    takes: { params: idParams },
    output: z.unknown(),
    reasons: ['not_found', 'conflict', 'own_proposal', 'precondition_failed', 'audit_unavailable'],
    run: async (context, { params: { id } }, caller) => {
      const proposal = await openProposal(context, id, caller.at)
      const bound = byName.get(proposal.operation)
      if (!bound) throw conflict('This version does not know this kind of change.')
      const { value, revision } = await confirmProposal(context, bound, proposal, caller)
      return { value: value ?? null, ...(revision !== undefined && { revision }) }
    },
  })
  return { list, get, confirm, decline }
}
