import { hash } from 'node:crypto'
import type { JsonObject } from '../../../db/json.ts'
import { isObject } from '../../../db/json.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { CallSummary, Demand, Principal, ToolCall } from '../../../plugins/facts.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { HTTP_GET_TOOL } from '../http-get/tool.ts'
import { canonicalText } from '../protocol/canonical-text.ts'
import type { McpMessage } from '../protocol/message.ts'
import { METHODS } from '../protocol/methods.ts'
import { capabilityOf, type PinnedTool, type Registry } from '../state/registry.ts'
import type { ServerRequest, ServerRequests } from '../state/server-requests.ts'
import { demandNow, type Reached } from './demand-now.ts'
import type { Peeked } from './peek.ts'
import type { ResourcePath } from './resource-path.ts'

export const HTTP_GET = String(HTTP_GET_TOOL.name)

/** What a message is to be done with. Given by `mcp_target`. */
export type Target =
  | { readonly kind: 'list_tools' }
  | { readonly kind: 'aggregate'; readonly member: string }
  | { readonly kind: 'built_in' }
  | { readonly kind: 'tool'; readonly found: PinnedTool }
  /** `name`: what the upstream calls it, where that is not what the caller called it. */
  | { readonly kind: 'relay'; readonly resource: McpResource; readonly name: string | null }
  | { readonly kind: 'answer'; readonly question: ServerRequest; readonly id: string }

/** The one resource that a target reaches, or null where it is of several, or of none. */
export function reachedBy(target: Target, demand: Demand): Reached | null {
  if (target.kind === 'tool') return { resource: target.found.resource, found: target.found, demand }
  if (target.kind === 'relay') return { resource: target.resource, found: null, demand }
  return target.kind === 'answer' ? target.question : null
}

interface Needs extends Arrival, ResourcePath, Pick<JsonBody, 'json'> {
  readonly principal: Principal
  readonly message: McpMessage
  readonly peeked: Peeked
}

interface Gives {
  readonly target: Target
  readonly demand: Demand
  readonly call: CallSummary
  readonly toolCall: ToolCall
}

/** A target, and what is asked of the principal for it. */
interface Aim {
  readonly target: Target
  /** Where it is not the method's own. */
  readonly capability?: string
  readonly resource?: McpResource
  readonly tool?: string
}

/**
 * Finds what a call is for, in the order of WIRE.md §4: its shape (`mcp_params_invalid`), that it exists
 * (`mcp_tool_unknown`), that the principal is bound to it (`mcp_not_bound`). States the capability it demands.
 * Does NOT check that the principal holds it.
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
      const args = askedOf(message, aim.target)
      const canonical = args && canonicalText(args)
      const sha256 = canonical && hash('sha256', canonical)
      const detail: JsonObject = {
        mcp_version: message.version,
        ...(aim.resource && { resource: aim.resource.name }),
        ...(canonical && { arguments_sha256: sha256, arguments_bytes: Buffer.byteLength(canonical) }),
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
          argumentsSha256: sha256,
        },
      }
    },
  }
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
  const target: Target = pathResource
    ? { kind: 'relay', resource: pathResource, name: null }
    : { kind: 'aggregate', member: method.member ?? '' }
  return pathResource ? { target, resource: pathResource } : listAim(message, { target }, pathResource)
}

/** An answer demands what the call that is asked about would demand now. */
async function answerAim(
  { json: { id }, session, principal }: Needs,
  { serverRequests, registry }: Sources,
): Promise<Aim> {
  const question = serverRequests.find(id, session)
  if (!question) throw noQuestion()
  const { capability } = await demandNow(registry, principal, question)
  return { target: { kind: 'answer', question, id: String(id) }, capability, resource: question.resource }
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
  const found = await (pathResource ? registry.tool(pathResource, name) : registry.exposed(name))
  if (!found) throw new Refusal('mcp_tool_unknown', { detail: { tool: name } })
  // A scoped door has asked already.
  if (!pathResource && !(await registry.isBound(principal, found.resource)))
    throw new Refusal('mcp_not_bound')
  return {
    target: { kind: 'tool', found },
    capability: capabilityOf(found.resource, found.tool.name),
    resource: found.resource,
    tool: `${found.resource.name}.${found.tool.name}`,
  }
}

/** A method for the one resource that its parameters name; at a scoped door, for the one that stands behind it. */
async function relayAim(facts: Needs, registry: Registry): Promise<Aim> {
  const { message, pathResource } = facts
  const prompt = promptOf(message)
  const found = pathResource ? { resource: pathResource, name: null } : await relayOf(facts, registry, prompt)
  const { resource } = found
  return { target: { kind: 'relay', ...found }, resource, ...relayCapability(message, resource, prompt) }
}

/** The name of the prompt that is meant, or null where a resource is, or nothing in particular. */
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

/** Completing what a resource is called demands what reading it does; the level of its log, what its tools do. */
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

/** A prompt says its resource by its name; a URI cannot, so it goes to the one bound resource, or to none. */
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

/** What a rule of the organisation may look at: the arguments of a tool, or the parameters of what is relayed. */
function askedOf(message: McpMessage, { kind }: Target): Readonly<Record<string, unknown>> | null {
  if (message.method === 'tools/call') return argumentsOf(message)
  if (kind !== 'relay') return null
  const { _meta, ...asked } = message.params
  return asked
}

export const noQuestion = (): Refusal =>
  new Refusal('mcp_message_invalid', { message: 'No such question is open.' })

const paramsInvalid = (message: string): Refusal => new Refusal('mcp_params_invalid', { message })
