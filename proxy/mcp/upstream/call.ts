import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Granted, OperatorPermit } from '../../../plugins/permit.ts'
import type { Client } from './session.ts'
import type { Owner } from './sessions.ts'

/** One request to an upstream, on behalf of one caller. */
export interface UpstreamCall {
  /** Why it may be sent at all: a granted call, or a reading of what the server lists. */
  readonly permit: Granted | OperatorPermit
  readonly resource: McpResource
  /** Sessions of the legacy era are his alone. */
  readonly owner: Owner
  readonly method: string
  /** JSON text of the params object, as the upstream must see it; null for none. */
  readonly params: string | null
  /** `mcp-name` and `mcp-param-*` for an upstream of the modern era. Any other is left out; the rest is put in here. */
  readonly headers: Readonly<Record<string, string>>
  /** What a session of the legacy era is opened with, where this call opens it. */
  readonly client: Client
  /** The caller hung up: the request is destroyed at once, and an upstream of the legacy era is told so. */
  readonly signal: AbortSignal
}
