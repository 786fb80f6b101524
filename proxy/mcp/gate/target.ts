import { hash } from 'node:crypto'
import { isObject, type JsonObject, type Members } from '../../../db/json.ts'
import { capabilityOf, type McpResource } from '../../../db/mcp/resources.ts'
import type { CallSummary, Demand, Principal, ToolCall } from '../../../plugins/facts.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { SMALL } from '../aside/aside.ts'
import { HTTP_GET_TOOL } from '../http-get/tool.ts'
import { canonicalText } from '../protocol/json-values.ts'
import type { McpMessage, Peeked } from '../protocol/message.ts'
import { METHODS } from '../protocol/methods.ts'
import type { PinnedTool, Registry } from '../state/registry.ts'
import type { StateOwner } from '../state/request-state.ts'
import type { ServerRequest, ServerRequests } from '../state/server-requests.ts'
import { demandNow, type Reached } from './demand-now.ts'
import type { ResourcePath } from './endpoint.ts'
import { type LargeParams, readLargeParams } from './large-params.ts'

export const HTTP_GET = String(HTTP_GET_TOOL.name)

/** The work that a message asks for. Given by `mcp_target`. */
export type McpTarget =
  | { readonly kind: 'list_tools' }
  | { readonly kind: 'aggregate'; readonly member: string }
  | { readonly kind: 'built_in' }
  | { readonly kind: 'tool'; readonly pinned: PinnedTool }
  /** `name`: the upstream's own, where the caller's is another one. */
  | { readonly kind: 'relay'; readonly resource: McpResource; readonly name: string | null }
  | Readonly<{ kind: 'answer'; request: ServerRequest; id: string; resource: McpResource }>

/** Returns the one resource that a target reaches, or null where it is several, or none. */
export function reachedBy(target: McpTarget, demand: Demand): Reached | null {
  if (target.kind === 'tool') return { resource: target.pinned.resource, pinned: target.pinned, demand }
  if (target.kind === 'relay') return { resource: target.resource, pinned: null, demand }
  return target.kind === 'answer' ? target.request : null
}

/** The resource that a call goes to. */
export interface Destination {
  readonly resource: McpResource
  /** The upstream's own name of the tool or prompt, where the caller's is another one. */
  readonly name: string | null
  /** The pinned tool, where it is one that is called. */
  readonly pinned: PinnedTool | null
}

/** Returns the destination of a tool's call, or of a method that is relayed. */
export function destinationOf(target: Extract<McpTarget, { kind: 'tool' | 'relay' }>): Destination {
  if (target.kind === 'relay') return { resource: target.resource, name: target.name, pinned: null }
  const { pinned } = target
  return { resource: pinned.resource, name: pinned.tool.name, pinned }
}

/** Names the owner of a state of a multi round-trip request, and its call. */
export function stateOwnerOf(principal: Principal, message: McpMessage, to: Destination): StateOwner {
  const { resource_id: resourceId } = to.resource
  return { principal, resourceId, method: message.method, name: subjectOf(message, to) ?? '' }
}

/** Names the subject of a call as its upstream knows it: a tool, a prompt or a URI. */
export function subjectOf({ params: { name, uri } }: McpMessage, to: Destination): string | null {
  const own = to.name ?? name ?? uri
  return typeof own === 'string' ? own : null
}

interface Needs extends Arrival, ResourcePath, JsonBody {
  readonly principal: Principal
  readonly message: McpMessage
  readonly peeked: Peeked
}

interface Gives {
  readonly target: McpTarget
  readonly demand: Demand
  readonly call: CallSummary
  readonly toolCall: ToolCall
  /** Null where the message is so small that they are read wherever they are needed. */
  readonly largeParams: LargeParams | null
}

/** A target, and the capability that it demands. */
interface Aim {
  readonly target: McpTarget
  /** Absent: the method's own. */
  readonly capability?: string
  readonly resource?: McpResource
  readonly tool?: string
}

/**
 * Finds the target of a call, in the order of docs/protocol.md#mcp-order: its shape (`mcp_params_invalid`),
 * that it exists (`mcp_tool_unknown`), that the principal is bound to it (`mcp_not_bound`). States the
 * capability it demands. Does NOT check that the principal holds it.
 */
