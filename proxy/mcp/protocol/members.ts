import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import type { BodyScan, JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { Refusal } from '../../../plugins/refusal.ts'
import { escapeHidden, truncateText } from '../../visible.ts'
import { areAllKnown, type MemberEdits, paramsInvalid } from './json-text.ts'
import { ExactNames, foldedCase, MAX_FOLDED_NAME, MAX_FOLDED_NAMES } from './loose-name.ts'
import { META_KEYS } from './versions.ts'

/** The members that an object of a message has, by MCP 2024-11-05 to 2026-07-28. */
interface ObjectMembers {
  readonly names: ExactNames
  /** The names of members that are not looked into. */
  readonly plain: ReadonlySet<string>
  /** The members of a member that is itself an object. Absent: its content is its writer's own. */
  readonly inner: ReadonlyMap<string, ObjectMembers>
  /** True: by MCP, members with other names may stand here, and go on. False: they are left out. */
  readonly open: boolean
  /** True: the names are the writer's own, and no two of them may be one to some reader. */
  readonly distinct: boolean
  /** The members of each value. Absent: they are its writer's own. */
  readonly each?: ObjectMembers
  /** The beginning of names that MCP keeps for itself. */
  readonly reserved?: string
}

/** The members of an object: `null` for a value that is its writer's own. */
type MemberShapes = Readonly<Record<string, ObjectMembers | null>>

function describeMembers(
  members: MemberShapes,
  more: Partial<Omit<ObjectMembers, 'plain'>> = {},
): ObjectMembers {
  const inner = new Map(Object.entries(members).flatMap(([name, of]) => (of ? [[name, of] as const] : [])))
  const plain = new Set(Object.keys(members).filter((name) => !inner.has(name)))
  return {
    names: new ExactNames(Object.keys(members), foldedCase),
    inner,
    plain,
    open: false,
    distinct: false,
    ...more,
  }
}

const open = (members: MemberShapes): ObjectMembers => describeMembers(members, { open: true })

const map = (each?: ObjectMembers): ObjectMembers =>
  describeMembers({}, { open: true, distinct: true, ...(each && { each }) })

const RESERVED = 'io.modelcontextprotocol/'

const META_MEMBERS = describeMembers(
  Object.fromEntries(
    ['progressToken', ...Object.values(META_KEYS), `${RESERVED}logLevel`].map((name) => [name, null]),
  ),
  { open: true, reserved: RESERVED },
)

const GIVEN_RESULT = open({
  _meta: null,
  action: null,
  content: null,
  role: null,
  model: null,
  stopReason: null,
  roots: null,
  task: null,
  resultType: null,
})

const params = (members: MemberShapes): ObjectMembers => describeMembers({ _meta: META_MEMBERS, ...members })

/** The caller's answer to the question in a modern server's result (MCP 2026-07-28, mrtr). */
const RETRY: MemberShapes = { inputResponses: map(GIVEN_RESULT), requestState: null }
/** MCP has `ttl` alone; the SDK of TypeScript sends the other as well. */
const TASK = describeMembers({ ttl: null, pollInterval: null })
const PAGED = params({ cursor: null })
const NOTHING = params({})
const OF_RESOURCE = params({ uri: null })

/** The members of `params`, by method. A tool's arguments are its schema's (schema/argument-names.ts). */
export const PARAMS_BY_METHOD: ReadonlyMap<string, ObjectMembers> = new Map([
  ['tools/list', PAGED],
  ['tools/call', params({ name: null, arguments: null, task: TASK, ...RETRY })],
  ['prompts/list', PAGED],
  ['prompts/get', params({ name: null, arguments: map(), ...RETRY })],
  ['resources/list', PAGED],
  ['resources/templates/list', PAGED],
  ['resources/read', params({ uri: null, ...RETRY })],
  ['resources/subscribe', OF_RESOURCE],
  ['resources/unsubscribe', OF_RESOURCE],
  [
    'completion/complete',
    params({
      ref: describeMembers({ type: null, name: null, title: null, uri: null }),
      argument: describeMembers({ name: null, value: null }),
      context: describeMembers({ arguments: map() }),
    }),
  ],
  ['logging/setLevel', params({ level: null })],
  [
    'initialize',
    params({
      protocolVersion: null,
      capabilities: open({ roots: null, sampling: null, elicitation: null, tasks: null, experimental: null }),
      clientInfo: null,
    }),
  ],
  ['ping', NOTHING],
  ['server/discover', NOTHING],
  ['notifications/cancelled', params({ requestId: null, reason: null })],
])

export const MESSAGE_NAMES = new ExactNames(
  ['jsonrpc', 'id', 'method', 'params', 'result', 'error'],
  foldedCase,
)

const NO_EDITS: MemberEdits = {}

export function messageEdits(names: Iterable<string>): MemberEdits {
  const foreign = [...names].filter((name) => !MESSAGE_NAMES.exact.has(name))
  return foreign.length === 0 ? NO_EDITS : Object.fromEntries(foreign.map((name) => [name, null]))
}

export const ERROR_NAMES = new ExactNames(['code', 'message', 'data'], foldedCase)

/** The members of a server's results. MCP allows any other in addition. */
export const RESULT_NAMES = new ExactNames(
  [
    '_meta',
    'resultType',
    'inputRequests',
    'requestState',
    'ttlMs',
    'cacheScope',
    'nextCursor',
    'tools',
    'prompts',
    'resources',
    'resourceTemplates',
    'content',
    'structuredContent',
    'isError',
    'contents',
    'messages',
    'description',
    'completion',
  ],
  foldedCase,
)

/** A message of which a part is written again is no longer than this. Bytes. */
const MAX_REWRITTEN_BYTES = 32 * 1024

/**
 * Leaves out parameters that a message's method does not have. Refuses with `mcp_params_invalid` a member
 * that some reader takes for one that the method has, at any depth that MCP defines, more than 1,000 names,
 * and names of more than 512 characters. The inside of a long message's member is refused, not written again.
 * Does NOT look into a tool's arguments.
 */
export function knownParams(
  method: string,
  given: UnknownRecord,
  { body, wide }: Pick<JsonBody, 'body'> & Pick<BodyScan, 'wide'>,
): { readonly params: UnknownRecord; readonly edits: MemberEdits } {
  const of = PARAMS_BY_METHOD.get(method) ?? NOTHING
  const params = new MemberNameChecker('params', wide).own(given, of)
  if (params === given) return { params, edits: NO_EDITS }
  const edits = new Map<string, string | null>()
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(params, name)) edits.set(name, null)
    else if (params[name] !== value) {
      if (body.length > MAX_REWRITTEN_BYTES)
        throw paramsInvalid(`params.${name} has a member that MCP does not define there. Leave it out.`)
      edits.set(name, JSON.stringify(params[name]))
    }
  }
  return { params, edits: Object.fromEntries(edits) }
}

