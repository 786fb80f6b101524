import { compileGlob } from '../../db/support/glob.ts'
import { withDeadline } from '../../plugins/deadline.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { jsonReply, type Reply } from '../http/reply.ts'
import { isModelListReadable, type ModelCatalogue } from './catalogue.ts'
import type { ListedModel, ModelListFormat, OfferedModel } from './dialects/dialect.ts'
import { type ApiWire, DIALECTS } from './dialects/registry.ts'
import { type LlmOptions, type LlmProvider, translatedBy } from './options.ts'
import { modelNameFault, providersOf, targetsOf } from './routing.ts'
import type { LossName } from './translate/losses.ts'
import { TOLD_IN } from './translate/wires.ts'

import { hasCredentials } from './upstream/headers.ts'

/** The way in which calls of an API reach a model. */
type WireReach = 'direct' | 'translated' | 'none'

interface ModelReach {
  readonly wires: Readonly<Record<ApiWire, WireReach>>
  /** The losses that translated calls may have: those that the first provider's operator accepts. */
  readonly lossy: readonly LossName[]
}

/** A list is an aid: nobody waits longer for the first one of a provider. ms. */
const MAX_WAIT_MS = 3_000

interface ListedProvider {
  readonly provider: LlmProvider
  /** The models that the operator's file names itself: aliases, and patterns without a star. */
  readonly named: readonly ListedModel[]
  readonly matches: (model: string) => boolean
}

export interface ModelHandlers {
  readonly list: (arrival: Arrival) => Promise<Reply>
  /**
   * GET /v1/models/{id}, by which APIs it is reached, and which losses are accepted. The segments of the path are the id. Refuses with
   * `model_not_found`.
   */
  readonly get: (arrival: Arrival) => Promise<Reply>
}

/**
 * Answers with the models that calls would reach (docs/protocol.md#models), in the shape of the dialect that
 * the request's headers expect. Reads the catalogue; a provider without a list there is listed with the names
 * of its file. Waits for a provider's first reading, at most 3 s. Does NOT list by capability.
 */
export function modelHandlers(options: LlmOptions, catalogue: ModelCatalogue): ModelHandlers {
  const listed = options.providers
    .filter((provider) => provider.auth === 'passthrough' || hasCredentials(provider, {}))
    .map(prepare)
  const readable = listed.map(({ provider }) => provider).filter(isModelListReadable)
  const offer = modelOffer(options, listed)
  const find = targetsOf(options)
  const able = new Set(listed.map(({ provider }) => provider))
  const reachOf = (id: string): ModelReach => {
    const targets = find(id).filter(({ provider }) => able.has(provider))
    const spoken = new Set(targets.flatMap(({ provider }) => provider.speaks))
    const isTold = (wire: ApiWire) =>
      options.translate === 'on' && TOLD_IN[wire].some((one) => spoken.has(one))
    const reached = (wire: ApiWire): WireReach =>
      spoken.has(wire) ? 'direct' : isTold(wire) ? 'translated' : 'none'
    const wires = { chat: reached('chat'), responses: reached('responses'), messages: reached('messages') }
    const [first] = targets
    const isTranslated = first && Object.values(wires).includes('translated')
    return { wires, lossy: isTranslated ? translatedBy(first.provider, first.alias).accepted : [] }
  }
  const present = async (): Promise<ModelOffer> => {
    await firstReadings(readable, catalogue)
    return offer(listed.map(({ provider }) => catalogue.of(provider).models))
  }
  return {
    list: async ({ headers, query }) => {
      const { byId } = await present()
      return jsonReply(200, formatFor(headers).render([...byId.values()], query))
    },
    get: async ({ headers, params }) => {
      const id = Object.values(params).join('/')
      const model = (await present()).find(id)
      if (!model) throw new Refusal('model_not_found')
      return jsonReply(200, { ...formatFor(headers).renderOne(model), ...reachOf(id) })
    },
  }
}

function formatFor(headers: Arrival['headers']): ModelListFormat {
  const [first] = DIALECTS
  return (DIALECTS.find((dialect) => dialect.models.isExpected(headers)) ?? first).models
}

