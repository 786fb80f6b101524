import { deadline } from '../../plugins/deadline.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { json, type Reply } from '../http/reply.ts'
import { type Catalogue, isReadable } from './catalogue.ts'
import type { ListedModel, OfferedModel } from './dialects/dialect.ts'
import { DIALECTS } from './dialects/registry.ts'
import type { LlmOptions, Provider } from './options.ts'
import { glob } from './routing.ts'

/** A list is an aid: nobody waits longer for the first one of a provider. ms. */
const MAX_WAIT_MS = 3_000

interface ListedProvider {
  readonly provider: Provider
  /** The models that the operator's file names itself: aliases, and patterns without a star. */
  readonly named: readonly OfferedModel[]
  /** Tells if a call of the model would reach this provider. */
  readonly serves: (model: string) => boolean
}

/**
 * Answers GET /v1/models (docs/protocol.md#models): the models that calls would reach, of the providers that
 * can be called, in the shape of the dialect that the request's headers expect. Reads the catalogue, and
 * sends nothing to anybody; a provider without a list there is listed with the names of its file. Waits for a
 * provider's first reading, at most 3 s. Does NOT list by capability: a principal without `llm.chat` sees the
 * list all the same.
 */
export function listModels(options: LlmOptions, catalogue: Catalogue): (arrival: Arrival) => Promise<Reply> {
  const listed = options.providers
    .filter((provider) => provider.auth === 'passthrough' || isReadable(provider))
    .map((provider) => prepare(provider, options.default_provider))
  const readable = listed.map(({ provider }) => provider).filter(isReadable)
  const modelsOf = (provider: Provider): readonly ListedModel[] =>
    isReadable(provider) ? catalogue.of(provider).models : []
  return async ({ headers }) => {
    await firstReadings(readable, catalogue)
    const models = distinct(listed.flatMap((one) => offered(one, modelsOf(one.provider))))
    const [first] = DIALECTS
    const { models: format } = DIALECTS.find((dialect) => dialect.models.isExpected(headers)) ?? first
    return json(200, format.render(models))
  }
}

function prepare(provider: Provider, fallback: string | undefined): ListedProvider {
  const { name, models, aliases } = provider
  const ids = [...Object.keys(aliases), ...models.filter((pattern) => !pattern.includes('*'))]
  const everything = models.length === 0 && name === fallback
  const patterns = models.map(glob)
  return {
    provider,
    named: ids.map((id) => ({ id, name: id, created: 0, provider: name })),
    serves: (model) => everything || patterns.some((matches) => matches(model)),
  }
}

const offered = (
  { provider, named, serves }: ListedProvider,
  models: readonly ListedModel[],
): readonly OfferedModel[] => [
  ...named,
  ...models.filter(({ id }) => serves(id)).map((model) => ({ ...model, provider: provider.name })),
]

async function firstReadings(providers: readonly Provider[], catalogue: Catalogue): Promise<void> {
  const pending = providers
    .map((provider) => catalogue.of(provider).firstReading)
    .filter((reading) => reading !== null)
  if (pending.length === 0) return
  await deadline({ ms: MAX_WAIT_MS }, () => Promise.all(pending)).catch(() => {
    // Late: the names of the operator's file stand.
  })
}

/** Keeps the first provider that serves a model: the one that a call would reach. */
function distinct(models: readonly OfferedModel[]): readonly OfferedModel[] {
  const byId = new Map<string, OfferedModel>()
  for (const model of models) if (!byId.has(model.id)) byId.set(model.id, model)
  return [...byId.values()]
}
