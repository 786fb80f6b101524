import { z } from 'zod'
import { approveMcpTool, listMcpTools } from '../../../db/mcp/tools.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { Reply } from '../../http/reply.ts'
import { type AdminContext, change } from '../change.ts'
import { parse } from '../parse.ts'
import type { AdminBodyRequest } from '../principals/principals.ts'
import { answerMcpResource, mcpResource } from './resources.ts'

const approval = z.strictObject({
  digest: z
    .string()
    .regex(/^[0-9a-f]{64}$/, 'must be the pending digest: 64 of 0-9 and a-f')
    .exactOptional(),
})

/**
 * POST …/{resource_id}/tools/{tool}/approve: the definition that waits becomes the pinned one, with one audit row in the
 * same transaction. With `digest` one that has changed since it was looked at is refused 412.
 */
export const approveTool =
  (context: AdminContext) =>
  async (facts: AdminBodyRequest): Promise<Reply> => {
    const { digest: expected } = parse(approval, facts.json)
    const { resource_id: id, name } = await mcpResource(context, facts.params.resource_id)
    const { database } = context
    const tool = (await listMcpTools(database, id)).find((one) => one.name === facts.params.tool)
    if (!tool) throw new Refusal('not_found', { message: 'This resource has no tool of this name.' })
    const { state, pending_digest: pending, digest: previous } = tool
    if (state !== 'quarantined' || pending === null) {
      throw new Refusal('conflict', { message: 'No definition of this tool waits for approval.' })
    }
    if (expected !== undefined && expected !== pending) throw new Refusal('precondition_failed')
    await change(context, facts, {
      action: 'mcp_resource.tool_approved',
      detail: { subject: id, name, tool: tool.name, digest: pending, previous },
      tool: `${name}.${tool.name}`,
      statements: [
        approveMcpTool(database, { resourceId: id, name: tool.name, pendingDigest: pending, at: facts.at }),
      ],
    })
    return answerMcpResource(context, id)
  }