interface ModelOffer {
  /** The list, in its order. */
  readonly byId: ReadonlyMap<string, OfferedModel>
  /** Finds one of them, or one by the prefix of its provider. */
  readonly find: (id: string) => OfferedModel | undefined
}

type ProviderLists = readonly (readonly ListedModel[])[]

/** Makes the function that turns the providers' lists into what is offered, as calls are routed. */
function modelOffer(
  options: LlmOptions,
  listed: readonly ListedProvider[],
): (lists: ProviderLists) => ModelOffer {
  const route = providersOf(options)
  const indexOf = new Map(listed.map(({ provider }, index) => [provider, index]))
  /** The place in `listed` of the provider that a call of the name reaches, or -1. */
  const reachedBy = (id: string): number =>
    route(id)
      .map((provider) => indexOf.get(provider) ?? -1)
      .find((index) => index >= 0) ?? -1
  let kept: { readonly lists: ProviderLists; readonly offer: ModelOffer } | null = null
  return (lists) => {
    if (kept?.lists.every((list, index) => list === lists[index])) return kept.offer
    const own = listed.map(({ named }, index) => uniqueById([...named, ...(lists[index] ?? [])]))
    /** True: nobody knows what else it has, so a name that it is asked for may well be right. */
    const mayHave = (index: number, model: string): boolean =>
      lists[index]?.length === 0 && listed[index]?.matches(model) === true
    const byId = new Map<string, OfferedModel>()
    for (const [index, { provider, named, matches }] of listed.entries()) {
      for (const model of own[index]?.values() ?? []) {
        const { id } = model
        const reached = reachedBy(id)
        // A call of a name that begins with its own provider's means what follows.
        const isOwn = reached === index && !id.startsWith(`${provider.name}/`)
        const isServed = reached === index || matches(id) || named.some((each) => each.id === id)
        if (!isServed || (reached !== index && own[reached]?.has(id))) continue
        // The name alone would reach somebody else, or nobody: the prefix says who has it.
        const offered = isOwn || mayHave(reached, id) ? id : `${provider.name}/${id}`
        if (modelNameFault(offered) !== null || byId.has(offered)) continue
        byId.set(offered, { ...model, id: offered, provider: provider.name })
      }
    }
    const find = (id: string): OfferedModel | undefined => {
      const offered = byId.get(id)
      if (offered) return offered
      const index = reachedBy(id)
      const provider = listed[index]?.provider
      if (!provider) return undefined
      const prefix = `${provider.name}/`
      const name = id.startsWith(prefix) ? id.slice(prefix.length) : id
      const model = name === id ? undefined : own[index]?.get(name)
      if (model) return { ...model, id, provider: provider.name }
      return mayHave(index, name) ? { id, name: id, created: 0, provider: provider.name } : undefined
    }
    kept = { lists, offer: { byId, find } }
    return kept.offer
  }
}

function prepare(provider: LlmProvider): ListedProvider {
  const { models, aliases } = provider
  const ids = [...Object.keys(aliases), ...models.filter((pattern) => !pattern.includes('*'))]
  const patterns = models.map(compileGlob)
  return {
    provider,
    named: ids.map((id) => ({ id, name: id, created: 0 })),
    matches: (model) => patterns.some((matches) => matches(model)),
  }
}

async function firstReadings(providers: readonly LlmProvider[], catalogue: ModelCatalogue): Promise<void> {
  const pending = providers
    .map((provider) => catalogue.of(provider).firstReading)
    .filter((reading) => reading !== null)
  if (pending.length === 0) return
  await withDeadline({ ms: MAX_WAIT_MS }, () => Promise.all(pending)).catch(() => {
    // Late: the names of the operator's file stand.
  })
}

function uniqueById(models: readonly ListedModel[]): ReadonlyMap<string, ListedModel> {
  const byId = new Map<string, ListedModel>()
  for (const model of models) if (!byId.has(model.id)) byId.set(model.id, model)
  return byId
}
