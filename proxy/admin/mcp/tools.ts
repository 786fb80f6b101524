import { z } from 'zod'
import { approveMcpTool, listMcpTools } from '../../../db/mcp/tools.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { change } from '../change.ts'
import { operation } from '../operation.ts'
import { mcpResource, resourceAnswer } from './resources.ts'
import { resourceDetail } from './view.ts'

const approval = z.strictObject({
  digest: z
    .string()
    .regex(/^[0-9a-f]{64}$/, 'must be the pending digest: 64 of 0-9 and a-f')
    .exactOptional(),
})

/**
 * POST …/{resource_id}/tools/{tool}/approve: pins the definition that waits, with one audit row in the same
 * transaction. With `digest` one that has changed since it was looked at is refused with
 * `precondition_failed`.
 */
export const approveTool = operation({
  name: 'approveMcpTool',
  summary: 'Approves the definition of a tool that waits. With digest: only the one that was looked at.',
  takes: { params: z.object({ resource_id: z.string(), tool: z.string() }), body: approval },
  output: resourceDetail,
  status: 200,
  revised: true,
  fromStrangers: true,
  reasons: ['not_found', 'conflict', 'precondition_failed', 'audit_unavailable'],
  run: async (context, { params, body: { digest: expected } }, caller) => {
    const { resource_id: id, name } = await mcpResource(context, params.resource_id)
    const { database } = context
    const tool = (await listMcpTools(database, id)).find((one) => one.name === params.tool)
    if (!tool) throw new Refusal('not_found', { message: 'This resource has no tool of this name.' })
    const { state, pending_digest: pending, digest: previous } = tool
    if (state !== 'quarantined' || pending === null) {
      throw new Refusal('conflict', { message: 'No definition of this tool waits for approval.' })
    }
    if (expected !== undefined && expected !== pending) throw new Refusal('precondition_failed')
    await change(context, caller, {
      action: 'mcp_resource.tool_approved',
      detail: { subject: id, name, tool: tool.name, digest: pending, previous },
      tool: `${name}.${tool.name}`,
      statements: [
        approveMcpTool(database, { resourceId: id, name: tool.name, pendingDigest: pending, at: caller.at }),
      ],
    })
    return resourceAnswer(context, id)
  },
})
