import { z } from 'zod'
import type { RefusalReason } from '../../plugins/refusal.ts'
import { BODY_REASONS, EXAMPLE_ID, GATED_REASONS, KNOWN_CALLER_REASONS, type RouteDoc } from '../http/doc.ts'
import { jsonRpcRefusal } from './refusal.ts'

const HEADERS = {
  DPoP: 'A proof of possession (RFC 9449): a new one for each request.',
  Authorization: 'DPoP or Bearer, and an access token or an API key of this service.',
  'MCP-Protocol-Version': 'The protocol version of the message.',
  'Mcp-Session-Id': 'The session, in protocol versions that have one.',
}

const id = z.union([z.string(), z.int()])
const message = z
  .looseObject({ jsonrpc: z.literal('2.0'), id: id.optional(), method: z.string().optional() })
  .meta({ id: 'JsonRpcMessage', description: 'One JSON-RPC 2.0 request, notification or response.' })
const result = z
  .strictObject({ jsonrpc: z.literal('2.0'), id, result: z.looseObject({}) })
  .meta({ id: 'JsonRpcResult' })

const reasons: readonly RefusalReason[] = [
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
  ...GATED_REASONS,
  'mcp_unreachable',
  'mcp_failed',
  'mcp_rate_limited',
]

const refuse: RouteDoc['refuse'] = (refusal) =>
  jsonRpcRefusal(refusal, {
    requestId: EXAMPLE_ID,
    id: '1',
    era: 'modern',
    metadataUrl: 'https://gateway.example/.well-known/oauth-protected-resource/v1/mcp',
  })

export const MESSAGE: RouteDoc = {
  name: 'sendMcpMessage',
  summary: 'Takes one MCP message: the handshake, or work that requires mcp.* or the capability of the tool.',
  caller: 'principal',
  headers: HEADERS,
  body: {
    schema: message,
    example: { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'files.read_file' } },
  },
  answers: {
    200: {
      description: 'The answer, or a refusal: this is an answer of the protocol too.',
      content: [
        { schema: result },
        { media: 'text/event-stream', schema: z.string().meta({ description: 'JSON-RPC messages.' }) },
      ],
      headers: {
        'Audit-Receipt': 'The place of the decision in the ledger: stream, place and hash.',
        'Mcp-Session-Id': 'The session that initialize opened.',
      },
    },
    202: { description: 'A notification or a response was accepted.' },
  },
  reasons,
  refuse,
}

export const SESSION_END: RouteDoc = {
  name: 'endMcpSession',
  summary: 'Ends a session, in protocol versions that have one.',
  caller: 'principal',
  headers: HEADERS,
  answers: { 204: { description: 'Ended.' } },
  reasons: [...KNOWN_CALLER_REASONS, 'mcp_session_unknown', 'method_not_allowed'],
  refuse,
}

/** At the endpoint of one resource, by both of its names. */
export const RESOURCE_MESSAGE: RouteDoc = { ...MESSAGE, name: 'sendMcpMessageToResource' }
export const RESOURCE_SESSION_END: RouteDoc = { ...SESSION_END, name: 'endMcpSessionOfResource' }
