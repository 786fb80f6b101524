import type { JsonObject } from '../../../db/support/json.ts'
import { VERSION } from '../../boot/version.ts'

/** A form of the protocol: all in each request, or after an `initialize` (MCP 2026-07-28, versioning). */
export type ProtocolEra = 'modern' | 'legacy'

export const MODERN_VERSION = '2026-07-28'

/** The revisions that begin with `initialize`, newest first. */
export const LEGACY_VERSIONS: readonly string[] = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05']

/** The revision that demands that batches be received (MCP 2025-03-26, basic), which this gateway refuses. */
const BATCHING_VERSION = '2025-03-26'

/** The revisions that a caller may agree on by `initialize`, newest first. */
const OFFERED_VERSIONS = LEGACY_VERSIONS.filter((version) => version !== BATCHING_VERSION)

export const SUPPORTED_VERSIONS: readonly string[] = [MODERN_VERSION, ...OFFERED_VERSIONS]

/**
 * Returns the revision that is offered to a client that asks for this one: itself; the newest, if nobody
 * knows it; the one before, if it is the revision with batches.
 */
export const offeredVersion = (requested: string): string =>
  OFFERED_VERSIONS.find((version) => version === requested) ??
  OFFERED_VERSIONS.find((version) => requested === BATCHING_VERSION && version < requested) ??
  OFFERED_VERSIONS[0] ??
  requested

/** The revision of a request without `MCP-Protocol-Version` (MCP 2025-06-18, transports). */
export const UNSTATED_VERSION = BATCHING_VERSION

/** Members of `_meta` that each modern request carries (MCP 2026-07-28, basic). */
export const META_KEYS = {
  version: 'io.modelcontextprotocol/protocolVersion',
  clientInfo: 'io.modelcontextprotocol/clientInfo',
  capabilities: 'io.modelcontextprotocol/clientCapabilities',
  serverInfo: 'io.modelcontextprotocol/serverInfo',
} as const

export const GATEWAY_IMPLEMENTATION: JsonObject = { name: 'sallyport', version: VERSION }

export const modernMeta = (
  capabilities: JsonObject,
  clientInfo: JsonObject = GATEWAY_IMPLEMENTATION,
): JsonObject => ({
  [META_KEYS.version]: MODERN_VERSION,
  [META_KEYS.clientInfo]: clientInfo,
  [META_KEYS.capabilities]: capabilities,
})
