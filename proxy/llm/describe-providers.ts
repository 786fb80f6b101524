import type { Arrival, Plugin } from '../../plugins/plugin.ts'
import { isModelListReadable, type ModelCatalogue } from './catalogue.ts'
import { type DialectName, LLM_ENDPOINTS, type LlmEndpoint } from './dialects/registry.ts'
import { type LlmOptions, type LlmProvider, modelOfAlias } from './options.ts'
import { notConfiguredFailure, refusalOfFailure } from './refusals.ts'
import { type LlmTarget, providerRouting, providersOf, speaks } from './routing.ts'
import { hasCredentials, usesCallerKey } from './upstream/headers.ts'

/** Names of models that are shown with the order of their providers; each costs a search of all patterns. */
const MAX_ROUTES = 200
/** Listed models that are shown of each provider. */
const MAX_LISTED = 100

/** Describes the providers of a configuration: their keys' presence, models, and order. Never a key. */
export function describeProviders(options: LlmOptions, catalogue: Pick<ModelCatalogue, 'of'>) {
  const { providers, default_provider: fallback } = options
  const find = providersOf(options)
  const names = new Set(providers.flatMap(({ aliases, models }) => [...Object.keys(aliases), ...models]))
  return {
    providers: providers.map((provider) => ({
      name: provider.name,
      dialect: provider.dialect,
      speaks: [...provider.speaks],
      base_url: provider.base_url,
      key: keyOf(provider),
      key_variable: provider.keyVariable ?? null,
      is_default: provider.name === fallback,
      weight: provider.weight ?? null,
      patterns: [...provider.models],
      aliases: Object.fromEntries(
        Object.entries(provider.aliases).map(([name, to]) => [name, modelOfAlias(to)]),
      ),
      listed: listedOf(provider, catalogue),
    })),
    routes: [...names].slice(0, MAX_ROUTES).map((model) => ({
      model,
      // Those with the same pattern, if it stands for many names.
      providers: (model.includes('*')
        ? providers.filter(({ models }) => models.includes(model))
        : find(model)
      ).map(({ name }) => name),
    })),
  }
}

function keyOf(provider: LlmProvider): 'set' | 'missing' | 'callers' {
  if (usesCallerKey(provider)) return 'callers'
  return provider.auth === 'passthrough' || hasCredentials(provider, {}) ? 'set' : 'missing'
}

/** The list that the provider gave last; null: it was not read yet, or could not be. */
function listedOf(provider: LlmProvider, catalogue: Pick<ModelCatalogue, 'of'>) {
  const { models, firstReading } = catalogue.of(provider)
  if (firstReading !== null || (models.length === 0 && !isModelListReadable(provider))) return null
  return { count: models.length, first: models.slice(0, MAX_LISTED).map(({ id }) => id) }
}

/**
 * Finds the providers that a call would be sent to, and asks none. Refuses as the handler of calls does before
 * it sends: with `model_unknown`, `dialect_translation_unavailable` or `provider_not_configured`. A caller's
 * own key, which one provider may need, is presumed.
 */
export function wouldReach(
  options: LlmOptions,
): Plugin<Arrival & { target: LlmTarget }, { providers: readonly string[] }> {
  const find = providerRouting(options)
  return {
    name: 'provider',
    admit: async ({ target: { model, endpoint } }) => {
      const targets = find(model, endpoint).map(({ provider }) => provider)
      const able = targets.filter((provider) => usesCallerKey(provider) || hasCredentials(provider, {}))
      const [first] = targets
      if (able.length === 0 && first) throw await refusalOfFailure(notConfiguredFailure(first), [])
      return { providers: able.map(({ name }) => name) }
    },
  }
}

/** Chooses the endpoint of a dialect; if nobody says which, that of an API which the first provider speaks. */
export function endpointFor(
  options: LlmOptions,
  model: string,
  dialect: DialectName | undefined,
): LlmEndpoint {
  const [first] = providersOf(options)(model)
  const found = LLM_ENDPOINTS.find((one) =>
    dialect === undefined ? first && speaks(first, one) : one.dialect === dialect,
  )
  const [any] = LLM_ENDPOINTS
  if (!any) throw new Error('no dialect has an endpoint')
  return found ?? any
}
