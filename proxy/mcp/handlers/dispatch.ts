import { capabilityOf, demandedByTool, isProofEnough, minProofOf } from '../../../db/ledger/authority/rule.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { McpTool, PinnedMcpTool } from '../../../db/mcp/tools.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import { NOTICE_MAX_BYTES } from '../../../db/support/notices.ts'
import { confirmAuthority } from '../../../plugins/call-authority.ts'
import { holdsDemanded } from '../../../plugins/capability.ts'
import type { AccessToken, CallGrant } from '../../../plugins/facts.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import type { AnswerJudge } from '../../content/judged-reply.ts'
import type { CallReport, Reply } from '../../http/reply.ts'
import { MAX_INLINE_BYTES } from '../aside/aside.ts'
import { type CallDestination, destinationOf } from '../gate/checks.ts'
import { HTTP_GET, type McpTarget } from '../gate/demand-now.ts'
import { HTTP_GET_TOOL, type HttpGet } from '../http-get/tool.ts'
import { type PinnedDefinition, parsePinnedDefinition } from '../pinning/pinned-definition.ts'
import {
  applyEdits,
  errorMessage,
  eventOf,
  memberText,
  paramsInvalid,
  responseBytes,
  responseMessage,
  resultMessage,
} from '../protocol/json-text.ts'
import { noServerRequest } from '../protocol/message.ts'
import { GATEWAY_IMPLEMENTATION, META_KEYS, type ProtocolEra } from '../protocol/versions.ts'
import { rpcError } from '../refusal.ts'
import { isRemoteRequest, type RemoteServerRequest } from '../state/far-requests.ts'
import { isUsable, type McpRegistry } from '../state/registry.ts'
import type { CallerAnswer } from '../state/server-requests.ts'
import { type AggregateDependencies, aggregateLists } from './aggregate.ts'
import { AskingRounds } from './asking-rounds.ts'
import { digestInTurns, joinedBytes } from './large-answer.ts'
import { type RelayDependencies, relayCall } from './relay.ts'
import { canBeAskedOnStream, type DispatchFacts, upstreamEra } from './rewrite.ts'
import { refusalOfUpstream } from './upstream-refusal.ts'

export interface McpHandlerDependencies
  extends RelayDependencies,
    Pick<AggregateDependencies, 'listedUris' | 'findAccount'> {
  readonly registry: McpRegistry
  readonly enforced: boolean
  /** `callable`: tools whose capability is not held are hidden. */
  readonly list: 'bound' | 'callable'
  readonly httpGet: boolean
  readonly fetchUrl: HttpGet
  /** The judges of results. Absent, or none: nobody judges them. */
  readonly answerJudges?: readonly AnswerJudge[]
}

export interface McpFacts extends DispatchFacts {
  readonly token: AccessToken | null
  /** Absent: the caller shows a certificate. */
  readonly grant?: CallGrant
}

/** Does the work that was granted. Refuses with `mcp_unreachable` and `mcp_failed`. */
export const mcpHandler =
  (sources: McpHandlerDependencies) =>
  (facts: McpFacts): Reply | Promise<Reply> => {
    // Before anything is sent: a message names its own parent.
    facts.trace?.adopt(facts.message.meta)
    const reply = replyOf(sources, facts)
    const { answerJudges: judges = [] } = sources
    // Our own list is of definitions that an operator has approved.
    if (judges.length === 0 || facts.granted.target.kind === 'list_tools') return reply
    return judged(reply, judges, facts)
  }

