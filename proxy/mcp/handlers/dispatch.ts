import type { JsonObject } from '../../../db/support/json.ts'
import { NOTICE_MAX_BYTES } from '../../../db/support/notices.ts'
import { confirmAuthority } from '../../../plugins/call-authority.ts'
import type { AccessToken } from '../../../plugins/facts.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { CallReport, Reply } from '../../http/reply.ts'
import { MAX_INLINE_BYTES } from '../aside/aside.ts'
import { type CallDestination, destinationOf } from '../gate/checks.ts'
import { HTTP_GET, type McpTarget } from '../gate/demand-now.ts'
import type { HttpGet } from '../http-get/tool.ts'
import { errorMessage, memberText, responseBytes, resultMessage } from '../protocol/json-text.ts'
import { noServerRequest } from '../protocol/message.ts'
import { GATEWAY_IMPLEMENTATION, META_KEYS } from '../protocol/versions.ts'
import { isRemoteRequest, type RemoteServerRequest } from '../state/far-requests.ts'
import type { ListedUris } from '../state/listed-uris.ts'
import type { CallerAnswer } from '../state/server-requests.ts'
import { aggregateLists } from './aggregate.ts'
import { AskingRounds } from './asking-rounds.ts'
import { digestInTurns, joinedBytes } from './large-answer.ts'
import { type ListOptions, listVisibleTools } from './list-tools.ts'
import { type RelayDependencies, refusalOfUpstream, relayCall } from './relay.ts'
import { canBeAskedOnStream, type DispatchFacts, upstreamEra } from './rewrite.ts'

export interface McpHandlerDependencies extends RelayDependencies, ListOptions {
  readonly fetchUrl: HttpGet
  readonly listedUris: ListedUris
}

export interface McpFacts extends DispatchFacts {
  readonly token: AccessToken | null
}

/**
 * Does the work that was granted (docs/protocol.md#mcp-relay). Refuses with `mcp_unreachable` and
 * `mcp_failed`.
 */
export const mcpHandler =
  (sources: McpHandlerDependencies) =>
  (facts: McpFacts): Reply | Promise<Reply> => {
    const { target } = facts.granted
    switch (target.kind) {
      case 'list_tools':
        return toolList(sources, facts)
      case 'aggregate':
        return aggregatedReply(sources, facts, target.member)
      case 'built_in':
        return builtInReply(sources, facts)
      case 'tool':
      case 'relay':
        return relayed(sources, facts, destinationOf(target))
      case 'answer':
        return forwardAnswer(sources, facts, target)
    }
  }

function relayed(sources: McpHandlerDependencies, facts: McpFacts, to: CallDestination): Promise<Reply> {
  const isAsked = upstreamEra(to.resource, facts.session) === 'modern' && canBeAskedOnStream(facts)
  if (!isAsked) return relayCall(sources, facts, to)
  return relayCall(
    { ...sources, upstream: new AskingRounds(sources.upstream, facts).asUpstream() },
    facts,
    to,
  )
}

async function toolList(sources: McpHandlerDependencies, facts: McpFacts): Promise<Reply> {
  const tools = await listVisibleTools(facts, sources)
  return listReply(facts, 'tools', tools, { items: tools.length })
}

async function aggregatedReply(
  sources: McpHandlerDependencies,
  facts: McpFacts,
  member: string,
): Promise<Reply> {
  const resources = await sources.registry.bound(facts.granted.principal)
  const { items, missing } = await aggregateLists(sources, facts, resources, member)
  const detail: JsonObject = { items: items.length, ...(missing.length > 0 && { missing: [...missing] }) }
  return listReply(facts, member, items, detail)
}

