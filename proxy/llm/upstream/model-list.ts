import { isObject } from '../../../db/support/json.ts'
import { hangupFromSignal } from '../../../plugins/call-authority.ts'
import type { CatalogPermit } from '../../../plugins/permit.ts'
import { quotesSecretSteps, type SecretTraces } from '../../../plugins/secrets/traces.ts'
import { runInSlices } from '../../../plugins/turns.ts'
import type { ProviderKeys } from '../credentials/provider-keys.ts'
import type { ListedModel, ModelListFormat } from '../dialects/dialect.ts'
import { DIALECT_BY_NAME } from '../dialects/registry.ts'
import type { LlmProvider } from '../options.ts'
import { discardAnswer, readWholeBody } from './answer.ts'
import type { LlmUpstream } from './client.ts'
import { fixedHeaders, providerRequestHeaders } from './headers.ts'
import { timeoutsOf, urlAtProvider } from './provider.ts'
import { readProviderWords } from './words.ts'

/** Bytes, of all pages. */
const MAX_LIST = 4 * 1024 * 1024
const MAX_PAGES = 20

export interface ModelListRequest {
  readonly permit: CatalogPermit
  readonly provider: LlmProvider
  readonly upstream: LlmUpstream
  readonly providerKeys: Pick<ProviderKeys, 'headers'>
  readonly signal: AbortSignal
  /** The secrets that no words of the provider may quote. Absent: its words are not read. */
  readonly secrets?: SecretTraces
}

/** The answer to a request for a list that is a refusal. The message holds none of its words. */
export class ModelListRefusal extends Error {
  readonly status: number
  readonly words: string | null

  constructor(status: number, words: string | null) {
    super(`the model list was answered with ${status}`)
    this.status = status
    this.words = words
  }
}

/**
 * Reads a provider's list of models, page by page, with the provider's own key. Rejects if the first answer
 * is no list, or longer than 4 MiB; a later page that is none ends the list. No message quotes an answer.
 */
export async function readModelList(request: ModelListRequest): Promise<readonly ListedModel[]> {
  const { models: format } = DIALECT_BY_NAME[request.provider.dialect]
  const first = await readPage(request, format.upstreamPath, MAX_LIST)
  const models = [...format.parse(first.answer)]
  let left = MAX_LIST - first.length
  let cursor = cursorIn(first.answer)
  for (let page = 1; cursor !== null && page < MAX_PAGES && left > 0; page += 1) {
    const path = `${format.upstreamPath}${format.upstreamPath.includes('?') ? '&' : '?'}${format.cursor}=${encodeURIComponent(cursor)}`
    const next = await readPage(request, path, left).catch(() => null)
    const more = next === null ? [] : parsedOrNone(format, next.answer)
    if (next === null || more.length === 0) break
    models.push(...more)
    left -= next.length
    const following = cursorIn(next.answer)
    cursor = following === cursor ? null : following
  }
  return models
}

function parsedOrNone({ parse: read }: ModelListFormat, answer: unknown): readonly ListedModel[] {
  try {
    return read(answer)
  } catch {
    return []
  }
}

const cursorIn = (answer: unknown): string | null =>
  isObject(answer) && answer.has_more === true && typeof answer.last_id === 'string' ? answer.last_id : null

async function readPage(
  { permit, provider, upstream, providerKeys, signal, secrets }: ModelListRequest,
  path: string,
  limit: number,
): Promise<{ readonly answer: unknown; readonly length: number }> {
  const { dialect, credentials } = provider
  const fixed = credentials ? await providerKeys.headers(provider, dialect) : fixedHeaders(provider)
  const answer = await upstream.call({
    permit,
    method: 'GET',
    url: urlAtProvider(provider, path),
    headers: providerRequestHeaders(fixed, { accept: 'application/json' }, null),
    body: [],
    timeouts: timeoutsOf(provider),
    proxy: provider.tunnel,
    hangup: hangupFromSignal(signal),
  })
  if (answer.status !== 200) {
    const words = secrets
      ? await readProviderWords(answer, [...secrets, ...fixed.credentials])
      : discardAnswer(answer)
    throw new ModelListRefusal(answer.status, words?.message ?? null)
  }
  const body = await readWholeBody(answer, limit)
  if (body === null) throw new Error(`the model list is longer than ${MAX_LIST} bytes`)
  if (await runInSlices(quotesSecretSteps(fixed.credentials, body), signal))
    throw new Error('the model list quotes our key')
  return { answer: parse(body), length: body.length }
}

// Leaves out a byte order mark.
const UTF8 = new TextDecoder()

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(UTF8.decode(body))
  } catch {
    // The parser's message quotes the text.
    throw new Error('the model list is no JSON')
  }
}
