import type { Demand } from '../../../plugins/facts.ts'

/**
 * What a method is to the gateway: answered from the pins, a tool at work, a list over all bound resources, or something for
 * the one resource that it names.
 */
export type Work = 'list_tools' | 'call_tool' | 'gather' | 'relay'

interface Method {
  readonly work: Work
  readonly capability: string
  /** Which member of a gathered result holds the list. */
  readonly member?: string
}

const PROMPTS = 'mcp.prompts.get'
const RESOURCES = 'mcp.resources.read'

/** Every gated method, with the capability it demands. For `tools/call` the tool itself says which. */
export const METHODS: ReadonlyMap<string, Method> = new Map<string, Method>([
  ['tools/list', { work: 'list_tools', capability: 'mcp.tools.list' }],
  ['tools/call', { work: 'call_tool', capability: 'mcp.tools.call' }],
  ['prompts/list', { work: 'gather', capability: PROMPTS, member: 'prompts' }],
  ['prompts/get', { work: 'relay', capability: PROMPTS }],
  ['resources/list', { work: 'gather', capability: RESOURCES, member: 'resources' }],
  ['resources/templates/list', { work: 'gather', capability: RESOURCES, member: 'resourceTemplates' }],
  ['resources/read', { work: 'relay', capability: RESOURCES }],
  ['resources/subscribe', { work: 'relay', capability: RESOURCES }],
  ['resources/unsubscribe', { work: 'relay', capability: RESOURCES }],
  ['completion/complete', { work: 'relay', capability: PROMPTS }],
  ['logging/setLevel', { work: 'relay', capability: RESOURCES }],
])

/** Methods about the connection itself, by era. They demand no capability: they reach nothing (WIRE.md §4). */
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

/** Where the name that the header `Mcp-Name` repeats stands in the parameters (MCP 2026-07-28, standard request headers). */
export const NAMED: ReadonlyMap<string, 'name' | 'uri'> = new Map([
  ['tools/call', 'name'],
  ['prompts/get', 'name'],
  ['resources/read', 'uri'],
])

/** What stands in the rows of a message whose own demand is not known, or cannot be. */
export const UNREAD: Demand = { action: 'mcp_request', capability: 'mcp.tools.call' }

/** The audit action of a method: `mcp_tools_call` (AUDIT.md). */
export const actionOf = (method: string): string => `mcp_${method.replaceAll('/', '_')}`

/** Whether a message is about the connection: a method of the handshake, or any notification. */
export const isHandshake = ({
  kind,
  era,
  method,
}: {
  kind: string
  era: 'modern' | 'legacy'
  method: string
}): boolean => kind === 'notification' || (kind === 'request' && HANDSHAKE[era].has(method))
