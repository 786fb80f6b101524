import { normalUrl } from './proof.ts'

/** The paths of MCP that may be a resource of their own: the common endpoint, and each other by either name. */
const MCP_DOOR = /^\/v1\/(?:mcp(?:\/[\w.~-]{1,128})?|[\w.~-]{1,128}\/mcp)$/

/** Tells of the path of an MCP endpoint whether it is spelled plainly, so that it has a document of its own. */
export const isMcpDoor = (path: string): boolean => MCP_DOOR.test(path)

/**
 * Returns the audience of a token that is asked for with this `resource` (RFC 8707): a public base URL, or an
 * MCP endpoint below it by its first name. Null if it is not ours. Any spelling counts that RFC 3986 §6.2
 * has.
 */
export function audienceOf(resource: string, baseUrls: readonly string[]): string | null {
  const wanted = /[?#]/.test(resource) ? null : normalUrl(resource)?.replace(/\/$/, '')
  if (!wanted) return null
  for (const base of baseUrls) {
    const root = normalUrl(base)?.replace(/\/$/, '') ?? base
    if (wanted === root) return base
    if (!wanted.startsWith(`${root}/`)) continue
    const path = wanted.slice(root.length)
    if (isMcpDoor(path)) return base + path.replace(/^\/v1\/([^/]+)\/mcp$/, '/v1/mcp/$1')
  }
  return null
}
