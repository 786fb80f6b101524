import type { JsonObject } from '../../../db/support/json.ts'
import { VERSION } from '../../boot/version.ts'

/** A form of the protocol: all in each request, or behind an `initialize` (MCP 2026-07-28, versioning). */
export type Era = 'modern' | 'legacy'

/** The stateless revision. */
export const MODERN = '2026-07-28'

/** The revisions that begin with `initialize`, newest first. */
export const LEGACY: readonly string[] = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05']

export const SUPPORTED: readonly string[] = [MODERN, ...LEGACY]

/** The revision of a request without `MCP-Protocol-Version` (MCP 2025-06-18, transports). */
export const UNSTATED = '2025-03-26'

/** Members of `_meta` that each modern request carries (MCP 2026-07-28, basic). */
export const META = {
  version: 'io.modelcontextprotocol/protocolVersion',
  clientInfo: 'io.modelcontextprotocol/clientInfo',
  capabilities: 'io.modelcontextprotocol/clientCapabilities',
  serverInfo: 'io.modelcontextprotocol/serverInfo',
} as const

/** The name and version of this gateway to upstreams and callers. */
export const IMPLEMENTATION: JsonObject = { name: 'sallyport', version: VERSION }

/**
 * Makes the members of `_meta` that a request of ours to a modern upstream carries (MCP 2026-07-28,
 * per-request protocol fields).
 */
export const modernMeta = (
  capabilities: JsonObject,
  clientInfo: JsonObject = IMPLEMENTATION,
): JsonObject => ({
  [META.version]: MODERN,
  [META.clientInfo]: clientInfo,
  [META.capabilities]: capabilities,
})