function replyOf(sources: McpHandlerDependencies, facts: McpFacts): Reply | Promise<Reply> {
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

async function judged(
  reply: Reply | Promise<Reply>,
  judges: readonly AnswerJudge[],
  facts: McpFacts,
): Promise<Reply> {
  // Loaded only where a file asks for it.
  const { judgedReply } = await import('../../content/judged-reply.ts')
  const errorEvent = (refusal: Refusal): string =>
    eventOf(errorMessage(facts.message.id, rpcError(refusal, facts.id)))
  return judgedReply(await reply, { judges, facts, place: 'tool_result', errorEvent })
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
  const bound = await sources.registry.bound(facts.granted.principal)
  const resources = bound.filter((resource) => isGradeEnough(facts, resource, null))
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

/** Hands the caller's answer to the upstream that asked, or to the process at which the call waits for it. */
async function forwardAnswer(
  { serverRequests }: McpHandlerDependencies,
  facts: McpFacts,
  { request, id }: Extract<McpTarget, { kind: 'answer' }>,
): Promise<Reply> {
  const { resource } = request
  const whole = { bytes: facts.body, spans: facts.scan.spans }
  const result = memberText(whole, 'result')
  const member = result === null ? 'error' : 'result'
  const text = result ?? memberText(whole, 'error') ?? '{}'
  if (isRemoteRequest(request)) await forwardRemoteAnswer(request, { member, text }, facts)
  // Once: of answers that were granted at one moment the first is passed on, whatever comes of it.
  else if (!serverRequests.close(id)) throw noServerRequest()
  else {
    try {
      await request.respond(responseMessage(request.upstreamId, member, text), facts.granted)
    } catch (error) {
      throw facts.hangup.gone ? new Refusal('client_gone') : refusalOfUpstream(error, resource)
    }
  }
  return { status: 202, report: () => ({ provider: resource.name, detail: {} }) }
}

async function forwardRemoteAnswer(
  request: RemoteServerRequest,
  answer: CallerAnswer,
  { granted: { authority } }: McpFacts,
): Promise<void> {
  if (answer.text.length > NOTICE_MAX_BYTES / 4)
    throw paramsInvalid('An answer of this length must come on the connection that its call was made on.')
  if (!authority.unchanged) await confirmAuthority(authority)
  if (!(await request.give(answer))) throw noServerRequest()
}

const isModernCall = ({ message }: McpFacts): boolean => message.era === 'modern'

/** The tools that take so long are listed at once. ms. */
const SLICE_MS = 3

const BUILT_IN = JSON.stringify(HTTP_GET_TOOL)

/**
 * Lists the tools of a principal, each as JSON text (spec §2.3), from the pins: no upstream is asked. With
 * `callable` only those whose capability it holds; without a certificate only those that take the call's grade. At the endpoint of one resource the names are its own.
 */
async function listVisibleTools(
  facts: McpFacts,
  { registry, enforced, httpGet, list }: McpHandlerDependencies,
): Promise<readonly string[]> {
  const { granted, token, pathResource, message } = facts
  const { principal } = granted
  const callable = (capability: string | null): boolean =>
    holdsDemanded(principal, token, demandedByTool(capability, enforced))
  const isListed = (resource: McpResource, tool: McpTool): tool is PinnedMcpTool =>
    isUsable(resource, tool) &&
    isGradeEnough(facts, resource, tool.name) &&
    (list === 'bound' || callable(capabilityOf(resource, tool.name)))
  const builtIn = list === 'bound' ? holdsDemanded(principal, token, [HTTP_GET]) : callable(HTTP_GET)
  const resources = pathResource ? [pathResource] : await registry.bound(principal)
  const texts: string[] = httpGet && !pathResource && builtIn && !facts.grant ? [BUILT_IN] : []
  let since = performance.now()
  for (const resource of resources) {
    for (const tool of await registry.tools(resource)) {
      if (!isListed(resource, tool)) continue
      const text = listedText(resource, tool, { isWholeName: pathResource === null, era: message.era })
      texts.push(typeof text === 'string' ? text : await text)
      if (performance.now() - since < SLICE_MS) continue
      // There may be thousands.
      await eventLoopTurn()
      since = performance.now()
    }
  }
  return texts
}

/** True if a resource, or its tool, takes calls of this grade: each that shows a certificate. */
const isGradeEnough = ({ grant }: McpFacts, resource: McpResource, tool: string | null): boolean =>
  !grant || isProofEnough(grant.bound, minProofOf(resource, tool))

/**
 * Returns the definition of a tool, as JSON of the members that the caller's era knows, under its whole name or
 * its own.
 */
function listedText(
  { name: resource }: McpResource,
  tool: PinnedMcpTool,
  { isWholeName, era }: { readonly isWholeName: boolean; readonly era: ProtocolEra },
): string | Promise<string> {
  const definition = parsePinnedDefinition(tool)
  const written = ({ object, listed, modernOutput }: PinnedDefinition): string => {
    const edits = {
      ...(isWholeName && { name: JSON.stringify(`${resource}.${tool.name}`) }),
      ...(modernOutput && era === 'legacy' && { outputSchema: null }),
    }
    return isWholeName || 'outputSchema' in edits ? applyEdits(object, edits) : listed
  }
  return definition instanceof Promise ? definition.then(written) : written(definition)
}
