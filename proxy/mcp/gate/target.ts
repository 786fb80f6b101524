import { hash } from 'node:crypto'
import { capabilityOf, demandedByTool } from '../../../db/ledger/authority/rule.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { JsonObject, Members } from '../../../db/support/json.ts'
import type {
  CallSummary,
  Commitments,
  Demand,
  Principal,
  Reached,
  ToolCall,
} from '../../../plugins/facts.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { SMALL } from '../aside/aside.ts'
import { canonicalText } from '../protocol/json-text.ts'
import {
  argumentsOf,
  type McpMessage,
  nameOf,
  noServerRequest,
  type Peeked,
  paramsInvalid,
  promptOf,
  recordableName,
} from '../protocol/message.ts'
import { METHODS } from '../protocol/methods.ts'
import type { FarRequests } from '../state/far-requests.ts'
import { type Registry, type SoughtTool, upon } from '../state/registry.ts'
import type { ServerRequests } from '../state/server-requests.ts'
import { callNow, demandStill, HTTP_GET, type McpRules, type McpTarget } from './demand-now.ts'
import { type Door, type DoorFound, type ResourcePath, reachedAt } from './endpoint.ts'
import { type LargeParams, readLargeParams } from './large-params.ts'

interface Needs extends Arrival, ResourcePath, DoorFound, JsonBody {
  readonly principal: Principal
  readonly commitments: Commitments
  readonly message: McpMessage
  readonly peeked: Peeked
}

/** What a call is aimed at, and the reason why it may not go there whatever the caller holds. */
type Aimed = { readonly target: McpTarget } | { readonly refusal: Refusal }

/** Given by the first `mcp_target`. */
interface Found {
  readonly aimed: Aimed
  readonly demand: Demand
  readonly call: CallSummary
  readonly toolCall: ToolCall
  /** The one resource that the call is for, as it was judged; null where it is several, or none. */
  readonly reached: Reached | null
  /** Null where the message is so small that they are read wherever they are needed. */
  readonly largeParams: LargeParams | null
}

/** An aim, and what it demands. */
interface Aim {
  readonly aimed: Aimed
  /** Absent: what its method demands. */
  readonly demanded?: readonly string[]
  /** The one resource that it is for. Absent: none, or several. */
  readonly at?: Door
  readonly pin?: string | null
  readonly tool?: string | null
}

/**
 * Finds the target of a call, and checks its shape (`mcp_params_invalid`). States the capabilities it demands, and
 * which resource it is for. Where there is no such tool, or the caller is not bound to it, the next one refuses
 * it: so the row of the refusal says what it was for. Does NOT check that the principal holds anything.
 */
export function mcpTarget(sources: TargetSources): Plugin<Needs, Found> {
  return {
    name: 'mcp_target',
    admit: (facts) => upon(aimOf(facts, sources), (aim) => withParams(facts, aim)),
    still: async ({ principal, aimed, demand }) => {
      if ('refusal' in aimed) throw aimed.refusal
      return {
        demand: await demandStill(aimed.target, demand, principal, { ...sources, ...sources.inForce() }),
      }
    },
  }
}

/** Judges the parameters of a call whose aim is known: on a thread where they are large. */
function withParams(facts: Needs, aim: Aim): Found | Promise<Found> {
  const args = 'target' in aim.aimed ? judgedArguments(facts.message, aim.aimed.target) : null
  if (args === null) return found(facts, aim, args, null)
  if (!isLarge(facts)) return found(facts, aim, args, canonicalOf(args, facts.commitments))
  return largeParamsOf(facts).then((large) => found(facts, aim, args, large, large))
}

function found(
  { message, peeked }: Needs,
  { aimed, demanded, at, pin = null, tool = null }: Aim,
  args: Members | null,
  canonical: Canonical | null,
  largeParams: LargeParams | null = null,
): Found {
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
    reached: at ? reachedAt(at, pin) : null,
    largeParams,
  }
}