async function listReply(
  facts: McpFacts,
  member: string,
  items: readonly string[],
  detail: JsonObject,
): Promise<Reply> {
  const before = `{${isModernCall(facts) ? '"resultType":"complete",' : ''}${JSON.stringify(member)}:[`
  // The list depends on the caller, so it is nobody else's (MCP 2026-07-28, caching).
  const after = isModernCall(facts) ? `],"ttlMs":0,"cacheScope":"private",${GATEWAY_META}}` : ']}'
  const length = items.reduce((sum, item) => sum + item.length, 0)
  const result =
    length > MAX_INLINE_BYTES
      ? await joinedBytes(before, items, after)
      : `${before}${items.join(',')}${after}`
  return resultReply(facts, result, { detail })
}

const GATEWAY_META = `"_meta":${JSON.stringify({ [META_KEYS.serverInfo]: GATEWAY_IMPLEMENTATION })}`

async function builtInReply({ fetchUrl }: McpHandlerDependencies, facts: McpFacts): Promise<Reply> {
  const { result, report } = await fetchUrl(
    facts.granted,
    facts.toolCall.arguments ?? {},
    facts.hangup.signal,
  )
  const failed = result.isError === true
  const text = JSON.stringify(isModernCall(facts) ? { resultType: 'complete', ...result } : result)
  return resultReply(facts, text, {
    provider: HTTP_GET,
    tool: HTTP_GET,
    failed,
    detail: { ...report, isError: failed },
  })
}

async function resultReply(
  { message: { id }, commitments }: McpFacts,
  result: string | Buffer,
  { detail, ...report }: CallReport,
): Promise<Reply> {
  if (id === null) throw new Error('a notification was dispatched as a request')
  const isText = typeof result === 'string'
  const sha256 = isText
    ? commitments.of('result_sha256', result)
    : await digestInTurns(commitments.hashing('result_sha256'), result)
  const digest = { result_sha256: sha256, result_bytes: Buffer.byteLength(result) }
  return {
    status: 200,
    headers: { 'content-type': 'application/json' },
    body: isText ? resultMessage(id, result) : responseBytes(id, 'result', result),
    report: () => ({ ...report, detail: { ...detail, ...digest } }),
  }
}

/** Hands the caller's answer to the upstream that asked. */
async function forwardAnswer(
  { serverRequests }: McpHandlerDependencies,
  facts: McpFacts,
  { request, id }: Extract<McpTarget, { kind: 'answer' }>,
): Promise<Reply> {
  if (isRemoteRequest(request)) return forwardRemoteAnswer(request, facts)
  const { resource, upstreamId } = request
  // Once: of answers that were granted at one moment the first is passed on, whatever comes of it.
  if (!serverRequests.close(id)) throw noServerRequest()
  const result = memberText({ bytes: facts.body, spans: facts.spans }, 'result')
  const text =
    result === null
      ? errorMessage(upstreamId, memberText({ bytes: facts.body, spans: facts.spans }, 'error') ?? '{}')
      : resultMessage(upstreamId, result)
  try {
    await request.respond(text, facts.granted)
  } catch (error) {
    throw facts.hangup.gone ? new Refusal('client_gone') : refusalOfUpstream(error, resource)
  }
  return { status: 202, report: () => ({ provider: resource.name, detail: {} }) }
}

/** Hands it to the process at which the call waits for it. */
async function forwardRemoteAnswer(request: RemoteServerRequest, facts: McpFacts): Promise<Reply> {
  const { resource } = request
  const whole = { bytes: facts.body, spans: facts.spans }
  const result = memberText(whole, 'result')
  const answer: CallerAnswer =
    result === null
      ? { member: 'error', text: memberText(whole, 'error') ?? '{}' }
      : { member: 'result', text: result }
  if (answer.text.length > NOTICE_MAX_BYTES / 4) {
    const message = 'An answer of this length must come on the connection that its call was made on.'
    throw new Refusal('mcp_params_invalid', { message })
  }
  if (!facts.granted.authority.unchanged) await confirmAuthority(facts.granted.authority)
  if (!(await request.give(answer))) throw noServerRequest()
  return { status: 202, report: () => ({ provider: resource.name, detail: {} }) }
}

const isModernCall = ({ message }: McpFacts): boolean => message.era === 'modern'
