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
import { operation, type ParsedInput } from '../operation/operation.ts'
import { resourceParams } from '../operation/shapes.ts'
import { mcpResource, RESOURCE_CHANGE, resourceAnswer, withLatestResource } from './one-resource.ts'

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
  ...RESOURCE_CHANGE,
  name: 'approveMcpServer',
  action: 'mcp_resource.updated',
  summary: 'Approves what a server says about itself, with its instructions, by the digest that was read.',
  takes: { params: resourceParams, body: approval },
  run: async (context, { params: { resource_id: id }, body: { digest }, ifMatch }, caller) => {
    await withLatestResource(context, { id, ifMatch }, async (resource) => {
      const { server_facts: facts } = resource
      const pending = pendingIntroduction(facts)
      if (pending === null)
        throw conflict('This server says nothing new about itself. Refresh it to read it again.')
      if (introductionDigest(pending) !== digest) throw new Refusal('precondition_failed')
      const { serverInfo: _, instructions: __, waits: ___, ...others } = facts ?? {}
      const approved = introductionOf(facts)
      // Read from JSON: nothing else is in them.
      const stored = { ...(others as JsonObject), ...pending }
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
        statements: [storeServerFacts(context.database, resource, stored, caller.actor.id)],
      })
    })
    return resourceAnswer(context, id)
  },
})

const toolInput = { params: resourceParams.extend({ tool: z.string() }), body: approval }

/**
 * POST …/{resource_id}/tools/{tool}/approve: pins the waiting definition of that digest, with one audit row
 * in the same transaction. Refuses another one with `precondition_failed`.
 */
export const approveTool = operation({
  ...RESOURCE_CHANGE,
  name: 'approveMcpTool',
  action: 'mcp_resource.tool_approved',
  summary: 'Approves the pending definition of a tool, by the digest that was read.',
  takes: toolInput,
  gives: async (context, { params: { resource_id: id, tool } }) => ({
    resourceId: (await mcpResource(context, id)).resource_id,
    tool,
  }),
  run: (context, input, caller) =>
    decideTool(context, caller, input, ({ previous, ...waiting }) => ({
      action: 'mcp_resource.tool_approved',
      detail: {
        ...{ tool: waiting.name, digest: waiting.pendingDigest, previous },
        pinned: [[waiting.name, waiting.pendingDigest]],
      },
      statements: [approveMcpTool(context.database, { ...waiting, at: caller.at })],
    })),
})

/**
 * POST …/{resource_id}/tools/{tool}/reject: says that the waiting definition of that digest has been read and
 * is not wanted. It stays in quarantine, and asks nobody again until it is another one.
 */
export const rejectTool = operation({
  ...RESOURCE_CHANGE,
  name: 'rejectMcpTool',
  action: 'mcp_resource.updated',
  harmless: true,
  summary: 'Rejects the pending definition of a tool, by the digest that was read: it stays in quarantine.',
  takes: toolInput,
  run: (context, input, caller) =>
    decideTool(context, caller, input, (waiting) => {
      const { name: tool, pendingDigest: digest, flags } = waiting
      if (flags.includes(REJECTED_FLAG))
        throw conflict('This definition is rejected already. Nothing is left to do.')
      return {
        action: 'mcp_resource.updated',
        detail: { fields: { rejected: { tool, digest } } },
        statements: [rejectMcpTool(context.database, waiting)],
      }
    }),
})

/** Changes the state of a definition that waits, as `decide` says of it, with one audit row. */
async function decideTool(
  context: AdminContext,
  caller: AdminCaller,
  { params, body: { digest }, ifMatch }: ParsedInput<typeof toolInput>,
  decide: (waiting: WaitingDefinition) => Parameters<typeof commitChange>[2],
) {
  const { resource_id: id, tool } = params
  await withLatestResource(context, { id, ifMatch }, async (resource) => {
    const waiting = await requireWaitingDefinition(context, resource, tool)
    if (digest !== waiting.pendingDigest) throw new Refusal('precondition_failed')
    const { action, detail, statements } = decide(waiting)
    await commitChange(context, caller, {
      action,
      detail: { subject: id, ...resourceAuthority(resource, resource.revision + 1), ...detail },
      tool: `${resource.name}.${tool}`,
      statements: [raiseMcpRevision(context.database, resource, 1, caller.actor.id), ...statements],
    })
  })
  return resourceAnswer(context, id)
}

type WaitingDefinition = Awaited<ReturnType<typeof requireWaitingDefinition>>

/** Finds the waiting definition of a tool, and the digest of the approved one, if any. */
async function requireWaitingDefinition(
  { database }: AdminContext,
  { resource_id: resourceId }: McpResource,
  name: string,
) {
  const tool = (await listMcpTools(database, resourceId)).find((one) => one.name === name)
  if (!tool) throw notFound('This resource has no tool with this name. GET the resource lists its tools.')
  const { state, pending_digest: pendingDigest, digest: previous, flags } = tool
  if (state === 'gone' || pendingDigest === null)
    throw conflict('No definition of this tool is waiting for approval. Refresh the server to read it again.')
  if (!tool.pending_is_whole) throw new Refusal('precondition_failed', { message: READ_BEFORE })
  return { resourceId, name, pendingDigest, previous, flags }
}

const READ_BEFORE =
  'An earlier version of this service read this definition, and its digest leaves members out. Refresh the server, and read it again.'
