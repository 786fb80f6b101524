import type { CatalogPermit } from '../../plugins/permit.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { json, type Reply } from '../http/reply.ts'
import type { LlmOptions, Provider } from './options.ts'
import { glob } from './routing.ts'
import type { Upstream } from './upstream/client.ts'
import { hasCredentials, requestHeaders } from './upstream/headers.ts'
import { timeoutsOf } from './upstream/provider.ts'
import { discard, readAll } from './upstream/stream.ts'

/** How long a provider's list is good. ms. */
const FRESH_MS = 60_000
/** How long a provider that did not answer is not asked again. ms. */
const FAILED_MS = 5_000
/** A list is an aid: nobody waits longer for it. ms. */
const DEADLINE_MS = 3_000
/** Bytes. */
const MAX_LIST = 4 * 1024 * 1024
const MAX_MODELS = 10_000

interface Model {
  readonly id: string
  readonly name: string
  /** s since the epoch; 0 where nobody said. */
  readonly created: number
  readonly provider: string
}

interface Listing {
  readonly until: number
  readonly models: Promise<readonly Model[]>
}

/**
 * Answers GET /v1/models (WIRE.md §3): the models that calls would reach, of the providers that can be called, in the OpenAI
 * shape, or in the Anthropic one where the request names an `anthropic-version`. Each provider is asked at most
 * once a minute, by one request for all who wait; one that does not answer is listed with what its file names.
 * Does NOT list by capability: who may not chat sees the list all the same.
 */
export function listModels(options: LlmOptions, upstream: Upstream): (arrival: Arrival) => Promise<Reply> {
  const listings = new Map<string, Listing>()
  return async ({ at, headers }) => {
    const lists = await Promise.all(
      options.providers.filter(isUsable).map((provider) => {
        const everything = provider.models.length === 0 && provider.name === options.default_provider
        return listing(listings, provider, everything, at, upstream)
      }),
    )
    const models = distinct(lists.flat())
    return json(200, headers['anthropic-version'] === undefined ? openaiList(models) : anthropicList(models))
  }
}

const isUsable = (provider: Provider): boolean =>
  provider.auth === 'passthrough' || hasCredentials(provider, {})

/** `at` is the caller's, so a list is as old as the oldest caller who waited for it. */
async function listing(
  listings: Map<string, Listing>,
  provider: Provider,
  everything: boolean,
  at: number,
  upstream: Upstream,
): Promise<readonly Model[]> {
  const named = namedModels(provider)
  // A passthrough provider would have to be asked with one caller's key, and the list shown to all.
  if (provider.auth === 'passthrough') return named
  let current = listings.get(provider.name)
  if (!current || at >= current.until) {
    current = { until: at + FRESH_MS, models: ask(provider, upstream) }
    listings.set(provider.name, current)
  }
  try {
    const patterns = provider.models.map(glob)
    const offered = await current.models
    return [...named, ...offered.filter(({ id }) => everything || patterns.some((matches) => matches(id)))]
  } catch {
    // The list is an aid: without it the names of the operator's file stand, and the provider is asked again soon.
    if (listings.get(provider.name) === current) {
      listings.set(provider.name, { ...current, until: Math.min(current.until, at + FAILED_MS) })
    }
    return named
  }
}

/** What the operator's file names itself: aliases, and patterns without a star. */
function namedModels({ name: provider, models, aliases }: Provider): readonly Model[] {
  const ids = [...Object.keys(aliases), ...models.filter((pattern) => !pattern.includes('*'))]
  return ids.map((id) => ({ id, name: id, created: 0, provider }))
}

async function ask(provider: Provider, upstream: Upstream): Promise<readonly Model[]> {
  const query = provider.dialect === 'anthropic' ? '?limit=1000' : ''
  const { status, stream } = await upstream.call({
    // The one place that makes a CatalogPermit: the list is read for all, with the provider's own key.
    permit: { kind: 'catalogue', provider: provider.name } as CatalogPermit,
    method: 'GET',
    url: new URL(`${provider.base_url.replace(/\/+$/, '')}/models${query}`),
    headers: { ...requestHeaders(provider, {}, null), accept: 'application/json' },
    body: null,
    timeouts: timeoutsOf(provider),
    signal: AbortSignal.timeout(DEADLINE_MS),
  })
  if (status !== 200) {
    discard(stream)
    throw new Error(`${provider.name} answered its model list with ${status}`)
  }
  const body = await readAll(stream, MAX_LIST)
  if (body === null) throw new Error(`${provider.name} has a model list of more than ${MAX_LIST} bytes`)
  return parseList(JSON.parse(body.toString('utf8')), provider.name)
}

function parseList(value: unknown, provider: string): readonly Model[] {
  const data = typeof value === 'object' && value !== null && 'data' in value ? value.data : null
  if (!Array.isArray(data)) throw new Error(`${provider} sent a model list without data`)
  return data.slice(0, MAX_MODELS).flatMap((entry: unknown) => parseModel(entry, provider))
}

function parseModel(entry: unknown, provider: string): readonly Model[] {
  if (typeof entry !== 'object' || entry === null) return []
  const { id, display_name, created, created_at } = entry as Readonly<Record<string, unknown>>
  if (typeof id !== 'string' || id === '' || id.length > 256) return []
  const name = typeof display_name === 'string' ? display_name.slice(0, 256) : id
  return [{ id, name, created: secondsOf(created ?? created_at), provider }]
}

/** OpenAI states seconds, Anthropic a date. */
function secondsOf(value: unknown): number {
  const seconds = typeof value === 'string' ? Math.floor(Date.parse(value) / 1000) : value
  return typeof seconds === 'number' && Number.isSafeInteger(seconds) && seconds >= 0 ? seconds : 0
}

/** The first provider that serves a model is the one that a call would reach. */
function distinct(models: readonly Model[]): readonly Model[] {
  const byId = new Map<string, Model>()
  for (const model of models) if (!byId.has(model.id)) byId.set(model.id, model)
  return [...byId.values()]
}

const openaiList = (models: readonly Model[]): unknown => ({
  object: 'list',
  data: models.map(({ id, created, provider }) => ({ id, object: 'model', created, owned_by: provider })),
})

const anthropicList = (models: readonly Model[]): unknown => ({
  data: models.map(({ id, name, created }) => ({
    type: 'model',
    id,
    display_name: name,
    created_at: isoDate(created),
  })),
  has_more: false,
  first_id: models.at(0)?.id ?? null,
  last_id: models.at(-1)?.id ?? null,
})

/** RFC 3339 without fractions, as the API states it. A date out of range is none. */
function isoDate(seconds: number): string {
  const date = new Date(seconds * 1000)
  const known = Number.isNaN(date.getTime()) ? new Date(0) : date
  return known.toISOString().replace('.000Z', 'Z')
}
