import { z } from 'zod'
import { resourceAuthority } from '../../../db/mcp/authority.ts'
import { type McpResource, raiseMcpRevision } from '../../../db/mcp/resources.ts'
import { storeServerFacts } from '../../../db/mcp/server-facts.ts'
import { approveMcpTool, listMcpTools, REJECTED_FLAG, rejectMcpTool } from '../../../db/mcp/tools.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import { conflict, notFound, Refusal } from '../../../plugins/refusal.ts'
import {
  instructionsDigest,
  introductionDigest,
  introductionOf,
  pendingIntroduction,
} from '../../mcp/pinning/introduction.ts'
import { commitChange } from '../operation/change.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { operation } from '../operation/operation.ts'
import { resourceParams } from '../operation/shapes.ts'
import { mcpResource, resourceAnswer, withLatestResource } from './one-resource.ts'
import { resourceDetail } from './view.ts'

/** The digest that was looked at: an approval without one would approve any definition that waits by then. */
export const approval = z.strictObject({
  digest: z
    .string({ error: 'is required: the digest of what you have read, which the resource shows as pending' })
    .regex(/^[0-9a-f]{64}$/, 'must be the pending digest: 64 of 0-9 and a-f'),
})

/**
 * POST …/{resource_id}/server/approve: puts in force the waiting introduction of that digest, with one audit
 * row in the same transaction. Refuses another one with `precondition_failed`.
 */
export const approveIntroduction = operation({
  name: 'approveMcpServer',
  demands: 'admin.tools',
  action: 'mcp_resource.updated',
  object: (context, { params: { resource_id: id } }) => mcpResource(context, id),
  conditional: true,
  summary: 'Approves what a server says about itself, with its instructions, by the digest that was read.',
  takes: { params: resourceParams, body: approval },
  output: resourceDetail,
  revised: true,
  fromStrangers: true,
  reasons: ['not_found', 'conflict', 'precondition_failed', 'audit_unavailable'],
  run: async (context, { params: { resource_id: id }, body: { digest }, ifMatch }, caller) => {
    await withLatestResource(context, { id, ifMatch }, async (resource) => {
      const { server_facts: facts } = resource
      const pending = pendingIntroduction(facts)
      if (pending === null)
        throw conflict('This server says nothing new about itself. Refresh it to read it again.')
      if (introductionDigest(pending) !== digest) throw new Refusal('precondition_failed')
      const { serverInfo: _, instructions: __, waits: ___, ...others } = facts ?? {}
      const approved = introductionOf(facts)
      await commitChange(context, caller, {
        action: 'mcp_resource.updated',
        detail: {
          subject: id,
          ...resourceAuthority(resource, resource.revision + 1),
          fields: { server_sha256: digest, instructions_sha256: instructionsDigest(pending) },
          previous: {
            server_sha256: introductionDigest(approved),
            instructions_sha256: instructionsDigest(approved),
          },
        },
        statements: [
          // Read from JSON: nothing else is in them.
          storeServerFacts(
            context.database,
            resource,
            { ...(others as JsonObject), ...pending },
            caller.actor.id,
          ),
        ],
      })
    })
    return resourceAnswer(context, id)
  },
})

/**
 * POST …/{resource_id}/tools/{tool}/approve: pins the waiting definition of that digest, with one audit row
 * in the same transaction. Refuses another one with `precondition_failed`.
 */
export const approveTool = operation({
  name: 'approveMcpTool',
  demands: 'admin.tools',
  action: 'mcp_resource.tool_approved',
  object: (context, { params: { resource_id: id } }) => mcpResource(context, id),
  conditional: true,
  summary: 'Approves the pending definition of a tool, by the digest that was read.',
  takes: { params: resourceParams.extend({ tool: z.string() }), body: approval },
  gives: async (context, { params: { resource_id: id, tool } }) => ({
    resourceId: (await mcpResource(context, id)).resource_id,
    tool,
  }),
  output: resourceDetail,
  revised: true,
  fromStrangers: true,
  reasons: ['not_found', 'conflict', 'precondition_failed', 'audit_unavailable'],
  run: async (context, { params, body: { digest }, ifMatch }, caller) => {
    const { resource_id: id } = params
    await withLatestResource(context, { id, ifMatch }, async (resource) => {
      const waiting = await requireWaitingDefinition(context, resource, params.tool)
      if (digest !== waiting.pending) throw new Refusal('precondition_failed')
      await approve(context, caller, resource, { tool: params.tool, ...waiting })
    })
    return resourceAnswer(context, id)
  },
})

