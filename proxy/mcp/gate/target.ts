import { hash } from 'node:crypto'
import { capabilityOf, demandedByTool } from '../../../db/ledger/authority/rule.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import { isObject, type JsonObject, type UnknownRecord } from '../../../db/support/json.ts'
import type {
  CallCommitments,
  CallGrant,
  CallSummary,
  CapabilityDemand,
  Principal,
  ReachedResource,
  ToolCall,
} from '../../../plugins/facts.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { MAX_INLINE_BYTES } from '../aside/aside.ts'
import { canonicalizeArguments, paramsInvalid } from '../protocol/json-text.ts'
import {
  type McpMessage,
  noServerRequest,
  type PeekedCall,
  promptOf,
  recordableName,
  toolCallArguments,
  toolOrPromptName,
} from '../protocol/message.ts'
import { GATED_METHODS } from '../protocol/methods.ts'
import type { RemoteServerRequests } from '../state/far-requests.ts'
import type { ListedUris } from '../state/listed-uris.ts'
import { type McpRegistry, mapMaybe, type RequestedTool } from '../state/registry.ts'
import type { ServerRequests } from '../state/server-requests.ts'
import {
  currentTargetDemand,
  HTTP_GET,
  type McpRuleOptions,
  type McpRules,
  type McpTarget,
  readMcpRules,
  refusalOfGrade,
  resolveCurrentCall,
} from './demand-now.ts'
import {
  type PathResourceAccess,
  type ResourceAccess,
  type ResourcePath,
  reachedResource,
} from './endpoint.ts'
import { type LargeParams, readLargeParams } from './large-params.ts'

interface McpTargetInput extends Arrival, ResourcePath, PathResourceAccess, JsonBody {
  readonly principal: Principal
  /** Absent: the caller shows a certificate, which always suffices. */
  readonly grant?: CallGrant
  readonly commitments: CallCommitments
  readonly message: McpMessage
  readonly peeked: PeekedCall
}

type TargetOrRefusal = { readonly target: McpTarget } | { readonly refusal: Refusal }

/** Given by the first `mcp_target`. */
interface McpTargetFacts {
  readonly aimed: TargetOrRefusal
  readonly demand: CapabilityDemand
  readonly call: CallSummary
  readonly toolCall: ToolCall
  readonly reached: ReachedResource | null
  /** Null if the message is so small that they are read wherever they are needed. */
  readonly largeParams: LargeParams | null
}

interface TargetResolution {
  readonly aimed: TargetOrRefusal
  /** Absent: the method's demand. */
  readonly demanded?: readonly string[]
  /** The one resource that it is for. Absent: none, or several. */
  readonly at?: ResourceAccess
  readonly pin?: string | null
  readonly tool?: string | null
}

/**
 * Finds the target of a call, its demand and its resource, and checks its shape (`mcp_params_invalid`). A
 * missing tool or binding is refused by the next plugin, so that the row names the target. Does NOT check
 * that the principal holds anything.
 */
export function mcpTarget({
  options,
  inForce,
  ...state
}: TargetDependencies): Plugin<McpTargetInput, McpTargetFacts> {
  const sources = { ...state, ...readMcpRules(options) }
  return {
    name: 'mcp_target',
    admit: (facts) =>
      mapMaybe(resolveTarget(facts, sources), (aim) => withParams(facts, ofGrade(facts, aim))),
    still: async ({ principal, aimed, demand, grant }) => {
      if ('refusal' in aimed) throw aimed.refusal
      return {
        demand: await currentTargetDemand(aimed.target, demand, principal, {
          ...state,
          ...readMcpRules(inForce().mcp),
          grade: grant?.bound,
        }),
      }
    },
  }
}

/** A call of a lower grade than its target takes is for none: the next plugin refuses it. */
function ofGrade({ grant }: McpTargetInput, aim: TargetResolution): TargetResolution {
  if (!grant || 'refusal' in aim.aimed) return aim
  const refusal = refusalOfGrade(aim.aimed.target, grant.bound)
  return refusal ? { ...aim, aimed: { refusal } } : aim
}

