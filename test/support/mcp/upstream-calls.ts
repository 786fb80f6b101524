import { CallHangup } from '../../../proxy/http/open-calls.ts'
import type { McpAnswer } from '../../../proxy/mcp/upstream/answers.ts'
import type { UpstreamCall } from '../../../proxy/mcp/upstream/client.ts'
import type { FailureKind } from '../../../proxy/mcp/upstream/errors.ts'
import type { UpstreamMessage } from '../../../proxy/mcp/upstream/message.ts'
import { TOOL_CALL } from '../permit.ts'
import { resourceAt } from './raw-upstream.ts'

/** A call of a tool by alice, with what a test wants different. */
export function callOf(url: string, fields: Partial<UpstreamCall> = {}): UpstreamCall {
  const { resource = resourceAt(url) } = fields
  return {
    permit: TOOL_CALL,
    resource,
    era: resource.era,
    owner: { principalId: 'acme::alice', sessionId: null },
    method: 'tools/call',
    params: '{"name":"echo"}',
    headers: {},
    client: { capabilities: {}, clientInfo: null },
    hangup: new CallHangup(),
    held: null,
    ...fields,
  }
}

/** Every message of an answer. */
export async function all(answer: McpAnswer): Promise<UpstreamMessage[]> {
  const found: UpstreamMessage[] = []
  for await (const message of messagesOf(answer)) found.push(message)
  return found
}

/** The messages of an answer as they come. */
export const messagesOf = (answer: McpAnswer): AsyncIterable<UpstreamMessage> | Iterable<UpstreamMessage> =>
  answer.streamed ? answer.messages : [answer.response]

export const values = async (answer: McpAnswer): Promise<unknown[]> =>
  (await all(answer)).map(({ value }) => value)

/** What `t.throws` and `t.rejects` match a failure of an upstream with. */
export const failure = (
  kind: FailureKind,
  more: { readonly status?: number; readonly message?: RegExp } = {},
): { name: 'Error' } => ({ ...{ kind, ...more }, name: 'Error' })