/**
 * POST …/{resource_id}/tools/{tool}/reject: says that the waiting definition of that digest has been read and
 * is not wanted. It stays in quarantine, and asks nobody again until it is another one.
 */
export const rejectTool = operation({
  name: 'rejectMcpTool',
  demands: 'admin.tools',
  action: 'mcp_resource.updated',
  harmless: true,
  object: (context, { params: { resource_id: id } }) => mcpResource(context, id),
  conditional: true,
  summary: 'Rejects the pending definition of a tool, by the digest that was read: it stays in quarantine.',
  takes: { params: resourceParams.extend({ tool: z.string() }), body: approval },
  output: resourceDetail,
  revised: true,
  fromStrangers: true,
  reasons: ['not_found', 'conflict', 'precondition_failed', 'audit_unavailable'],
  run: async (context, { params, body: { digest }, ifMatch }, caller) => {
    const { resource_id: id, tool } = params
    await withLatestResource(context, { id, ifMatch }, async (resource) => {
      const { pending, flags } = await requireWaitingDefinition(context, resource, tool)
      if (digest !== pending) throw new Refusal('precondition_failed')
      if (flags.includes(REJECTED_FLAG))
        throw conflict('This definition is rejected already. Nothing is left to do.')
      const { database } = context
      const { resource_id: resourceId, name, revision } = resource
      await commitChange(context, caller, {
        action: 'mcp_resource.updated',
        detail: {
          subject: resourceId,
          ...resourceAuthority(resource, revision + 1),
          fields: { rejected: { tool, digest } },
        },
        tool: `${name}.${tool}`,
        statements: [
          raiseMcpRevision(database, resource, 1, caller.actor.id),
          rejectMcpTool(database, { resourceId, name: tool, pendingDigest: pending, flags }),
        ],
      })
    })
    return resourceAnswer(context, id)
  },
})

/** Finds the waiting definition of a tool by its digest, and the approved one, if any. */
async function requireWaitingDefinition(
  { database }: AdminContext,
  { resource_id: id }: McpResource,
  name: string,
) {
  const tool = (await listMcpTools(database, id)).find((one) => one.name === name)
  if (!tool) throw notFound('This resource has no tool with this name. GET the resource lists its tools.')
  const { state, pending_digest: pending, digest: previous } = tool
  if (state === 'gone' || pending === null) {
    throw conflict('No definition of this tool is waiting for approval. Refresh the server to read it again.')
  }
  if (!tool.pending_is_whole) throw new Refusal('precondition_failed', { message: READ_BEFORE })
  return { pending, previous, flags: tool.flags }
}

const READ_BEFORE =
  'An earlier version of this service read this definition, and its digest leaves members out. Refresh the server, and read it again.'

interface DefinitionApproval {
  readonly tool: string
  readonly pending: string
  readonly previous: string | null
  readonly flags: readonly string[]
}

function approve(
  context: AdminContext,
  caller: AdminCaller,
  resource: McpResource,
  { tool, pending, previous, flags }: DefinitionApproval,
): Promise<void> {
  const { database } = context
  const { resource_id: resourceId, name, revision } = resource
  return commitChange(context, caller, {
    action: 'mcp_resource.tool_approved',
    detail: {
      subject: resourceId,
      ...resourceAuthority(resource, revision + 1),
      ...{ tool, digest: pending, previous, pinned: [[tool, pending]] },
    },
    tool: `${name}.${tool}`,
    statements: [
      raiseMcpRevision(database, resource, 1, caller.actor.id),
      approveMcpTool(database, { resourceId, name: tool, pendingDigest: pending, at: caller.at, flags }),
    ],
  })
}
