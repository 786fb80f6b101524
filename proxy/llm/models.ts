import { withDeadline } from '../../plugins/deadline.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { jsonReply, type Reply } from '../http/reply.ts'
import { isModelListReadable, type ModelCatalogue } from './catalogue.ts'
import type { ListedModel, ModelListFormat, OfferedModel } from './dialects/dialect.ts'
import { DIALECTS } from './dialects/registry.ts'
import type { LlmOptions, LlmProvider } from './options.ts'
import { compileGlob } from './routing.ts'

/** A list is an aid: nobody waits longer for the first one of a provider. ms. */
const MAX_WAIT_MS = 3_000

interface ListedProvider {
  readonly provider: LlmProvider
  /** The models that the operator's file names itself: aliases, and patterns without a star. */
  readonly named: readonly OfferedModel[]
  /** Tells if a call of the model would reach this provider. */
  readonly serves: (model: string) => boolean
}

export interface ModelHandlers {
  /** GET /v1/models */
  readonly list: (arrival: Arrival) => Promise<Reply>
  /** GET /v1/models/{id}. The segments of the path are the id. Refuses with `model_not_found`. */
  readonly get: (arrival: Arrival) => Promise<Reply>
}

/**
 * Answers with the models that calls would reach (docs/protocol.md#models), of the providers that
 * can be called, in the shape of the dialect that the request's headers expect. Reads the catalogue, and
 * sends nothing to anybody; a provider without a list there is listed with the names of its file. Waits for a
 * provider's first reading, at most 3 s. Does NOT list by capability: a principal without `llm.chat` sees the
 * list all the same.
 */
export function modelHandlers(options: LlmOptions, catalogue: ModelCatalogue): ModelHandlers {
  const listed = options.providers
    .filter((provider) => provider.auth === 'passthrough' || isModelListReadable(provider))
    .map((provider) => prepare(provider, options.default_provider))
  const readable = listed.map(({ provider }) => provider).filter(isModelListReadable)
  const modelsOf = (provider: LlmProvider): readonly ListedModel[] =>
    isModelListReadable(provider) ? catalogue.of(provider).models : []
  return {
    list: async ({ headers }) => {
      await firstReadings(readable, catalogue)
      const models = uniqueById(listed.flatMap((one) => offeredModels(one, modelsOf(one.provider))))
      return jsonReply(200, formatFor(headers).render(models))
    },
    get: async ({ headers, params }) => {
      await firstReadings(readable, catalogue)
      const id = Object.values(params).join('/')
      const model = findPrefixedModel(listed, id, modelsOf) ?? findUnprefixedModel(listed, id, modelsOf)
      if (!model) throw new Refusal('model_not_found')
      return jsonReply(200, formatFor(headers).renderOne(model))
    },
  }
}

function formatFor(headers: Arrival['headers']): ModelListFormat {
  const [first] = DIALECTS
  return (DIALECTS.find((dialect) => dialect.models.isExpected(headers)) ?? first).models
}

type ModelsOf = (provider: LlmProvider) => readonly ListedModel[]

/** Finds `provider/model`, as calls are routed: the prefix alone says whom they reach. */
function findPrefixedModel(
  listed: readonly ListedProvider[],
  id: string,
  modelsOf: ModelsOf,
): OfferedModel | undefined {
  const [name = ''] = id.split('/', 1)
  const one = listed.find(({ provider }) => provider.name === name)
  if (!one) return undefined
  const rest = id.slice(name.length + 1)
  const model = [...one.named, ...modelsOf(one.provider)].find((each) => each.id === rest)
  return model && { ...model, id, provider: name }
}

/** Finds a model by its own name: of the first provider that serves it. */
function findUnprefixedModel(
  listed: readonly ListedProvider[],
  id: string,
  modelsOf: ModelsOf,
): OfferedModel | undefined {
  for (const one of listed) {
    const models = modelsOf(one.provider).filter((each) => each.id === id)
    const [model] = offeredModels(one, models).filter((each) => each.id === id)
    if (model) return model
  }
  return undefined
}

function prepare(provider: LlmProvider, fallback: string | undefined): ListedProvider {
  const { name, models, aliases } = provider
  const ids = [...Object.keys(aliases), ...models.filter((pattern) => !pattern.includes('*'))]
  const everything = models.length === 0 && name === fallback
  const patterns = models.map(compileGlob)
  return {
    provider,
    named: ids.map((id) => ({ id, name: id, created: 0, provider: name })),
    serves: (model) => everything || patterns.some((matches) => matches(model)),
  }
}

const offeredModels = (
  { provider, named, serves }: ListedProvider,
  models: readonly ListedModel[],
): readonly OfferedModel[] => [
  ...named,
  ...models.filter(({ id }) => serves(id)).map((model) => ({ ...model, provider: provider.name })),
]

async function firstReadings(providers: readonly LlmProvider[], catalogue: ModelCatalogue): Promise<void> {
  const pending = providers
    .map((provider) => catalogue.of(provider).firstReading)
    .filter((reading) => reading !== null)
  if (pending.length === 0) return
  await withDeadline({ ms: MAX_WAIT_MS }, () => Promise.all(pending)).catch(() => {
    // Late: the names of the operator's file stand.
  })
}

/** Keeps the first provider that serves a model: the one that a call would reach. */
function uniqueById(models: readonly OfferedModel[]): readonly OfferedModel[] {
  const byId = new Map<string, OfferedModel>()
  for (const model of models) if (!byId.has(model.id)) byId.set(model.id, model)
  return [...byId.values()]
}