/** Checks the answer of a caller to a server's question. Refuses as {@link knownParams} does. */
export function checkClientAnswer(
  member: 'result' | 'error',
  given: unknown,
  wide: ReadonlySet<object> = new Set(),
): void {
  if (!isObject(given)) return
  new MemberNameChecker(member, wide).own(given, member === 'result' ? GIVEN_RESULT : ERROR_MEMBERS)
}

const ERROR_MEMBERS = open({ code: null, message: null, data: null })

/** Checks the names of a whole message of a caller. Refuses as {@link knownParams} does. */
export function checkMessageNames(names: Iterable<string>): void {
  const looking = new MemberNameChecker('The message', new Set())
  for (const name of names) looking.at(name, MESSAGE_NAMES)
}

class MemberNameChecker {
  readonly #where: string
  readonly #wide: ReadonlySet<object>
  #names = 0

  /** `wide`: the objects with more than 1,000 members, which are refused unlisted. */
  constructor(where: string, wide: ReadonlySet<object>) {
    this.#where = where
    this.#wide = wide
  }

  /** Returns the object without unknown members; itself if there are none. */
  own(value: UnknownRecord, of: ObjectMembers): UnknownRecord {
    if (this.#wide.has(value)) throw this.#tooMany()
    const names = Object.keys(value)
    if (areAllKnown(names, of.plain)) return value
    const left: string[] = []
    const anew = new Map<string, UnknownRecord>()
    const seen = of.distinct ? new Set<string>() : null
    for (const name of names) {
      const member = value[name]
      if (!this.at(name, of.names) && !of.open) left.push(name)
      if (of.reserved !== undefined) this.#reserved(name, of.reserved)
      if (seen) this.#once(name, seen)
      const within = of.inner.get(name) ?? of.each
      if (!within || !isObject(member)) continue
      const inner = this.own(member, within)
      if (inner !== member) anew.set(name, inner)
    }
    if (left.length === 0 && anew.size === 0) return value
    const out = new Set(left)
    const kept = Object.entries(value).filter(([name]) => !out.has(name))
    return Object.fromEntries(kept.map(([name, member]) => [name, anew.get(name) ?? member]))
  }

  #tooMany(): Refusal {
    return paramsInvalid(`${this.#where} has more than ${MAX_FOLDED_NAMES} members.`)
  }

  at(name: string, own: ExactNames): boolean {
    this.#names += 1
    if (this.#names > MAX_FOLDED_NAMES) throw this.#tooMany()
    if (name.length > MAX_FOLDED_NAME)
      throw paramsInvalid(`${this.#where} has a member name of more than ${MAX_FOLDED_NAME} characters.`)
    if (own.exact.has(name)) return true
    const mistaken = own.mistakenFor(name)
    if (mistaken !== null) throw this.#alike(name, mistaken)
    return false
  }

  #reserved(name: string, prefix: string): void {
    if (!name.startsWith(prefix) && foldedCase(name).startsWith(prefix)) throw this.#alike(name, prefix)
  }

  #once(name: string, before: Set<string>): void {
    const folded = foldedCase(name)
    if (before.has(folded)) throw this.#alike(name, 'another one next to it')
    before.add(folded)
  }

  #alike(name: string, other: string): Refusal {
    const shown = truncateText(escapeHidden(JSON.stringify(name)), MAX_SHOWN)
    return paramsInvalid(
      `${this.#where} has a member ${shown}, which some servers read as ${other}. Leave it out.`,
    )
  }
}

const MAX_SHOWN = 80