function withParams(facts: McpTargetInput, aim: TargetResolution): McpTargetFacts | Promise<McpTargetFacts> {
  const args = 'target' in aim.aimed ? policyArguments(facts.message, aim.aimed.target) : null
  if (args === null) return mcpTargetFacts(facts, aim, args, null)
  if (!isLarge(facts)) return mcpTargetFacts(facts, aim, args, canonicalOf(args, facts.commitments))
  return largeParamsOf(facts).then((large) => mcpTargetFacts(facts, aim, args, large, large))
}

function mcpTargetFacts(
  { message, peeked }: McpTargetInput,
  { aimed, demanded, at, pin = null, tool = null }: TargetResolution,
  args: UnknownRecord | null,
  canonical: ArgumentsCommitment | null,
  largeParams: LargeParams | null = null,
): McpTargetFacts {
  const detail: JsonObject = {
    mcp_version: message.version,
    ...(at && { resource: at.resource.name }),
    ...(canonical && { arguments_sha256: canonical.commitment, arguments_bytes: canonical.bytes }),
  }
  return {
    aimed,
    demand: {
      action: message.kind === 'response' ? 'mcp_response' : peeked.demand.action,
      demanded: demanded ?? peeked.demand.demanded,
    },
    call: { model: null, tool, stream: message.takesEvents, detail },
    toolCall: {
      resource: at?.resource.name ?? null,
      method: message.method,
      arguments: args,
      argumentsSha256: canonical?.sha256 ?? null,
    },
    reached: at ? reachedResource(at, pin) : null,
    largeParams,
  }
}

/** Refuses a call without a target: `mcp_tool_unknown`, then `mcp_not_bound`, then `proof_too_weak`. */
export const mcpTargetRequired: Plugin<Arrival & Pick<McpTargetFacts, 'aimed'>, { target: McpTarget }> = {
  name: 'mcp_target',
  admit: ({ aimed }) => {
    if ('refusal' in aimed) throw aimed.refusal
    return aimed
  },
}

const isLarge = ({ body, scan }: JsonBody): boolean =>
  body.length > MAX_INLINE_BYTES && scan.spans.has('params')

function largeParamsOf(facts: McpTargetInput): Promise<LargeParams> {
  const { body, scan, message, principal, hangup, commitments } = facts
  const { start, end } = scan.spans.get('params') ?? { start: 0, end: 0 }
  const member = message.method === 'tools/call' ? 'arguments' : null
  const without = Object.keys(message.edits)
  const given = { bytes: body.subarray(start, end), value: message.params, member, without } as const
  const salt = commitments.salt('arguments_sha256')
  return readLargeParams({ ...given, salt }, { key: principal.id, signal: hangup.signal })
}

type ArgumentsCommitment = Pick<LargeParams, 'commitment' | 'sha256' | 'bytes'>

function canonicalOf(args: UnknownRecord, commitments: CallCommitments): ArgumentsCommitment {
  const bytes = Buffer.from(canonicalizeArguments(args))
  return {
    commitment: commitments.of('arguments_sha256', bytes),
    sha256: () => hash('sha256', bytes),
    bytes: bytes.length,
  }
}

interface TargetState {
  readonly registry: McpRegistry
  readonly serverRequests: Pick<ServerRequests, 'find'>
  /** The requests that wait at other processes; absent if there are none. */
  readonly farRequests?: Pick<RemoteServerRequests, 'find'> | undefined
  readonly listedUris: Pick<ListedUris, 'ownersOf' | 'ownersOfReference'>
}

type TargetSources = TargetState & McpRules

export interface TargetDependencies extends TargetState {
  readonly options: McpRuleOptions
  /** The configuration in force, for calls that another one has let through. */
  readonly inForce: () => { readonly mcp: McpRuleOptions }
}

