import type { CallSummary } from '../../plugins/facts.ts'
import type { JsonBody } from '../../plugins/json-body/json-body.ts'
import type { Arrival, Plugin } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import type { DialectName, Endpoint } from './dialects/registry.ts'
import type { LlmOptions, Provider } from './options.ts'
import { connectionTo, type ProviderConnection } from './upstream/provider.ts'

/**
 * The model that an LLM request asks for, and its endpoint: judged by the gate, dispatched by the handler.
 */
export interface LlmTarget {
  readonly endpoint: Endpoint
  readonly dialect: DialectName
  /** As the caller spelled it: prefix, alias and all. */
  readonly model: string
}

interface Gives {
  readonly call: CallSummary
  readonly target: LlmTarget
}

/**
 * Reads `model` and `stream` from the parsed body, and nothing else: everything further is between caller and
 * provider. Refuses with `body_invalid`. Does NOT check that any provider serves the model.
 */
export function llmCall(endpoint: Endpoint): Plugin<Arrival & JsonBody, Gives> {
  return {
    name: 'llm_call',
    admit: ({ json }) => {
      const model = readModel(json.model)
      return {
        call: { model, tool: null, stream: readStream(json.stream) },
        target: { endpoint, dialect: endpoint.dialect, model },
      }
    },
  }
}

function readModel(value: unknown): string {
  if (typeof value !== 'string' || value === '') throw malformed('model must be a non-empty string.')
  // A lone surrogate would stop the ledger, which stores UTF-8; a control character would reach logs.
  if (value.length > 256 || !value.isWellFormed() || /\p{Cc}/u.test(value)) {
    throw malformed('model must be at most 256 characters, none of them a control character.')
  }
  return value
}

/** Null counts as false, as it does for the vendors. */
function readStream(value: unknown): boolean {
  if (value === undefined || value === null) return false
  if (typeof value !== 'boolean') throw malformed('stream must be true or false.')
  return value
}

const malformed = (message: string): Refusal => new Refusal('body_invalid', { message })

/** A provider to ask, with what every request to it has, and the name of the model there. */
export interface ProviderTarget extends ProviderConnection {
  readonly provider: Provider
  readonly model: string
}

/** Finds the providers of a model, in the order to try. Never gives an empty list. */
export type Routing = (model: string, dialect: DialectName) => readonly ProviderTarget[]

/** A provider with its aliases and patterns made ready. */
interface PreparedProvider {
  readonly provider: Provider
  readonly connection: ProviderConnection
  readonly aliases: ReadonlyMap<string, string>
  readonly matches: (model: string) => boolean
}

/**
 * Prepares the routing of docs/protocol.md#routing: `provider/model`, where the prefix names a provider; then
 * the providers that have the model as an alias; then those with a matching pattern, in the file's order;
 * then the default provider. Refuses with `model_unknown`, or with `dialect_translation_unavailable` when
 * nobody speaks the caller's dialect. Does NOT ask whether a provider has a key.
 */
export function routing(options: LlmOptions): Routing {
  const served = options.providers.map(prepare)
  const byName = new Map(served.map((one) => [one.provider.name, one]))
  const fallback = options.default_provider === undefined ? undefined : byName.get(options.default_provider)
  return (model, dialect) => {
    const targets = candidates(served, byName, fallback, model)
    if (targets.length === 0) throw unknown(model)
    const spoken = targets.filter((target) => target.provider.dialect === dialect)
    if (spoken.length === 0) throw untranslated(model, targets, dialect)
    return spoken
  }
}

/**
 * Compiles a pattern to a test of names. `*` stands for any characters, none too; everything else for itself.
 */
export function glob(pattern: string): (name: string) => boolean {
  const [head = '', ...rest] = pattern.split('*')
  const tail = rest.pop()
  if (tail === undefined) return (name) => name === pattern
  return (name) => {
    if (!name.startsWith(head)) return false
    let at = head.length
    for (const part of rest) {
      const found = name.indexOf(part, at)
      if (found < 0) return false
      at = found + part.length
    }
    return name.length - tail.length >= at && name.endsWith(tail)
  }
}

function prepare(provider: Provider): PreparedProvider {
  const patterns = provider.models.map(glob)
  return {
    provider,
    connection: connectionTo(provider),
    // A Map, not the object: a model may be called __proto__.
    aliases: new Map(Object.entries(provider.aliases)),
    matches: (model) => patterns.some((matches) => matches(model)),
  }
}

function candidates(
  served: readonly PreparedProvider[],
  byName: ReadonlyMap<string, PreparedProvider>,
  fallback: PreparedProvider | undefined,
  model: string,
): readonly ProviderTarget[] {
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

const target = ({ provider, connection, aliases }: PreparedProvider, model: string): ProviderTarget => ({
  provider,
  ...connection,
  model: aliases.get(model) ?? model,
})

const unknown = (model: string): Refusal =>
  new Refusal('model_unknown', {
    message: `No configured provider serves the model ${model}.`,
    detail: { model },
  })

function untranslated(model: string, targets: readonly ProviderTarget[], dialect: DialectName): Refusal {
  const names = targets.map(({ provider }) => provider.name).join(', ')
  return new Refusal('dialect_translation_unavailable', {
    message: `The model ${model} is served by ${names}, which does not speak the ${dialect} API, and translation is not available yet.`,
    detail: { model },
  })
}
