import { LRUCache } from 'lru-cache'
import { compileGlob } from '../../db/support/glob.ts'
import type { CallSummary } from '../../plugins/facts.ts'
import { QUOTE } from '../../plugins/json-body/bytes.ts'
import { foldedName, type JsonBody, JudgedNames } from '../../plugins/json-body/json-body.ts'
import type { Arrival, Plugin } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { escapeHidden } from '../visible.ts'
import {
  type ApiWire,
  DIALECT_OF_WIRE,
  type DialectName,
  type LlmEndpoint,
  PATH_OF_WIRE,
} from './dialects/registry.ts'
import { READ_MEMBERS, ROUTING_MEMBERS, STATE_MEMBERS } from './dialects/routing-members.ts'
import { type LlmOptions, type LlmProvider, modelOfAlias } from './options.ts'
import { TOLD_IN } from './translate/wires.ts'
import { connectionsTo, type ProviderConnection, type ProviderConnections } from './upstream/provider.ts'

export interface LlmTarget {
  readonly endpoint: LlmEndpoint
  readonly dialect: DialectName
  /** The caller's spelling: prefix, alias and all. Null if a stored prompt of the provider names it. */
  readonly model: string | null
}

interface LlmCallFacts {
  readonly call: CallSummary
  readonly target: LlmTarget
}

/**
 * Reads `model` and `stream` from the parsed body, and the member that would detach the call. Refuses with
 * `body_invalid`, and with `member_refused` what could be begun here and not ended. Does NOT check that any
 * provider serves the model.
 */
export function llmCall(endpoint: LlmEndpoint): Plugin<Arrival & JsonBody, LlmCallFacts> {
  return {
    name: 'llm_call',
    admit: (body) => {
      const { detachedBy } = endpoint
      // Of one that stands twice, some readers take the first.
      if (
        detachedBy !== undefined &&
        (isSet(memberOf(body, detachedBy)) || body.scan.repeated.has(detachedBy))
      )
        throw detachedRefusal(detachedBy)
      const named = memberOf(body, 'model') ?? null
      const model = endpoint.modelOptional && named === null ? null : readModel(named)
      return {
        call: { model, tool: null, stream: readStream(memberOf(body, 'stream')) },
        target: { endpoint, dialect: endpoint.dialect, model },
      }
    },
  }
}

/** Bytes. A member that is longer is no model that is known, and no flag: it is not read, as it may be dear. */
const MAX_MEMBER = 4_096

/** Reads a member of the body. Of one that is too long, a text that is too long or an object stands for it. */
function memberOf({ json, body, scan: { spans } }: JsonBody, name: string): unknown {
  const { start, end } = spans.get(name) ?? { start: 0, end: 0 }
  if (end - start <= MAX_MEMBER) return json[name]
  return body[start] === QUOTE ? ' '.repeat(MAX_MEMBER) : {}
}

const isSet = (value: unknown): boolean => value !== undefined && value !== null && value !== false

const detachedRefusal = (member: string): Refusal =>
  new Refusal('member_refused', {
    message: `${member} is not supported: this gateway does not serve the requests that fetch or cancel such an answer. Leave ${member} out, and ask for a stream if the answer takes long.`,
    detail: { member },
  })

function readModel(value: unknown): string {
  if (typeof value !== 'string' || value === '') throw malformed('model must be a non-empty string.')
  const fault = modelNameFault(value)
  if (fault !== null) throw malformed(fault)
  return value
}

/** Returns the reason why no call can name a model so, or null. */
export function modelNameFault(name: string): string | null {
  // A lone surrogate would stop the ledger, which stores UTF-8; a control character would reach logs.
  if (name.length > 256 || !name.isWellFormed() || /\p{Cc}/u.test(name))
    return 'model must be at most 256 characters, none of them a control character.'
  // Some readers cut them off.
  if (name.trim() !== name) return 'model must not begin or end with a blank.'
  // A LiteLLM proxy runs each of a list.
  return name.includes(',') ? 'model must name one model, without a comma.' : null
}

/** Null counts as false, as it does for the vendors. */
function readStream(value: unknown): boolean {
  if (value === undefined || value === null) return false
  if (typeof value !== 'boolean') throw malformed('stream must be true or false.')
  return value
}

