import { CAPABILITIES_BY_ACTION } from '../../../db/ledger/authority/rule.ts'
import type { CapabilityDemand } from '../../../plugins/facts.ts'

export type McpMethodWork = 'list_tools' | 'call_tool' | 'aggregate' | 'relay'

interface Method {
  readonly work: McpMethodWork
  /** The audit action: `mcp_tools_call` (docs/ledger.md#actions). */
  readonly action: string
  readonly demanded: readonly string[]
  /** The member of an aggregated result that holds the list. */
  readonly member?: string
}

/**
 * Describes a method by its audit action. `like`: the method whose demand it has, if its parameters decide.
 */
function method(
  name: string,
  work: McpMethodWork,
  { member, like = name }: { readonly member?: string; readonly like?: string } = {},
): readonly [string, Method] {
  const demanded = CAPABILITIES_BY_ACTION.get(actionOf(like)) ?? []
  return [name, { work, action: actionOf(name), demanded, ...(member !== undefined && { member }) }]
}

const actionOf = (name: string): string => `mcp_${name.replaceAll('/', '_')}`

/**
 * Every gated method, with its demand. For `tools/call` the tool decides; for the last two, their parameters.
 */
export const GATED_METHODS: ReadonlyMap<string, Method> = new Map<string, Method>([
  method('tools/list', 'list_tools'),
  method('tools/call', 'call_tool'),
  method('prompts/list', 'aggregate', { member: 'prompts' }),
  method('prompts/get', 'relay'),
  method('resources/list', 'aggregate', { member: 'resources' }),
  method('resources/templates/list', 'aggregate', { member: 'resourceTemplates' }),
  method('resources/read', 'relay'),
  method('resources/subscribe', 'relay'),
  method('resources/unsubscribe', 'relay'),
  method('completion/complete', 'relay', { like: 'prompts/get' }),
  method('logging/setLevel', 'relay', { like: 'resources/read' }),
])

/** Methods about the connection itself, by era. They demand no capability (docs/protocol.md#mcp-methods). */
export const HANDSHAKE_METHODS: Readonly<Record<'modern' | 'legacy', ReadonlySet<string>>> = {
  modern: new Set(['server/discover']),
  legacy: new Set(['initialize', 'ping']),
}

export const LEGACY_ONLY_METHODS: ReadonlySet<string> = new Set([
  'logging/setLevel',
  'resources/subscribe',
  'resources/unsubscribe',
])

/** The parameter that the header `Mcp-Name` repeats, by method (MCP 2026-07-28, standard request headers). */
export const NAME_PARAM_BY_METHOD: ReadonlyMap<string, 'name' | 'uri'> = new Map([
  ['tools/call', 'name'],
  ['prompts/get', 'name'],
  ['resources/read', 'uri'],
])

/** The demand in the rows of a message whose own is not known, or cannot be. */
export const UNREAD_DEMAND: CapabilityDemand = { action: 'mcp_request', demanded: [] }