/**
 * Refuses a call that has no target, in the order of docs/protocol.md#mcp-order: that it exists
 * (`mcp_tool_unknown`), that the principal is bound to it (`mcp_not_bound`).
 */
export const mcpTargetFound: Plugin<Arrival & Pick<Found, 'aimed'>, { target: McpTarget }> = {
  name: 'mcp_target',
  admit: ({ aimed }) => {
    if ('refusal' in aimed) throw aimed.refusal
    return aimed
  },
}

const isLarge = ({ body, spans }: JsonBody): boolean => body.length > SMALL && spans.has('params')

/** Reads the parameters of a large message, of which `body` is what came and `params` what was read of it. */
function largeParamsOf(facts: Needs): Promise<LargeParams> {
  const { body, spans, message, principal, hangup, commitments } = facts
  const { start, end } = spans.get('params') ?? { start: 0, end: 0 }
  const member = message.method === 'tools/call' ? 'arguments' : null
  const without = Object.keys(message.edits)
  const given = { bytes: body.subarray(start, end), value: message.params, member, without } as const
  const salt = commitments.salt('arguments_sha256')
  return readLargeParams({ ...given, salt }, { key: principal.id, signal: hangup.signal })
}

type Canonical = Pick<LargeParams, 'commitment' | 'sha256' | 'bytes'>

function canonicalOf(args: Members, commitments: Commitments): Canonical {
  const bytes = Buffer.from(canonicalText(args))
  return {
    commitment: commitments.of('arguments_sha256', bytes),
    sha256: () => hash('sha256', bytes),
    bytes: bytes.length,
  }
}

export interface TargetSources extends McpRules {
  readonly registry: Registry
  readonly serverRequests: Pick<ServerRequests, 'find'>
  /** The requests that wait at other processes; absent where there are none. */
  readonly farRequests?: Pick<FarRequests, 'find'> | undefined
  /** The same as the configuration in force says it, for calls that another one has let through. */
  readonly inForce: () => McpRules
}

function aimOf(facts: Needs, sources: TargetSources): Aim | Promise<Aim> {
  const { message, door } = facts
  if (message.kind === 'response') return answerAim(facts, sources)
  const method = METHODS.get(message.method)
  if (!method) throw new Error(`${message.method} was let through without being a method`)
  if (method.work === 'list_tools') return listAim(facts, { kind: 'list_tools' })
  if (method.work === 'call_tool') return toolAim(facts, sources)
  if (method.work === 'relay') return relayAim(facts, sources.registry)
  if (!door) return listAim(facts, { kind: 'aggregate', member: method.member ?? '' })
  return { aimed: { target: { kind: 'relay', resource: door.resource, name: null } }, at: door }
}

/** An answer demands what the call would demand now that the server request belongs to. */
async function answerAim({ json: { id }, session, principal }: Needs, sources: TargetSources): Promise<Aim> {
  const { serverRequests, farRequests } = sources
  const request = serverRequests.find(id, session) ?? (await farRequests?.find(id, session))
  if (!request) throw noServerRequest()
  const now = await callNow(sources, principal, request)
  const { resource, demand, stands } = now ?? { ...request, stands: false }
  const tool = request.pinned && `${resource.name}.${request.pinned.tool.name}`
  const target: McpTarget = { kind: 'answer', request, id: String(id), resource }
  return { aimed: stands ? { target } : unbound(), tool, demanded: demand.demanded, ...(now && { at: now }) }
}

/** Our own lists have one page. */
function listAim({ message: { params }, door }: Needs, target: McpTarget): Aim {
  if (params.cursor !== undefined) throw paramsInvalid('cursor is none that was given out.')
  return { aimed: { target }, ...(door && { at: door }) }
}

