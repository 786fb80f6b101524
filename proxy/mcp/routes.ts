import { z } from 'zod'
import type { McpBindingAssertion } from '../../db/mcp/bindings.ts'
import type { DecisionFacts, RouteRecorders } from '../../plugins/audit/audit.ts'
import type { Principal } from '../../plugins/facts.ts'
import type { Arrival, Pipeline } from '../../plugins/plugin.ts'
import type { RefusalReason } from '../../plugins/refusal.ts'
import { BODY_REASONS, EXAMPLE_ID, GATED_REASONS, KNOWN_CALLER_REASONS, type RouteDoc } from '../http/doc.ts'
import {
  type BareRoute,
  forkedRoute,
  gatedBranch,
  openBranch,
  openRoute,
  withRouteDoc,
} from '../http/route.ts'
import { mcpRecorder } from './gate/endpoint.ts'
import type { mcpHandler } from './handlers/dispatch.ts'
import type { endCallerSession, handshakeHandler } from './handlers/handshake.ts'
import { otherMethod, readableRoute } from './pages.ts'
import { branchOnHandshake } from './protocol/message.ts'
import { jsonRpcRefusal, type MetadataUrl, refuseMcp } from './refusal.ts'

type HandshakeFacts = Parameters<ReturnType<typeof handshakeHandler>>[0]
type WorkFacts = Parameters<ReturnType<typeof mcpHandler>>[0] & DecisionFacts

interface McpPipelines<
  Read extends HandshakeFacts,
  Handshake extends HandshakeFacts,
  Work extends WorkFacts,
  Session extends Arrival & { readonly principal: Principal },
> {
  /** Reads the message, which alone tells if it is about the connection or asks for work. */
  readonly read: Pipeline<Read>
  readonly handshake: Pipeline<Handshake, Read>
  readonly work: Pipeline<Work, Read>
  readonly session: Pipeline<Session>
}

export interface McpHandlers {
  readonly work: ReturnType<typeof mcpHandler>
  readonly standing: McpBindingAssertion
  readonly handshake: ReturnType<typeof handshakeHandler>
  readonly endSession: ReturnType<typeof endCallerSession>
  readonly metadataUrl: MetadataUrl
}

/** Makes the MCP routes (docs/protocol.md#mcp-doors). */
export function mcpRoutes<
  Read extends HandshakeFacts,
  Handshake extends HandshakeFacts,
  Work extends WorkFacts,
  Session extends Arrival & { readonly principal: Principal },
>(
  pipelines: McpPipelines<Read, Handshake, Work, Session>,
  handlers: McpHandlers,
  { calls, anonymous }: RouteRecorders,
): readonly BareRoute[] {
  const recorder = mcpRecorder(calls, handlers.standing)
  const refuse = refuseMcp(handlers.metadataUrl)
  const handshaken = openBranch(pipelines.handshake, handlers.handshake, anonymous, refuse)
  const work = gatedBranch({ pipeline: pipelines.work, recorder, refuse }, handlers.work)
  const read = { pipeline: pipelines.read, recorder, refuse }
  const message = (path: string) => forkedRoute('POST', path, read, branchOnHandshake(handshaken, work))
  const end = (path: string) =>
    openRoute('DELETE', path, pipelines.session, handlers.endSession, anonymous, refuse)
  return [
    withRouteDoc(message('/v1/mcp'), MESSAGE),
    withRouteDoc(end('/v1/mcp'), SESSION_END),
    // The second for clients that know an MCP server by the end of its URL.
    ...['/v1/mcp/{resource}', '/v1/{resource}/mcp'].flatMap((path) => [
      withRouteDoc(message(path), RESOURCE_MESSAGE),
      withRouteDoc(end(path), RESOURCE_SESSION_END),
    ]),
  ]
}

/**
 * Lets `pages` read the answers of routes, and answers what their browsers ask before they call, without a
 * certificate. `doors`: the questions that such a request must pass all the same.
 */