function resolveTarget(
  facts: McpTargetInput,
  sources: TargetSources,
): TargetResolution | Promise<TargetResolution> {
  const { message, door } = facts
  if (message.kind === 'response') return resolveAnswerTarget(facts, sources)
  const method = GATED_METHODS.get(message.method)
  if (!method) throw new Error(`${message.method} was let through without being a method`)
  if (method.work === 'list_tools') return resolveListTarget(facts, { kind: 'list_tools' })
  if (method.work === 'call_tool') return resolveToolTarget(facts, sources)
  if (method.work === 'relay') return resolveRelayTarget(facts, sources)
  if (!door) return resolveListTarget(facts, { kind: 'aggregate', member: method.member ?? '' })
  return { aimed: { target: { kind: 'relay', resource: door.resource, name: null } }, at: door }
}

/** An answer has the present demand of the call that the server request belongs to. */
async function resolveAnswerTarget(
  { json: { id }, session, principal }: McpTargetInput,
  sources: TargetSources,
): Promise<TargetResolution> {
  const { serverRequests, farRequests } = sources
  const request = serverRequests.find(id, session) ?? (await farRequests?.find(id, session))
  if (!request) throw noServerRequest()
  const now = await resolveCurrentCall(sources, principal, request)
  const { resource, demand, stands } = now ?? { ...request, stands: false }
  const tool = request.pinned && `${resource.name}.${request.pinned.tool.name}`
  const target: McpTarget = { kind: 'answer', request, id: String(id), resource }
  return {
    aimed: stands ? { target } : unboundTarget(),
    tool,
    demanded: demand.demanded,
    ...(now && { at: now }),
  }
}

/** Our own lists have one page. */
function resolveListTarget(
  { message: { params }, door }: McpTargetInput,
  target: McpTarget,
): TargetResolution {
  if (params.cursor !== undefined)
    throw paramsInvalid('cursor was not issued by this service. Begin with the first page.')
  return { aimed: { target }, ...(door && { at: door }) }
}

function resolveToolTarget(
  facts: McpTargetInput,
  { registry, httpGet, enforced }: TargetSources,
): TargetResolution | Promise<TargetResolution> {
  const { message, door, principal } = facts
  const name = toolOrPromptName(message.params.name)
  toolCallArguments(message)
  if (httpGet && !door && name === HTTP_GET)
    return {
      aimed: { target: { kind: 'built_in' } },
      demanded: demandedByTool(HTTP_GET, enforced),
      tool: name,
    }
  return mapMaybe(door ? registry.tool(door.resource, name) : registry.exposed(name), (sought) => {
    if (!sought) return { aimed: unknownToolTarget(name), tool: recordableName(name) }
    if (door) return requestedToolTarget(name, sought, door.binding, enforced)
    const binding = registry.binding(principal, sought.resource)
    return mapMaybe(binding, (bound) => requestedToolTarget(name, sought, bound, enforced))
  })
}

function requestedToolTarget(
  name: string,
  sought: RequestedTool,
  binding: string | null,
  enforced: boolean,
): TargetResolution {
  const { resource, tool } = sought
  const aim = {
    demanded: demandedByTool(capabilityOf(resource, sought.name), enforced),
    at: { resource, binding },
    pin: tool?.state === 'approved' ? tool.digest : null,
    // Nothing that a caller makes up may act on a reader of the row.
    tool: `${resource.name}.${tool ? tool.name : sought.name.replace(/\p{C}/gu, '\uFFFD')}`,
  }
  if (!tool || !resource.enabled) return { ...aim, aimed: unknownToolTarget(name) }
  if (binding === null) return { ...aim, aimed: unboundTarget() }
  return { ...aim, aimed: { target: { kind: 'tool', pinned: { resource, tool } } } }
}

const unknownToolTarget = (tool: string) => ({
  refusal: new Refusal('mcp_tool_unknown', { detail: { tool } }),
})
const unboundTarget = () => ({ refusal: new Refusal('mcp_not_bound') })

