import { z } from 'zod'
import { heldCapabilities, toolDefined } from '../../../db/mcp/vocabulary.ts'
import { ADMIN_CAPABILITIES } from '../../../plugins/operators/capabilities.ts'
import { turn } from '../../../plugins/turns.ts'
import { operation } from '../operation.ts'
import { token } from '../shapes.ts'

/** The capabilities that this service itself demands, whatever is registered (spec §2.2). */
export const BUILT_IN: readonly string[] = [
  'llm.chat',
  'mcp.tools.list',
  'mcp.tools.call',
  'mcp.resources.read',
  'mcp.prompts.get',
  'http.get',
  ...ADMIN_CAPABILITIES,
]

/**
 * GET /v1/admin/capabilities: the vocabulary. `built_in`: also what administration demands, which operators alone hold. `tool_defined`: what registered resources and their tools
 * demand beside the built-in ones; `operator_defined`: what somebody holds and nothing here demands, with how
 * many hold it.
 */
export const listCapabilities = operation({
  name: 'listCapabilities',
  demands: 'admin.read',
  action: 'admin.read',
  summary: 'Lists the capabilities that anything demands or anybody holds.',
  takes: {},
  output: z.strictObject({
    built_in: z.array(token),
    tool_defined: z.array(
      z.strictObject({ capability: token, resource: z.string(), tool: z.string().nullable() }),
    ),
    operator_defined: z.array(z.strictObject({ capability: token, principals: z.int() })),
  }),
  status: 200,
  reasons: [],
  run: async ({ database }) => {
    const demanded = (await toolDefined(database, turn)).filter(
      ({ capability }) => !BUILT_IN.includes(capability),
    )
    const known = new Set<string>([...BUILT_IN, ...demanded.map(({ capability }) => capability)])
    const held = await heldCapabilities(database, turn)
    return {
      value: {
        built_in: BUILT_IN,
        tool_defined: demanded,
        operator_defined: held.filter(({ capability }) => !known.has(capability)),
      },
    }
  },
})
