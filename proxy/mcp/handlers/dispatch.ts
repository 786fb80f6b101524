import type { JsonObject } from '../../../db/support/json.ts'
import { NOTICE_MAX_BYTES } from '../../../db/support/notices.ts'
import { confirmed } from '../../../plugins/call-authority.ts'
import type { AccessToken } from '../../../plugins/facts.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { Reply, Report } from '../../http/reply.ts'
import { SMALL } from '../aside/aside.ts'
import { destinationOf } from '../gate/checks.ts'
import { HTTP_GET, type McpTarget } from '../gate/demand-now.ts'
import type { HttpGet } from '../http-get/tool.ts'
import { errorMessage, memberText, responseBytes, resultMessage } from '../protocol/json-text.ts'
import { noServerRequest } from '../protocol/message.ts'
import { IMPLEMENTATION, META } from '../protocol/versions.ts'
import { type FarRequest, isFar } from '../state/far-requests.ts'
import type { GivenAnswer } from '../state/server-requests.ts'
import { aggregate } from './aggregate.ts'
import { digestOf, joinedBytes } from './large-answer.ts'
import { type ListOptions, listTools } from './list-tools.ts'
import { type RelaySources, refusalOfUpstream, relay } from './relay.ts'
import type { Dispatched } from './rewrite.ts'

export interface McpSources extends RelaySources, ListOptions {
  readonly fetchUrl: HttpGet
}

/** The facts about a call, the grant included. */
export interface McpFacts extends Dispatched {
  readonly token: AccessToken | null
}

/**
 * Does the work that was granted (docs/protocol.md#mcp-relay). Refuses with `mcp_unreachable` and
 * `mcp_failed`.
 */
export const mcpHandler =
  (sources: McpSources) =>
  (facts: McpFacts): Reply | Promise<Reply> => {
    const { target } = facts.granted
    switch (target.kind) {
      case 'list_tools':
        return toolList(sources, facts)
      case 'aggregate':
        return aggregated(sources, facts, target.member)
      case 'built_in':
        return builtIn(sources, facts)
      case 'tool':
      case 'relay':
        return relay(sources, facts, destinationOf(target))
      case 'answer':
        return answered(sources, facts, target)
    }
  }

async function toolList(sources: McpSources, facts: McpFacts): Promise<Reply> {
  const tools = await listTools(facts, sources)
  return listed(facts, 'tools', tools, { items: tools.length })
}

async function aggregated(sources: McpSources, facts: McpFacts, member: string): Promise<Reply> {
  const resources = await sources.registry.bound(facts.granted.principal)
  const { items, missing } = await aggregate(sources.upstream, facts, resources, member)
  const detail: JsonObject = { items: items.length, ...(missing.length > 0 && { missing: [...missing] }) }
  return listed(facts, member, items, detail)
}

async function listed(
  facts: McpFacts,
  member: string,
  items: readonly string[],
  detail: JsonObject,
): Promise<Reply> {
  const before = `{${modern(facts) ? '"resultType":"complete",' : ''}${JSON.stringify(member)}:[`
  // The list depends on the caller, so it is nobody else's (MCP 2026-07-28, caching).
  const after = modern(facts) ? `],"ttlMs":0,"cacheScope":"private",${OURS}}` : ']}'
  const length = items.reduce((sum, item) => sum + item.length, 0)
  const result =
    length > SMALL ? await joinedBytes(before, items, after) : `${before}${items.join(',')}${after}`
  return done(facts, result, { detail })
}

const OURS = `"_meta":${JSON.stringify({ [META.serverInfo]: IMPLEMENTATION })}`

async function builtIn({ fetchUrl }: McpSources, facts: McpFacts): Promise<Reply> {
  const { result, report } = await fetchUrl(
    facts.granted,
    facts.toolCall.arguments ?? {},
    facts.hangup.signal,
  )
  const failed = result.isError === true
  const text = JSON.stringify(modern(facts) ? { resultType: 'complete', ...result } : result)
  return done(facts, text, {
    provider: HTTP_GET,
    tool: HTTP_GET,
    failed,
    detail: { ...report, isError: failed },
  })
}

async function done(
  { message: { id }, commitments }: McpFacts,
  result: string | Buffer,
  { detail, ...report }: Report,
): Promise<Reply> {
  if (id === null) throw new Error('a notification was dispatched as a request')
  const isText = typeof result === 'string'
  const sha256 = isText
    ? commitments.of('result_sha256', result)
    : await digestOf(commitments.hashing('result_sha256'), result)
  const digest = { result_sha256: sha256, result_bytes: Buffer.byteLength(result) }
  return {
    status: 200,
    headers: { 'content-type': 'application/json' },
    body: isText ? resultMessage(id, result) : responseBytes(id, 'result', result),
    report: () => ({ ...report, detail: { ...detail, ...digest } }),
  }
}

/** Hands the caller's answer to the upstream that asked. */
async function answered(
  { upstream, serverRequests }: McpSources,
  facts: McpFacts,
  { request, id }: Extract<McpTarget, { kind: 'answer' }>,
): Promise<Reply> {
  if (isFar(request)) return answeredFar(request, facts)
  const { resource, session, upstreamId } = request
  // Once: of answers that were granted in one moment the first is passed on, whatever comes of it.
  if (!serverRequests.close(id)) throw noServerRequest()
  const result = memberText({ bytes: facts.body, spans: facts.spans }, 'result')
  const text =
    result === null
      ? errorMessage(upstreamId, memberText({ bytes: facts.body, spans: facts.spans }, 'error') ?? '{}')
      : resultMessage(upstreamId, result)
  try {
    await upstream.respond(
      facts.granted,
      resource,
      { principalId: session.principalId, sessionId: session.id },
      text,
    )
  } catch (error) {
    throw facts.hangup.gone ? new Refusal('client_gone') : refusalOfUpstream(error, resource)
  }
  return { status: 202, report: () => ({ provider: resource.name, detail: {} }) }
}

/** Hands it to the process where the call waits for it. */
async function answeredFar(request: FarRequest, facts: McpFacts): Promise<Reply> {
  const { resource } = request
  const whole = { bytes: facts.body, spans: facts.spans }
  const result = memberText(whole, 'result')
  const answer: GivenAnswer =
    result === null
      ? { member: 'error', text: memberText(whole, 'error') ?? '{}' }
      : { member: 'result', text: result }
  if (answer.text.length > NOTICE_MAX_BYTES / 4) {
    const message = 'An answer of this length must come on the connection that its call was made on.'
    throw new Refusal('mcp_params_invalid', { message })
  }
  if (!facts.granted.authority.unchanged) await confirmed(facts.granted.authority)
  if (!(await request.give(answer))) throw noServerRequest()
  return { status: 202, report: () => ({ provider: resource.name, detail: {} }) }
}

const modern = ({ message }: McpFacts): boolean => message.era === 'modern'
