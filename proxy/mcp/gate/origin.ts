import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'

/**
 * Refuses the pages of other sites with `origin_not_allowed`: a page whose origin is neither this service nor
 * one of the operator's must not reach tools with the user's certificate (MCP, transports: DNS rebinding).
 * Clients that are no browsers send no Origin.
 */
export function mcpOrigin(
  baseUrls: () => readonly string[],
  allowed: readonly string[],
): Plugin<Arrival, object> {
  const others = new Set(allowed.map((origin) => new URL(origin).origin))
  return {
    name: 'mcp_origin',
    admit: ({ headers: { origin } }) => {
      if (origin === undefined || others.has(origin) || isOurs(origin, baseUrls())) return {}
      throw new Refusal('origin_not_allowed')
    },
  }
}

// By host and port alone: nothing but this service listens there, whatever scheme a page names.
function isOurs(origin: string, baseUrls: readonly string[]): boolean {
  const url = URL.parse(origin)
  return url !== null && baseUrls.some((base) => new URL(base).host === url.host)
}
