import type { IncomingHttpHeaders } from 'node:http'
import { type JsonSpan, scanJson } from '../../plugins/json-body/scan.ts'
import { DIALECT_BY_NAME, PATH_OF_WIRE } from './dialects/registry.ts'
import type { LlmDependencies, LlmFacts } from './llm-call.ts'
import type { ProviderAnswer } from './refused-answer.ts'
import type { ProviderTarget } from './routing.ts'
import type { UpstreamRequest } from './upstream/answer.ts'
import { providerRequestHeaders } from './upstream/headers.ts'
import { withQuery } from './upstream/provider.ts'
import { vertexRequest } from './upstream/vertex.ts'

export type AskedRequest = Pick<ProviderAnswer, 'target' | 'told'>

/** Makes the request to a provider of a granted call: its path, headers and body, translated or as they came. */
export function providerRequest(
  { target, told }: AskedRequest,
  { granted, body, spans, headers: given, query: stated, hangup }: LlmFacts,
  { idempotencyKeys, loopToken }: LlmDependencies,
): UpstreamRequest {
  const key = given['idempotency-key']
  const ownKey = typeof key === 'string' ? idempotencyKeys(granted.principal, key) : null
  const requested = granted.target
  const { model } = target
  // What a vendor's own headers and parameters choose is of that vendor's API.
  const headers = told
    ? withoutNames(given, DIALECT_BY_NAME[requested.endpoint.dialect].headers.request)
    : given
  const query = told ? '' : stated
  const path = told ? PATH_OF_WIRE[told.to] : requested.endpoint.upstreamPath
  const call = told
    ? { body: told.body, spans: scanJson(told.body, 1).spans, headers }
    : { body, spans, headers }
  const isAsItCame = told !== null || model === null || model === requested.model
  const { url, body: parts } =
    target.provider.api === 'vertex' && model !== null
      ? vertexRequest({ base: target.provider.base_url, path, model, call })
      : {
          url: urlOf(target, path),
          body: isAsItCame ? [call.body] : withModel(body, spans.get('model'), model),
        }
  const length = parts.reduce((sum, part) => sum + part.length, 0)
  return {
    permit: granted,
    method: 'POST',
    url: query === '' ? url : withQuery(url, query, target.query),
    headers: [
      ...providerRequestHeaders(target.headers, headers, length, ownKey),
      LOOP,
      loopChain(headers[LOOP], loopToken),
    ],
    body: parts,
    timeouts: target.timeouts,
    proxy: target.provider.tunnel,
    hangup,
  }
}

const withoutNames = (headers: IncomingHttpHeaders, names: readonly string[]): IncomingHttpHeaders =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !names.includes(name)))

/** Names who has passed a request on (RFC 8586), so that each of them knows it when it comes back. */
export const LOOP = 'cdn-loop'

/** Returns the caller's chain and our token. A chain that is longer than any honest one is begun again. */
const loopChain = (chain: string | string[] | undefined, token: string): string =>
  typeof chain === 'string' && /^[\x20-\x7e]{1,1024}$/.test(chain) ? `${chain}, ${token}` : token

function urlOf({ urls, provider }: ProviderTarget, path: string): URL {
  const url = urls.get(path)
  if (!url) throw new Error(`${provider.name} has no address for ${path}`)
  return url
}

/** Writes another model name into the body; every other byte stays as it was. */
function withModel(body: Buffer, span: JsonSpan | undefined, model: string): readonly Buffer[] {
  if (!span) throw new Error('the body has no member model, though a call was made of it')
  return [body.subarray(0, span.start), Buffer.from(JSON.stringify(model)), body.subarray(span.end)]
}