function toolAim(facts: Needs, { registry, httpGet, enforced }: TargetSources): Aim | Promise<Aim> {
  const { message, door, principal } = facts
  const name = nameOf(message.params.name)
  argumentsOf(message)
  if (httpGet && !door && name === HTTP_GET)
    return {
      aimed: { target: { kind: 'built_in' } },
      demanded: demandedByTool(HTTP_GET, enforced),
      tool: name,
    }
  return upon(door ? registry.tool(door.resource, name) : registry.exposed(name), (sought) => {
    if (!sought) return { aimed: unknown(name), tool: recordableName(name) }
    if (door) return soughtAim(name, sought, door.binding, enforced)
    const binding = registry.binding(principal, sought.resource)
    return upon(binding, (bound) => soughtAim(name, sought, bound, enforced))
  })
}

/** `name`: as the caller calls it. */
function soughtAim(name: string, sought: SoughtTool, binding: string | null, enforced: boolean): Aim {
  const { resource, tool } = sought
  const aim = {
    demanded: demandedByTool(capabilityOf(resource, sought.name), enforced),
    at: { resource, binding },
    pin: tool?.state === 'approved' ? tool.digest : null,
    // Nothing that a caller makes up may act on whoever reads the row.
    tool: `${resource.name}.${tool ? tool.name : sought.name.replace(/\p{C}/gu, '\uFFFD')}`,
  }
  if (!tool || !resource.enabled) return { ...aim, aimed: unknown(name) }
  if (binding === null) return { ...aim, aimed: unbound() }
  return { ...aim, aimed: { target: { kind: 'tool', pinned: { resource, tool } } } }
}

const unknown = (tool: string) => ({ refusal: new Refusal('mcp_tool_unknown', { detail: { tool } }) })
const unbound = () => ({ refusal: new Refusal('mcp_not_bound') })

/** Aims a method at the one resource that its parameters name, or that the path names. */
async function relayAim(facts: Needs, registry: Registry): Promise<Aim> {
  const { message, door } = facts
  const prompt = promptOf(message)
  const { name, ...at } = door ? { ...door, name: null } : await relayOf(facts, registry, prompt)
  const { resource, binding } = at
  const target: McpTarget = { kind: 'relay', resource, name }
  return { aimed: binding === null ? unbound() : { target }, at, ...relayDemand(message, resource, prompt) }
}

/**
 * Completing what a resource is called demands what reading it does; the level of its log, what its tools do.
 */
function relayDemand(
  { method }: McpMessage,
  { required_capability: own }: McpResource,
  prompt: string | null,
): Pick<Aim, 'demanded'> {
  if (method === 'logging/setLevel') return { demanded: own === null ? [] : [own] }
  if (method !== 'completion/complete' || prompt !== null) return {}
  return { demanded: METHODS.get('resources/read')?.demanded ?? [] }
}

/**
 * Finds the resource of a prompt by its name. A URI names none: it goes to the one bound resource, or
 * nowhere.
 */
async function relayOf(
  { principal }: Needs,
  registry: Registry,
  prompt: string | null,
): Promise<Door & { readonly name: string | null }> {
  const at = async (resource: McpResource, name: string | null) => ({
    resource,
    name,
    binding: await registry.binding(principal, resource),
  })
  if (prompt !== null) {
    const parts = await registry.split(prompt)
    if (!parts?.resource.enabled) throw paramsInvalid('There is no such prompt.')
    return at(parts.resource, parts.rest)
  }
  const [only, second] = await registry.bound(principal)
  if (!only) throw new Refusal('mcp_not_bound')
  if (!second) return at(only, null)
  throw paramsInvalid('Several resources are bound: ask at the door of one of them, /v1/mcp/<resource>.')
}

/** Returns what an operator's rule may judge: a tool's arguments, or the parameters of a relayed method. */
function judgedArguments(message: McpMessage, { kind }: McpTarget): Readonly<Record<string, unknown>> | null {
  if (message.method === 'tools/call') return argumentsOf(message)
  if (kind !== 'relay') return null
  const { _meta, ...params } = message.params
  return params
}