const malformed = (message: string): Refusal => new Refusal('body_invalid', { message })

export const JUDGED_MEMBERS = new JudgedNames([...READ_MEMBERS, ...STATE_MEMBERS])

/** Returns the member of a body that may not go to a provider, or null. */
type FindRefusedMember = (body: JsonBody) => string | null

/**
 * Refuses with `member_refused` a body with a member that a provider of its model may not get
 * (docs/protocol.md#refused-members); with `body_invalid` one with more members in such a member than are
 * checked. Does NOT look deeper than one level.
 */
export function llmMembers(options: LlmOptions): Plugin<Arrival & JsonBody & { target: LlmTarget }, object> {
  const find = providersOf(options)
  const rules = new Map(options.providers.map((provider) => [provider, ruleOf(provider)]))
  return {
    name: 'llm_members',
    admit: (body) => {
      const { model, endpoint } = body.target
      for (const provider of find(model)) {
        if (!speaks(provider, endpoint)) continue
        const member = rules.get(provider)?.(body) ?? null
        if (member !== null) throw memberRefusal(member, provider)
      }
      return {}
    },
  }
}

function ruleOf({ refuse_members: further, allow_members: allowed }: LlmProvider): FindRefusedMember {
  const names = [...ROUTING_MEMBERS, ...further]
  const isRouting = matcher(names)
  const holders = new Set(
    names.flatMap((name) => (name.includes('.') ? [looseName(name.split('.', 1)[0])] : [])),
  )
  const allows = new Set(allowed.map(looseName))
  // The names that callers send are few, and the same ones in nearly every call.
  const known = new Map<string, boolean>()
  const isRefused = (path: string): boolean => {
    if (path.length > MAX_NAME_LENGTH) return true
    const before = known.get(path)
    if (before !== undefined) return before
    const verdict = isRouting(path) && !allows.has(looseName(path))
    if (known.size === MAX_KNOWN_NAMES) known.clear()
    known.set(path, verdict)
    return verdict
  }
  return ({ json, body, scan: { spans, inner, repeated } }) => {
    for (const name of Object.keys(json)) {
      if (isRefused(name)) return name
      const span = spans.get(name)
      const within = inner.get(name)
      const isText = span !== undefined && body[span.start] === QUOTE
      if (!span || (!isText && !within) || !holders.has(looseName(name))) continue
      if (repeated.has(name)) throw malformed(`The body has two members ${shownName(name)}. Leave one out.`)
      // A LiteLLM proxy reads the text of an object as JSON.
      if (isText && (span.end - span.start > MAX_TEXT_BYTES || mayBeObject(String(json[name])))) return name
      if (!within) continue
      if (within.length > MAX_INNER) throw malformed(`${shownName(name)} has more than 1,000 members.`)
      const names = Object.fromEntries(within.map((one) => [one, null]))
      for (const one of Object.keys(names)) if (isRefused(`${name}.${one}`)) return `${name}.${one}`
    }
    return null
  }
}

/** Compiles names, some with a star at their end, to a test of names in whatever spelling. */
function matcher(names: readonly string[]): (name: string) => boolean {
  const whole = new Set(names.map(looseName))
  const starts = names.filter((name) => name.endsWith('*')).map((name) => underscoreName(name.slice(0, -1)))
  // Only letters, digits, underscores and hyphens.
  const begins = new RegExp(`^(?:${starts.join('|')})[^.]*$`)
  return (name) =>
    whole.has(looseName(name)) ||
    begins.test(underscoreName(name)) ||
    begins.test(underscoreName(splitCamelCase(name)))
}

/** Returns `Mock-Response` as `mock_response`. */
const underscoreName = (name: string): string => foldedName(name).replaceAll('-', '_')
/** Returns `mockResponse` as `mock_Response`. */
const splitCamelCase = (name: string): string => name.replace(CAMEL_CASE_BOUNDARY, '_')

const CAMEL_CASE_BOUNDARY = /(?<=[a-z\d])(?=[A-Z])/g

/** Returns a name as a reader takes it that also has another style of names: `apiBase` is `api_base`. */
const looseName = (name = ''): string => foldedName(name).replace(SEPARATORS, '')

const SEPARATORS = /[_-]/g

/** The longest name that goes to a provider. Characters. No vendor has one of more than 64. */
const MAX_NAME_LENGTH = 256