export function mcpTarget(
  registry: Registry,
  serverRequests: ServerRequests,
  httpGet: boolean,
): Plugin<Needs, Gives> {
  return {
    name: 'mcp_target',
    admit: async (facts) => {
      const { message, peeked } = facts
      const aim = await aimOf(facts, { registry, serverRequests, httpGet })
      const args = judgedArguments(message, aim.target)
      const largeParams = args && isLarge(facts) ? await largeParamsOf(facts) : null
      const canonical = largeParams ?? (args && canonicalOf(args))
      const detail: JsonObject = {
        mcp_version: message.version,
        ...(aim.resource && { resource: aim.resource.name }),
        ...(canonical && { arguments_sha256: canonical.sha256, arguments_bytes: canonical.bytes }),
      }
      return {
        target: aim.target,
        demand: {
          action: aim.target.kind === 'answer' ? 'mcp_response' : peeked.demand.action,
          capability: aim.capability ?? peeked.demand.capability,
        },
        call: { model: null, tool: aim.tool ?? null, stream: message.takesEvents, detail },
        toolCall: {
          resource: aim.resource?.name ?? null,
          method: message.method,
          arguments: args,
          argumentsSha256: canonical?.sha256 ?? null,
        },
        largeParams,
      }
    },
  }
}

const isLarge = ({ body, spans }: JsonBody): boolean => body.length > SMALL && spans.has('params')

/** Reads the parameters of a large message, of which `body` is what came and `params` what was read of it. */
function largeParamsOf({ body, spans, message, principal, signal }: Needs): Promise<LargeParams> {
  const { start, end } = spans.get('params') ?? { start: 0, end: 0 }
  const member = message.method === 'tools/call' ? 'arguments' : null
  const given = { bytes: body.subarray(start, end), value: message.params, member } as const
  return readLargeParams(given, { key: principal.id, signal })
}

function canonicalOf(args: Members): Pick<LargeParams, 'sha256' | 'bytes'> {
  const text = canonicalText(args)
  return { sha256: hash('sha256', text), bytes: Buffer.byteLength(text) }
}

interface Sources {
  readonly registry: Registry
  readonly serverRequests: ServerRequests
  readonly httpGet: boolean
}

async function aimOf(facts: Needs, sources: Sources): Promise<Aim> {
  const { message, pathResource } = facts
  if (message.kind === 'response') return answerAim(facts, sources)
  const method = METHODS.get(message.method)
  if (!method) throw new Error(`${message.method} was let through without being a method`)
  if (method.work === 'list_tools') return listAim(message, { target: { kind: 'list_tools' } }, pathResource)
  if (method.work === 'call_tool') return toolAim(facts, sources)
  if (method.work === 'relay') return relayAim(facts, sources.registry)
  const target: McpTarget = pathResource
    ? { kind: 'relay', resource: pathResource, name: null }
    : { kind: 'aggregate', member: method.member ?? '' }
  return pathResource ? { target, resource: pathResource } : listAim(message, { target }, pathResource)
}

/** An answer demands what the call would demand now that the server request belongs to. */
async function answerAim(
  { json: { id }, session, principal }: Needs,
  { serverRequests, registry }: Sources,
): Promise<Aim> {
  const request = serverRequests.find(id, session)
  if (!request) throw noServerRequest()
  const { demand, resource } = await demandNow(registry, principal, request)
  return { target: { kind: 'answer', request, id: String(id), resource }, ...demand, resource }
}

/** Our own lists have one page. */
function listAim({ params }: McpMessage, aim: Aim, pathResource: McpResource | null): Aim {
  if (params.cursor !== undefined) throw paramsInvalid('cursor is none that was given out.')
  return pathResource ? { ...aim, resource: pathResource } : aim
}