/** Aims a method at the one resource that its parameters name, or that the path names. */
async function resolveRelayTarget(facts: McpTargetInput, sources: TargetState): Promise<TargetResolution> {
  const { message, door } = facts
  const prompt = promptOf(message)
  const { name, ...at } = door ? { ...door, name: null } : await findRelayResource(facts, sources, prompt)
  const { resource, binding } = at
  const target: McpTarget = { kind: 'relay', resource, name }
  return {
    aimed: binding === null ? unboundTarget() : { target },
    at,
    ...relayDemand(message, resource, prompt),
  }
}

/**
 * Completing a resource's name has the demand of reading it; setting the level of its log, that of its tools.
 */
function relayDemand(
  { method }: McpMessage,
  { required_capability: own }: McpResource,
  prompt: string | null,
): Pick<TargetResolution, 'demanded'> {
  if (method === 'logging/setLevel') return { demanded: own === null ? [] : [own] }
  if (method !== 'completion/complete' || prompt !== null) return {}
  return { demanded: GATED_METHODS.get('resources/read')?.demanded ?? [] }
}

/** Finds the resource of a prompt by its name, and that of a URI by who has listed it. */
async function findRelayResource(
  facts: McpTargetInput,
  { registry, listedUris }: TargetState,
  prompt: string | null,
): Promise<ResourceAccess & { readonly name: string | null }> {
  const { principal } = facts
  const at = async (resource: McpResource, name: string | null) => ({
    resource,
    name,
    binding: await registry.binding(principal, resource),
  })
  if (prompt !== null) {
    const parts = await registry.split(prompt)
    if (!parts?.resource.enabled)
      throw paramsInvalid('There is no such prompt. Call prompts/list for those that there are.')
    return at(parts.resource, parts.rest)
  }
  const bound = await registry.bound(principal)
  const [only, second] = bound
  if (!only) throw new Refusal('mcp_not_bound')
  if (!second) return at(only, null)
  const uri = uriIn(facts.message)
  if (uri === null)
    throw paramsInvalid('Several resources are bound: ask one of them, at /v1/mcp/<resource>.')
  const owners = await ownersOfUri(facts, { registry, listedUris }, bound, uri)
  const [owner, another] = owners
  if (owner && !another) return at(owner, null)
  throw paramsInvalid(
    another
      ? `Several resources have this uri: ask one of them, at ${owners.map(({ name }) => `/v1/mcp/${name}`).join(' or ')}.`
      : 'No bound resource has listed this uri to you. Ask resources/list, or the resource at /v1/mcp/<resource>.',
  )
}

function uriIn({ params: { uri, ref } }: McpMessage): string | null {
  const named = isObject(ref) ? ref.uri : uri
  return typeof named === 'string' ? named : null
}

/** Finds the resources of a URI: by the pages of approved tools, else by who has listed it. */
async function ownersOfUri(
  { principal, message }: McpTargetInput,
  { registry, listedUris }: Pick<TargetState, 'registry' | 'listedUris'>,
  bound: readonly McpResource[],
  uri: string,
): Promise<readonly McpResource[]> {
  const pages = await Promise.all(bound.map((resource) => registry.pages(resource)))
  const naming = bound.filter((_, index) => pages[index]?.has(uri))
  if (naming.length > 0) return naming
  const offering = bound.filter(({ server_facts: facts }) => {
    const capabilities = facts?.capabilities
    return !isObject(capabilities) || capabilities.resources !== undefined
  })
  const listing = isObject(message.params.ref)
    ? listedUris.ownersOfReference(principal, offering, uri)
    : listedUris.ownersOf(principal, offering, uri)
  return listing.length === 0 && offering.length === 1 ? offering : listing
}

function policyArguments(message: McpMessage, { kind }: McpTarget): Readonly<Record<string, unknown>> | null {
  if (message.method === 'tools/call') return toolCallArguments(message)
  if (kind !== 'relay') return null
  const { _meta, ...params } = message.params
  return params
}