/** The longest text in place of an object that is looked at. Characters. 30 MiB of blanks took 60 ms. */
const MAX_TEXT = 65_536
/** Bytes. A longer one, with its quotes, has more characters, though each is written as an escape. */
const MAX_TEXT_BYTES = 6 * MAX_TEXT + 2

const mayBeObject = (text: string): boolean => text.length > MAX_TEXT || text.trimStart().startsWith('{')

/** The names in one member that are looked at. */
const MAX_INNER = 1_000

const MAX_KNOWN_NAMES = 1_000

/** Characters of a member's name in a refusal. */
const MAX_NAME = 128

export const shownName = (name: string): string => escapeHidden(name).slice(0, MAX_NAME)

function memberRefusal(name: string, provider: LlmProvider): Refusal {
  const member = shownName(name)
  return new Refusal('member_refused', {
    message: `The member ${member} is not sent to the provider ${provider.name}: it could choose another model, place or key. Leave it out, or ask an operator to allow it.`,
    detail: { member, provider: provider.name },
  })
}

/** A provider to ask, with what every request to it has, and the name of the model there. */
export interface ProviderTarget extends ProviderConnection {
  readonly provider: LlmProvider
  readonly model: string | null
  /** The name by which it was found: the model's own, or an alias. */
  readonly alias: string | null
}

/** A target that is asked at an endpoint, in the caller's own wire or translated. */
export interface AskedTarget extends ProviderTarget {
  /** The wire that it is told in; null: the caller's own. */
  readonly wire: ApiWire | null
}

/** Finds the providers of a model, in the order to try. Never gives an empty list. */
export type ProviderRouting = (model: string | null, endpoint: SpokenEndpoint) => readonly AskedTarget[]

export type SpokenEndpoint = Pick<LlmEndpoint, 'dialect' | 'wire' | 'counts' | 'upstreamPath'>

/** Tells if a provider answers an endpoint in the API's own words. */
export const speaks = (provider: Pick<LlmProvider, 'dialect' | 'speaks'>, asked: SpokenEndpoint): boolean =>
  asked.wire === undefined ? provider.dialect === asked.dialect : provider.speaks.includes(asked.wire)

/** A provider with the connections that it may be asked by, before it is known in which dialect. */
interface FoundProvider extends Pick<ProviderTarget, 'provider' | 'model' | 'alias'> {
  readonly connections: ProviderConnections
}

const askedTarget = (
  { provider, model, alias, connections }: FoundProvider,
  dialect: DialectName,
  wire: ApiWire | null,
): AskedTarget => ({ ...connections[dialect], provider, model, alias, wire })

/** Returns the API in which a call that a provider does not speak is told to it. */
const wireToTell = (
  { speaks: spoken }: LlmProvider,
  { wire, counts, upstreamPath: path }: SpokenEndpoint,
): ApiWire | undefined => {
  // Of the others this one alone counts.
  if (counts !== undefined) return spoken.find((one) => one === 'responses')
  return wire && path === PATH_OF_WIRE[wire] ? TOLD_IN[wire].find((one) => spoken.includes(one)) : undefined
}

interface PreparedProvider {
  readonly provider: LlmProvider
  readonly connections: ProviderConnections
  readonly aliases: ReadonlyMap<string, string>
  readonly matches: (model: string) => boolean
}

/**
 * Prepares the routing of docs/protocol.md#routing: `provider/model`; then the providers that have the model
 * as an alias; then those with a matching pattern, in the file's order; then the default provider, which also
 * gets calls that name no model. Refuses with `model_unknown`, or with `dialect_translation_unavailable`.
 * Does NOT ask whether a provider has a key.
 */
export function providerRouting(options: LlmOptions): ProviderRouting {
  const find = targetsOf(options)
  return (model, endpoint) => {
    const found = find(model)
    if (found.length === 0) throw unknownModel(model)
    const { dialect } = endpoint
    const spoken = found.filter(({ provider }) => speaks(provider, endpoint))
    if (spoken.length > 0) return spoken.map((one) => askedTarget(one, dialect, null))
    const told = found.flatMap((one) => {
      const wire =
        options.translate === 'on' && model !== null ? wireToTell(one.provider, endpoint) : undefined
      return wire === undefined ? [] : [askedTarget(one, DIALECT_OF_WIRE[wire], wire)]
    })
    if (told.length === 0) throw untranslatedRefusal(model, found, endpoint)
    return told
  }
}

