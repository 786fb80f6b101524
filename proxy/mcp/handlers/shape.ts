import { Refusal } from '../../../plugins/refusal.ts'
import { type Edits, edited, type JsonText } from '../protocol/json-text.ts'
import type { Era } from '../protocol/versions.ts'
import { OUR_CODES } from '../refusal.ts'

/** Methods whose results say how long they may be kept (MCP 2026-07-28, caching). */
const CACHEABLE: ReadonlySet<string> = new Set([
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
  'resources/read',
])

interface Shaping {
  readonly method: string
  /** Of the caller, and of the upstream. */
  readonly caller: Era
  readonly upstream: Era
  /** Binds a state to the caller that it is given to. */
  readonly seal: (state: string) => string
}

/**
 * Writes an upstream's result in the caller's era, JSON text: its bytes but for the members that the caller's
 * revision demands. Every answer depends on the caller, so none is marked as public. An upstream's state is
 * bound to the caller. Refuses with `mcp_failed` a result that cannot be said in the caller's era.
 */
export function shapedResult(result: JsonText, { method, caller, upstream, seal }: Shaping): string {
  const { value } = result
  const incomplete = value.resultType === 'input_required'
  if (caller === 'legacy') {
    if (!incomplete) return result.bytes.toString('utf8')
    throw new Refusal('mcp_failed', {
      message: 'The MCP server asks for input in a way that this protocol version does not have.',
    })
  }
  const state = value.requestState ?? null
  if (incomplete && state !== null && typeof state !== 'string') {
    // It could not be bound to the caller.
    throw new Refusal('mcp_failed', { message: 'The MCP server gives a state that is no text.' })
  }
  const edits: Edits = {
    ...(upstream === 'legacy' && value.resultType === undefined && { resultType: '"complete"' }),
    ...(CACHEABLE.has(method) && !incomplete && cacheEdits(value)),
    ...(incomplete && typeof state === 'string' && { requestState: JSON.stringify(seal(state)) }),
  }
  return Object.keys(edits).length === 0 ? result.bytes.toString('utf8') : edited(result, edits)
}

const cacheEdits = ({ ttlMs }: JsonText['value']): Edits => ({
  ...(ttlMs === undefined && { ttlMs: '0' }),
  // Also where the upstream says nothing: some clients take that for public.
  cacheScope: '"private"',
})

/** Writes an upstream's JSON-RPC error for the caller, JSON text: its own, unless it has one of our codes. */
export function shapedError(error: JsonText): string {
  const { code, message } = error.value
  if (!OUR_CODES.has(code)) return error.bytes.toString('utf8')
  throw new Refusal('mcp_failed', {
    detail: { upstream_error: { code: Number(code), message: String(message).slice(0, 1024) } },
  })
}
