import type { Demand } from '../../../plugins/facts.ts'

/**
 * The work that a method is for the gateway: answered from the pins, a tool's call, a list over all bound
 * resources, or relayed to the one resource that it names.
 */
export type Work = 'list_tools' | 'call_tool' | 'aggregate' | 'relay'

interface Method {
  readonly work: Work
  readonly demanded: readonly string[]
  /** The member of an aggregated result that holds the list. */
  readonly member?: string
}

const PROMPTS = ['mcp.prompts.get']
const RESOURCES = ['mcp.resources.read']

/** Every gated method, with what it demands. For `tools/call` the tool itself says what. */
export const METHODS: ReadonlyMap<string, Method> = new Map<string, Method>([
  ['tools/list', { work: 'list_tools', demanded: ['mcp.tools.list'] }],
  ['tools/call', { work: 'call_tool', demanded: [] }],
  ['prompts/list', { work: 'aggregate', demanded: PROMPTS, member: 'prompts' }],
  ['prompts/get', { work: 'relay', demanded: PROMPTS }],
  ['resources/list', { work: 'aggregate', demanded: RESOURCES, member: 'resources' }],
  ['resources/templates/list', { work: 'aggregate', demanded: RESOURCES, member: 'resourceTemplates' }],
  ['resources/read', { work: 'relay', demanded: RESOURCES }],
  ['resources/subscribe', { work: 'relay', demanded: RESOURCES }],
  ['resources/unsubscribe', { work: 'relay', demanded: RESOURCES }],
  ['completion/complete', { work: 'relay', demanded: PROMPTS }],
  ['logging/setLevel', { work: 'relay', demanded: RESOURCES }],
])

/**
 * Methods about the connection itself, by era. They demand no capability: they reach nothing
 * (docs/protocol.md#mcp-methods).
 */
export const HANDSHAKE: Readonly<Record<'modern' | 'legacy', ReadonlySet<string>>> = {
  modern: new Set(['server/discover']),
  legacy: new Set(['initialize', 'ping']),
}

/** Gated methods that only one era knows. */
export const LEGACY_ONLY: ReadonlySet<string> = new Set([
  'logging/setLevel',
  'resources/subscribe',
  'resources/unsubscribe',
])

/** The parameter that the header `Mcp-Name` repeats, by method (MCP 2026-07-28, standard request headers). */
export const NAMED: ReadonlyMap<string, 'name' | 'uri'> = new Map([
  ['tools/call', 'name'],
  ['prompts/get', 'name'],
  ['resources/read', 'uri'],
])

/** The demand in the rows of a message whose own is not known, or cannot be. */
export const UNREAD: Demand = { action: 'mcp_request', demanded: [] }