/** Makes the function that finds the providers of a model, of every dialect; maybe none. */
export function providersOf(options: LlmOptions): (model: string | null) => readonly LlmProvider[] {
  const find = targetsOf(options)
  return (model) => find(model).map(({ provider }) => provider)
}

/** Makes the function that finds the name of a model at a provider that serves it, or null. */
export function modelNames(options: LlmOptions): (provider: string, model: string) => string | null {
  const find = targetsOf(options)
  return (name, asked) => find(asked).find(({ provider }) => provider.name === name)?.model ?? null
}

/** The models, as callers name them, whose targets are remembered. */
const MAX_REMEMBERED = 1_000

type FindTargets = (model: string | null) => readonly FoundProvider[]

const finders = new WeakMap<LlmOptions, FindTargets>()

/**
 * Makes the function that finds the providers of a model, and the names by which they are found: one for the same
 * options, since several questions of a call ask it.
 */
export function targetsOf(options: LlmOptions): FindTargets {
  const before = finders.get(options)
  if (before) return before
  const served = options.providers.map(prepare)
  const byName = new Map(served.map((one) => [one.provider.name, one]))
  const fallback = options.default_provider === undefined ? undefined : byName.get(options.default_provider)
  const unnamed = fallback
    ? [{ provider: fallback.provider, connections: fallback.connections, model: null, alias: null }]
    : []
  const found = new LRUCache<string, readonly FoundProvider[]>({ max: MAX_REMEMBERED })
  const find: FindTargets = (model) => {
    if (model === null) return unnamed
    const known = found.get(model)
    if (known) return known
    const targets = candidates(served, byName, fallback, model)
    found.set(model, targets)
    return targets
  }
  finders.set(options, find)
  return find
}

function prepare(provider: LlmProvider): PreparedProvider {
  const patterns = provider.models.map(compileGlob)
  return {
    provider,
    connections: connectionsTo(provider),
    // A Map, not the object: a model may be called __proto__.
    aliases: new Map(Object.entries(provider.aliases).map(([name, to]) => [name, modelOfAlias(to)])),
    matches: (model) => patterns.some((matches) => matches(model)),
  }
}

function candidates(
  served: readonly PreparedProvider[],
  byName: ReadonlyMap<string, PreparedProvider>,
  fallback: PreparedProvider | undefined,
  model: string,
): readonly FoundProvider[] {
  const slash = model.indexOf('/')
  const named = slash < 0 ? undefined : byName.get(model.slice(0, slash))
  if (named) {
    const rest = model.slice(slash + 1)
    return rest === '' ? [] : [target(named, rest)]
  }
  const aliased = served.filter(({ aliases }) => aliases.has(model))
  const matching = aliased.length > 0 ? aliased : served.filter(({ matches }) => matches(model))
  const chosen = matching.length > 0 || !fallback ? matching : [fallback]
  return chosen.map((one) => target(one, model))
}

const target = ({ provider, connections, aliases }: PreparedProvider, model: string): FoundProvider => ({
  provider,
  connections,
  model: aliases.get(model) ?? model,
  alias: model,
})

const unknownModel = (model: string | null): Refusal =>
  new Refusal('model_unknown', {
    message:
      model === null
        ? 'The body names no model, and no default_provider is configured. Name a model.'
        : `No configured provider serves the model ${model}.`,
    detail: { model },
  })

const WIRE_TITLES: Readonly<Record<ApiWire, string>> = {
  chat: 'OpenAI Chat Completions',
  responses: 'OpenAI Responses',
  messages: 'Anthropic Messages',
}

function untranslatedRefusal(
  model: string | null,
  targets: readonly FoundProvider[],
  { wire, dialect }: SpokenEndpoint,
): Refusal {
  const names = targets.map(({ provider }) => provider.name).join(', ')
  return new Refusal('dialect_translation_unavailable', {
    message: `${model === null ? 'A call without a model' : `The model ${model}`} is served by ${names}, which does not speak ${wire ? WIRE_TITLES[wire] : `the ${dialect} API`}, and this call is not translated.`,
    detail: { model },
  })
}
