import { hangupFromSignal } from '../../../plugins/hangup.ts'
import type { CatalogPermit } from '../../../plugins/permit.ts'
import { quotesSecretSteps } from '../../../plugins/secrets/traces.ts'
import { runInSlices } from '../../../plugins/turns.ts'
import type { ListedModel } from '../dialects/dialect.ts'
import { DIALECT_BY_NAME } from '../dialects/registry.ts'
import type { LlmProvider } from '../options.ts'
import { discardAnswer, readWholeBody } from './answer.ts'
import type { LlmUpstream } from './client.ts'
import { fixedHeaders, providerRequestHeaders } from './headers.ts'
import { timeoutsOf, urlAtProvider } from './provider.ts'

/** Bytes. */
const MAX_LIST = 4 * 1024 * 1024

export interface ModelListRequest {
  readonly permit: CatalogPermit
  readonly provider: LlmProvider
  readonly upstream: LlmUpstream
  readonly signal: AbortSignal
}

/**
 * Reads a provider's list of models, with the provider's own key. Rejects if the answer is no list, or longer
 * than 4 MiB; no message quotes the answer, which may quote our key.
 */
export async function readModelList(request: ModelListRequest): Promise<readonly ListedModel[]> {
  const { permit, provider, upstream, signal } = request
  const format = DIALECT_BY_NAME[provider.dialect].models
  const fixed = fixedHeaders(provider)
  const answer = await upstream.call({
    permit,
    method: 'GET',
    url: urlAtProvider(provider, format.upstreamPath),
    headers: providerRequestHeaders(fixed, { accept: 'application/json' }, null),
    body: [],
    timeouts: timeoutsOf(provider),
    hangup: hangupFromSignal(signal),
  })
  if (answer.status !== 200) {
    discardAnswer(answer)
    throw new Error(`the model list was answered with ${answer.status}`)
  }
  const body = await readWholeBody(answer, MAX_LIST)
  if (body === null) throw new Error(`the model list is longer than ${MAX_LIST} bytes`)
  if (await runInSlices(quotesSecretSteps(fixed.credentials, body), signal))
    throw new Error('the model list quotes our key')
  return format.parse(parse(body))
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'))
  } catch {
    // The parser's message quotes the text.
    throw new Error('the model list is no JSON')
  }
}