async function toolAim(
  { message, pathResource, principal }: Needs,
  { registry, httpGet }: Sources,
): Promise<Aim> {
  const name = nameOf(message.params.name)
  argumentsOf(message)
  if (httpGet && !pathResource && name === HTTP_GET)
    return { target: { kind: 'built_in' }, capability: HTTP_GET, tool: name }
  const pinned = await (pathResource ? registry.tool(pathResource, name) : registry.exposed(name))
  if (!pinned) throw new Refusal('mcp_tool_unknown', { detail: { tool: name } })
  const { resource, tool } = pinned
  // At the endpoint of one resource that was asked already.
  if (!pathResource && !(await registry.isBound(principal, resource))) throw new Refusal('mcp_not_bound')
  return {
    target: { kind: 'tool', pinned },
    capability: capabilityOf(resource, tool.name),
    resource,
    tool: `${resource.name}.${tool.name}`,
  }
}

/** Aims a method at the one resource that its parameters name, or that the path names. */
async function relayAim(facts: Needs, registry: Registry): Promise<Aim> {
  const { message, pathResource } = facts
  const prompt = promptOf(message)
  const to = pathResource ? { resource: pathResource, name: null } : await relayOf(facts, registry, prompt)
  const { resource } = to
  return { target: { kind: 'relay', ...to }, resource, ...relayCapability(message, resource, prompt) }
}

/** Returns the name of the prompt that is meant, or null where a resource is, or nothing in particular. */
function promptOf({ method, params }: McpMessage): string | null {
  if (method === 'prompts/get') return nameOf(params.name)
  if (method === 'logging/setLevel') return null
  if (method !== 'completion/complete') {
    uriOf(params.uri)
    return null
  }
  const { ref } = params
  if (isObject(ref) && ref.type === 'ref/prompt') return nameOf(ref.name)
  if (!isObject(ref) || ref.type !== 'ref/resource')
    throw paramsInvalid('ref must name a prompt or a resource.')
  uriOf(ref.uri)
  return null
}

/**
 * Completing what a resource is called demands what reading it does; the level of its log, what its tools do.
 */
function relayCapability(
  { method }: McpMessage,
  { required_capability: own }: McpResource,
  prompt: string | null,
): { capability?: string } {
  if (method === 'logging/setLevel') return { capability: own }
  const like = method === 'completion/complete' && prompt === null ? 'resources/read' : method
  const capability = METHODS.get(like)?.capability
  return capability === undefined ? {} : { capability }
}

/**
 * Finds the resource of a prompt by its name. A URI names none: it goes to the one bound resource, or
 * nowhere.
 */
async function relayOf(
  { principal }: Needs,
  registry: Registry,
  prompt: string | null,
): Promise<{ resource: McpResource; name: string | null }> {
  if (prompt !== null) {
    const parts = await registry.split(prompt)
    if (!parts) throw paramsInvalid('There is no such prompt.')
    if (!(await registry.isBound(principal, parts.resource))) throw new Refusal('mcp_not_bound')
    return { resource: parts.resource, name: parts.rest }
  }
  const [only, second] = await registry.bound(principal)
  if (!only) throw new Refusal('mcp_not_bound')
  if (!second) return { resource: only, name: null }
  throw paramsInvalid('Several resources are bound: ask at the door of one of them, /v1/mcp/<resource>.')
}

function nameOf(name: unknown): string {
  if (typeof name === 'string' && name !== '' && name.length <= 256 && name.isWellFormed()) return name
  throw paramsInvalid('name must be a string of 1 to 256 characters.')
}

function uriOf(uri: unknown): string {
  if (typeof uri === 'string' && uri !== '' && uri.length <= 8192 && uri.isWellFormed()) return uri
  throw paramsInvalid('uri must be a string of 1 to 8192 characters.')
}

function argumentsOf({ params }: McpMessage): Readonly<Record<string, unknown>> {
  const { arguments: given = {} } = params
  if (!isObject(given)) throw paramsInvalid('arguments must be an object.')
  return given
}

/** Returns what an operator's rule may judge: a tool's arguments, or the parameters of a relayed method. */
function judgedArguments(message: McpMessage, { kind }: McpTarget): Readonly<Record<string, unknown>> | null {
  if (message.method === 'tools/call') return argumentsOf(message)
  if (kind !== 'relay') return null
  const { _meta, ...params } = message.params
  return params
}

export const noServerRequest = (): Refusal =>
  new Refusal('mcp_message_invalid', { message: 'No such question is open.' })

const paramsInvalid = (message: string): Refusal => new Refusal('mcp_params_invalid', { message })
