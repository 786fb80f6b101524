import { z } from 'zod'
import { type HolderCounts, heldCapabilities, listDemandedCapabilities } from '../../../db/mcp/vocabulary.ts'
import { setCapabilities } from '../../../db/principals/write.ts'
import { ADMIN_CAPABILITIES } from '../../../plugins/operators/capabilities.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import { previewOf } from '../conditions/run.ts'
import { changeAuthor } from '../operation/change.ts'
import type { AdminContext } from '../operation/context.ts'
import { capabilityToGrant, type PrincipalKind } from '../operation/kinds.ts'
import { checkIfMatch, operation, readOperation } from '../operation/operation.ts'
import { capabilityToken, dryRun, idParams } from '../operation/shapes.ts'
import { assertOwnerRemains, operatorRefusals, refuseSelfGrant } from '../operators/owners.ts'
import { changeAuthority } from './authority.ts'
import { capabilitySetSchema, changeOf } from './principals.ts'
import { PREVIEW_SHAPES, principalByParams, principalOf, principalResult, principalView } from './view.ts'

/** PATCH …/{id}/capabilities: replaces the set (spec §4.4), with one audit row in the same transaction. */
export const patchCapabilities = (kind: PrincipalKind) =>
  replaceOperation(kind, `set${kind.noun}Capabilities`, `${kind.type}.capabilities_patched`)

/** The same by the form of the dashboard, whose row says so (spec §6). */
export const setCapabilitiesInForm = (kind: PrincipalKind) =>
  replaceOperation(kind, `set${kind.noun}CapabilitiesInForm`, `${kind.type}.capabilities_set`)

const replaceOperation = (kind: PrincipalKind, name: string, action: string) =>
  operation({
    name,
    demands: capabilityToGrant(kind),
    action,
    object: principalByParams(kind),
    summary: 'Replaces the whole set of capabilities.',
    takes: {
      params: idParams,
      query: z.object({ dry_run: dryRun }),
      body: z.strictObject({ capabilities: capabilitySetSchema(kind) }),
    },
    output: PREVIEW_SHAPES[kind.type],
    conditional: true,
    revised: true,
    rehearses: (context, { params: { id }, body: { capabilities: held } }) =>
      changeOf(context, kind, id, (principal) => ({ principal, capabilities: held })),
    preview: async (context, { params: { id }, body, ifMatch }, caller) => {
      const record = await principalOf(context, kind, id)
      checkIfMatch(ifMatch, record)
      if (kind.type === 'operator') refuseSelfGrant(caller, record, body.capabilities)
      const next = { ...principalView(kind, record), capabilities: body.capabilities }
      const rehearsal = await previewOf(context, caller, [
        { principal: record, capabilities: body.capabilities },
      ])
      return { value: { ...next, rehearsal } }
    },
    reasons: ['not_found', 'precondition_failed', 'audit_unavailable', ...operatorRefusals(kind)],
    example: { capabilities: kind.type === 'operator' ? ['admin.read'] : ['llm.chat', 'mcp.tools.call'] },
    run: async (context, { params: { id }, body, ifMatch }, caller) => {
      const { type } = kind
      await changeAuthority(
        context,
        kind,
        caller,
        { id, ifMatch },
        async (record, { capabilities: previous }) => {
          const { revision } = record
          const next = { capabilities: body.capabilities }
          const isOperator = type === 'operator'
          if (isOperator) refuseSelfGrant(caller, record, body.capabilities)
          return {
            action,
            next,
            detail: { previous },
            assertions: isOperator ? await assertOwnerRemains(context, caller.at, record, next) : [],
            statements: [
              setCapabilities(context.database, { type, id, revision, ...next, ...changeAuthor(caller) }),
            ],
          }
        },
      )
      return principalResult(kind, await principalOf(context, kind, id))
    },
  })

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
