import type { McpResource } from '../../../db/mcp/resources.ts'
import { isObject, type JsonObject } from '../../../db/support/json.ts'
import type { CallGrant, Principal } from '../../../plugins/facts.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { Reply } from '../../http/reply.ts'
import { type ResourcePath, sessionGrant } from '../gate/endpoint.ts'
import { paramsInvalid, resultMessage } from '../protocol/json-text.ts'
import type { McpMessage } from '../protocol/message.ts'
import { GATEWAY_IMPLEMENTATION, META_KEYS, MODERN_VERSION, offeredVersion } from '../protocol/versions.ts'
import type { CancelRequest } from '../state/cancellations.ts'
import type { McpRegistry } from '../state/registry.ts'
import type { CallerSession, CallerSessionStore } from '../state/sessions.ts'
import { upstreamEra } from './rewrite.ts'

export interface HandshakeDependencies {
  readonly registry: McpRegistry
  readonly sessions: CallerSessionStore
  readonly cancel: CancelRequest
}

interface HandshakeFacts extends Arrival, ResourcePath {
  readonly principal: Principal
  readonly message: McpMessage
}

/** The most that a client may say of itself: characters of JSON text, of each object. */
const MAX_KEPT = 16_384

/** Answers the methods and notifications that reach neither a tool nor an upstream. */
export const handshakeHandler =
  (sources: HandshakeDependencies) =>
  async (facts: HandshakeFacts): Promise<Reply> => {
    const { message } = facts
    if (message.id === null) return notificationReply(sources, facts)
    if (message.method === 'initialize') return initializeReply(sources, facts, message.id)
    if (message.method === 'server/discover') return discoveryReply(sources, facts, message.id)
    return answer(message.id, {})
  }

interface EndingFacts extends Arrival {
  readonly principal: Principal
  readonly grant?: CallGrant | undefined
}

/** Ends the session of a legacy client (DELETE; MCP 2025-11-25, session management). */
export const endCallerSession =
  (sessions: CallerSessionStore) =>
  async (facts: EndingFacts): Promise<Reply> => {
    const { headers, principal, at } = facts
    const id = headers['mcp-session-id']
    if (id === undefined || headers['mcp-protocol-version'] === MODERN_VERSION) {
      throw new Refusal('method_not_allowed', { headers: { allow: 'POST' } })
    }
    const session = await sessions.find(principal.id, String(id), at)
    const isOwn = session?.grant === sessionGrant(facts)
    if (!isOwn || !(await sessions.end(principal.id, String(id)))) throw new Refusal('mcp_session_unknown')
    return { status: 204 }
  }

const answer = (id: string, result: JsonObject, headers: Record<string, string> = {}): Reply => ({
  status: 200,
  headers: { 'content-type': 'application/json', ...headers },
  body: resultMessage(id, JSON.stringify(result)),
})

function notificationReply({ cancel }: HandshakeDependencies, facts: HandshakeFacts): Reply {
  const { method, params } = facts.message
  if (method === 'notifications/cancelled')
    cancel({ session: facts.session, principalId: facts.principal.id }, params.requestId)
  return { status: 202 }
}

async function initializeReply(
  sources: HandshakeDependencies,
  facts: HandshakeFacts,
  id: string,
): Promise<Reply> {
  const { message, principal, pathResource, at } = facts
  const { protocolVersion: requested, capabilities, clientInfo } = message.params
  if (typeof requested !== 'string' || !isObject(capabilities))
    throw paramsInvalid('initialize needs protocolVersion and capabilities.')
  // A session costs no capability, so it must not cost much else.
  if (!isWithinLimit(capabilities)) throw paramsInvalid('capabilities are too large.')
  const session = sources.sessions.open(
    {
      principalId: principal.id,
      resourceId: pathResource?.resource_id ?? null,
      // Parsed from JSON: nothing else is in them.
      capabilities: capabilities as JsonObject,
      clientInfo: isObject(clientInfo) && isWithinLimit(clientInfo) ? (clientInfo as JsonObject) : null,
      ...(facts.sessionGrant !== undefined && { grant: facts.sessionGrant }),
    },
    at,
  )
  const result = {
    protocolVersion: offeredVersion(requested),
    capabilities: await offeredCapabilities(sources.registry, facts, session),
    serverInfo: { ...GATEWAY_IMPLEMENTATION },
    ...instructions(pathResource),
  }
  return answer(id, result, { 'mcp-session-id': session.id })
}

const isWithinLimit = (object: object): boolean => JSON.stringify(object).length <= MAX_KEPT

async function discoveryReply(
  { registry }: HandshakeDependencies,
  facts: HandshakeFacts,
  id: string,
): Promise<Reply> {
  return answer(id, {
    resultType: 'complete',
    supportedVersions: [MODERN_VERSION],
    capabilities: await offeredCapabilities(registry, facts, null),
    ...instructions(facts.pathResource),
    ttlMs: 0,
    cacheScope: 'private',
    _meta: { [META_KEYS.serverInfo]: { ...GATEWAY_IMPLEMENTATION } },
  })
}

/**
 * Returns the capabilities of the resources reached here, as this gateway keeps them: no streams of changes,
 * and logs where one server is spoken to in its caller's era, whose level is set in another way in each.
 */
async function offeredCapabilities(
  registry: McpRegistry,
  { pathResource, principal, message }: HandshakeFacts,
  session: CallerSession | null,
): Promise<JsonObject> {
  const resources = pathResource ? [pathResource] : await registry.bound(principal)
  const offers = resources.map(({ server_facts: facts }) => facts?.capabilities).filter(isObject)
  const any = (name: string): boolean => offers.some((capabilities) => capabilities[name] !== undefined)
  const isOneEra = pathResource !== null && upstreamEra(pathResource, session) === message.era
  return {
    tools: {},
    ...(any('prompts') && { prompts: {} }),
    ...(any('resources') && { resources: {} }),
    ...(any('completions') && { completions: {} }),
    ...(isOneEra && any('logging') && { logging: {} }),
  }
}

/** Returns the instructions if there is one upstream: those of several would speak for each other. */
function instructions(pathResource: McpResource | null): JsonObject {
  const text = pathResource?.server_facts?.instructions
  return typeof text === 'string' ? { instructions: text } : {}
}
