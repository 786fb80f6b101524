import { isModelListReadable, type ModelCatalogue } from './catalogue.ts'
import type { LlmOptions, LlmProvider } from './options.ts'
import { providersOf } from './routing.ts'
import { usesCallerKey } from './upstream/headers.ts'

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
      base_url: provider.base_url,
      key: keyOf(provider),
      key_variable: provider.keyVariable ?? null,
      is_default: provider.name === fallback,
      patterns: [...provider.models],
      aliases: { ...provider.aliases },
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
  return provider.auth === 'passthrough' || isModelListReadable(provider) ? 'set' : 'missing'
}

/** The list that the provider gave last; null: it was not read yet, or could not be. */
function listedOf(provider: LlmProvider, catalogue: Pick<ModelCatalogue, 'of'>) {
  const { models, firstReading } = catalogue.of(provider)
  if (firstReading !== null || (models.length === 0 && !isModelListReadable(provider))) return null
  return { count: models.length, first: models.slice(0, MAX_LISTED).map(({ id }) => id) }
}
