import { z } from 'zod'
import { type HolderCounts, heldCapabilities, listDemandedCapabilities } from '../../../db/mcp/vocabulary.ts'
import { ADMIN_CAPABILITIES } from '../../../plugins/operators/capabilities.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import type { AdminContext } from '../operation/context.ts'
import { readOperation } from '../operation/operation.ts'
import { capabilityToken } from '../operation/shapes.ts'

/** The capabilities that this service itself demands, whatever is registered (spec §2.2). */
export const BUILT_IN_CAPABILITIES: readonly string[] = [
  'llm.chat',
  'mcp.tools.list',
  'mcp.tools.call',
  'mcp.resources.read',
  'mcp.prompts.get',
  'http.get',
  ...ADMIN_CAPABILITIES,
]

/**
 * GET /v1/admin/capabilities. `built_in`: administration's too. `tool_defined`: demands of registered
 * resources and tools. `operator_defined`: held, and demanded by nothing here, with the number of holders.
 */
export const listCapabilities = readOperation({
  name: 'listCapabilities',
  summary: 'Lists the capabilities that something requires or somebody holds.',
  takes: {},
  output: z.strictObject({
    built_in: z.array(capabilityToken),
    tool_defined: z.array(
      z.strictObject({ capability: capabilityToken, resource: z.string(), tool: z.string().nullable() }),
    ),
    operator_defined: z.array(z.strictObject({ capability: capabilityToken, principals: z.int() })),
  }),
  run: async (context) => {
    const { demanded, held, made } = await capabilityVocabulary(context)
    return {
      value: {
        built_in: BUILT_IN_CAPABILITIES,
        tool_defined: demanded,
        operator_defined: held
          .filter(({ capability }) => made(capability))
          .map(({ capability, holders }) => ({ capability, principals: totalOf(holders) })),
      },
    }
  },
})

const totalOf = (holders: HolderCounts): number =>
  Object.values(holders).reduce((sum, count) => sum + count, 0)

const suggested = z.strictObject({
  capability: capabilityToken,
  kind: z.enum(['built_in', 'tool', 'operator']),
  held_by: z.int().meta({ description: 'The number of principals that hold it, operators included.' }),
  holders: z.record(z.string(), z.int()).meta({ description: 'The same by type of principal.' }),
  demanded_by: z.array(z.string()).meta({ description: 'MCP servers, and tools as they are called.' }),
})

export type CapabilitySuggestion = z.output<typeof suggested>

/** GET /proxy/capabilities.json: the same, one by one, with who holds and what demands each. */
export const suggestCapabilities = readOperation({
  name: 'suggestCapabilities',
  summary: 'Lists the capabilities, with who holds each and what requires it.',
  takes: {},
  output: z.strictObject({ capabilities: z.array(suggested) }),
  run: async (context) => {
    const { demanded, held, made } = await capabilityVocabulary(context)
    const holding = new Map(held.map(({ capability, holders }) => [capability, holders]))
    const demanding = Map.groupBy(demanded, ({ capability }) => capability)
    const one = (capability: string, kind: CapabilitySuggestion['kind']): CapabilitySuggestion => ({
      capability,
      kind,
      held_by: totalOf(holding.get(capability) ?? {}),
      holders: holding.get(capability) ?? {},
      demanded_by: (demanding.get(capability) ?? []).map(({ resource, tool }) =>
        tool === null ? resource : `${resource}.${tool}`,
      ),
    })
    const capabilities = [
      ...BUILT_IN_CAPABILITIES.map((capability) => one(capability, 'built_in')),
      ...[...demanding.keys()].map((capability) => one(capability, 'tool')),
      ...held
        .map(({ capability }) => capability)
        .filter(made)
        .map((capability) => one(capability, 'operator')),
    ]
    return { value: { capabilities } }
  },
})

/** Reads the demands besides the built-in ones, the held capabilities, and those made up by operators. */
async function capabilityVocabulary({ database }: Pick<AdminContext, 'database'>) {
  const all = await listDemandedCapabilities(database, eventLoopTurn)
  const demanded = all.filter(({ capability }) => !BUILT_IN_CAPABILITIES.includes(capability))
  const needed = new Set<string>([...BUILT_IN_CAPABILITIES, ...demanded.map(({ capability }) => capability)])
  const held = await heldCapabilities(database, eventLoopTurn)
  return { demanded, held, made: (capability: string): boolean => !needed.has(capability) }
}