export function forPages(
  routes: readonly BareRoute[],
  pages: ReadonlySet<string>,
  doors: Pipeline<Arrival>,
): readonly BareRoute[] {
  if (pages.size === 0) return routes
  const paths = Map.groupBy(routes, ({ path }) => path)
  return [
    ...routes.map((route) => readableRoute(route, pages)),
    ...[...paths].map(([path, served]) => openRoute('OTHER', path, doors, otherMethod(served, pages))),
  ]
}

const HEADERS = {
  DPoP: 'A proof of possession (RFC 9449): a new one for each request.',
  Authorization: 'DPoP or Bearer, and an access token or an API key of this service.',
  'MCP-Protocol-Version': 'The protocol version of the message.',
  'Mcp-Session-Id': 'The session, in protocol versions that have one.',
}

const idSchema = z.union([z.string(), z.int()])
const messageSchema = z
  .looseObject({ jsonrpc: z.literal('2.0'), id: idSchema.optional(), method: z.string().optional() })
  .meta({ id: 'JsonRpcMessage', description: 'One JSON-RPC 2.0 request, notification or response.' })
const resultSchema = z
  .strictObject({ jsonrpc: z.literal('2.0'), id: idSchema, result: z.looseObject({}) })
  .meta({ id: 'JsonRpcResult' })

const MESSAGE_REASONS: readonly RefusalReason[] = [
  ...KNOWN_CALLER_REASONS,
  ...BODY_REASONS,
  'mcp_message_invalid',
  'mcp_request_invalid',
  'mcp_meta_invalid',
  'mcp_header_mismatch',
  'mcp_version_unsupported',
  'mcp_session_unknown',
  'mcp_method_unknown',
  'mcp_params_invalid',
  'mcp_tool_unknown',
  'mcp_not_bound',
  'mcp_tool_quarantined',
  'approval_required',
  'consent_required',
  ...GATED_REASONS,
  'mcp_unreachable',
  'mcp_failed',
  'mcp_rate_limited',
]

const refuseExample: RouteDoc['refuse'] = (refusal) =>
  jsonRpcRefusal(refusal, {
    requestId: EXAMPLE_ID,
    id: '1',
    era: 'modern',
    metadataUrl: 'https://gateway.example/.well-known/oauth-protected-resource/v1/mcp',
  })

const MESSAGE: RouteDoc = {
  name: 'sendMcpMessage',
  summary: 'Takes one MCP message: the handshake, or work that requires mcp.* or the capability of the tool.',
  caller: 'principal',
  headers: HEADERS,
  body: {
    schema: messageSchema,
    example: { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'files.read_file' } },
  },
  answers: {
    200: {
      description: 'The answer, or a refusal: this is an answer of the protocol too.',
      content: [
        { schema: resultSchema },
        { media: 'text/event-stream', schema: z.string().meta({ description: 'JSON-RPC messages.' }) },
      ],
      headers: {
        'Audit-Receipt': 'The place of the decision in the ledger: stream, place and hash.',
        'RateLimit-Policy': 'The limits of calls that applied and show themselves.',
        RateLimit: 'What is left of each.',
        'Mcp-Session-Id': 'The session that initialize opened.',
      },
    },
    202: { description: 'A notification or a response was accepted.' },
  },
  reasons: MESSAGE_REASONS,
  refuse: refuseExample,
}

const SESSION_END: RouteDoc = {
  name: 'endMcpSession',
  summary: 'Ends a session, in protocol versions that have one.',
  caller: 'principal',
  headers: HEADERS,
  answers: { 204: { description: 'Ended.' } },
  reasons: [...KNOWN_CALLER_REASONS, 'mcp_session_unknown', 'method_not_allowed'],
  refuse: refuseExample,
}

/** At the endpoint of one resource, by both of its names. */
const RESOURCE_MESSAGE: RouteDoc = { ...MESSAGE, name: 'sendMcpMessageToResource' }
const RESOURCE_SESSION_END: RouteDoc = { ...SESSION_END, name: 'endMcpSessionOfResource' }
