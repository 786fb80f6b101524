import { heldCapabilities, toolDefined } from '../../../db/mcp/vocabulary.ts'
import { json, type Reply } from '../../http/reply.ts'
import type { AdminContext } from '../change.ts'

/** What this service itself demands, whatever is registered (spec §2.2). */
export const BUILT_IN: readonly string[] = [
  'llm.chat',
  'mcp.tools.list',
  'mcp.tools.call',
  'mcp.resources.read',
  'mcp.prompts.get',
  'http.get',
]

/**
 * GET /v1/admin/capabilities: the vocabulary. `tool_defined`: what registered resources and their tools demand beside the
 * built-in ones; `operator_defined`: what somebody holds and nothing here demands, with how many hold it.
 */
export const listCapabilities =
  ({ database }: AdminContext) =>
  async (): Promise<Reply> => {
    const demanded = (await toolDefined(database)).filter(({ capability }) => !BUILT_IN.includes(capability))
    const known = new Set([...BUILT_IN, ...demanded.map(({ capability }) => capability)])
    const held = await heldCapabilities(database)
    return json(200, {
      built_in: BUILT_IN,
      tool_defined: demanded,
      operator_defined: held.filter(({ capability }) => !known.has(capability)),
    })
  }
