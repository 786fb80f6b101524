import type { Arrival } from '../../plugins/plugin.ts'
import type { Refuse } from '../http/route.ts'
import type { McpMessage } from './protocol/message.ts'
import { META, MODERN } from './protocol/versions.ts'
import { jsonRpcRefusal } from './refusal.ts'

/** What may be known of a request when it is refused: everything, or nothing but its bytes. */
interface Known {
  readonly message?: McpMessage
  readonly json?: Readonly<Record<string, unknown>>
}

/** Refusals of the MCP endpoint. A message that was refused while it was read still has its id and its era told, as far as they are sane. */
export const refuseMcp =
  (baseUrls: () => readonly string[]): Refuse =>
  (refusal, facts) => {
    const { message, json }: Known = facts as Arrival & Known
    return jsonRpcRefusal(refusal, {
      requestId: facts.id,
      id: message ? message.id : idOf(json),
      era: message ? message.era : guessedEra(facts, json),
      metadataUrl: `${baseUrls()[0] ?? ''}/.well-known/oauth-protected-resource/v1/mcp`,
    })
  }

function idOf(json: Known['json']): string | null {
  const id = json?.id
  return typeof id === 'string' || Number.isSafeInteger(id) ? JSON.stringify(id) : null
}

function guessedEra({ headers }: Arrival, json: Known['json']): 'modern' | 'legacy' {
  const { _meta: meta } = (json?.params ?? {}) as { _meta?: Record<string, unknown> }
  const modern = headers['mcp-protocol-version'] === MODERN || meta?.[META.version] === MODERN
  return modern ? 'modern' : 'legacy'
}
