import type { IncomingHttpHeaders } from 'node:http'
import { COMMA, OPEN_BRACE, QUOTE } from '../../../plugins/json-body/bytes.ts'
import type { BodyScan, JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { JsonSpan } from '../../../plugins/json-body/scan.ts'

/** The form of the API that a body at Google Cloud names in place of a header. */
const VERSION = 'vertex-2023-10-16'
const COUNT_TOKENS = '/messages/count_tokens'
const SPACE = 0x20
/** A model that a caller names stays one segment of a path; `@` stands before the date of a model. */
const segment = (model: string): string => encodeURIComponent(model).replaceAll('%40', '@')

interface VertexCall {
  readonly base: string
  /** The path of the endpoint at Anthropic. */
  readonly path: string
  readonly model: string
  readonly call: Pick<JsonBody, 'body'> & Pick<BodyScan, 'spans'> & { readonly headers: IncomingHttpHeaders }
}

interface VertexRequest {
  readonly url: URL
  readonly body: readonly Buffer[]
}

/**
 * Makes the request that Claude at Google Cloud takes: the model stands in the path and is cut out of the body,
 * the version and the betas come into it, every other byte stays. To count tokens, the model stays.
 */
export function vertexRequest({ base, path, model, call }: VertexCall): VertexRequest {
  const { body, spans } = call
  const isCount = path === COUNT_TOKENS
  const stream = spans.get('stream')
  const isStream = stream !== undefined && body.toString('latin1', stream.start, stream.end) === 'true'
  const method = isStream ? 'streamRawPredict' : 'rawPredict'
  const url = new URL(isCount ? `${base}/count-tokens:rawPredict` : `${base}/${segment(model)}:${method}`)
  const span = spans.get('model')
  if (!span) throw new Error('the body has no member model, though a call was made of it')
  const cut = isCount ? span : memberAt(body, span)
  const inPlace = isCount ? JSON.stringify(model) : ''
  const start = body.indexOf(OPEN_BRACE) + 1
  const hasMore = isCount || spans.size > 1
  const added = addedMembers(call)
    .map((member) => member + (hasMore ? ',' : ''))
    .join(hasMore ? '' : ',')
  return {
    url,
    body: [
      body.subarray(0, start),
      Buffer.from(added),
      body.subarray(start, cut.start),
      Buffer.from(inPlace),
      body.subarray(cut.end),
    ],
  }
}

function addedMembers({ spans, headers }: VertexCall['call']): readonly string[] {
  const betas = String(headers['anthropic-beta'] ?? '')
    .split(',')
    .map((beta) => beta.trim())
    .filter((beta) => beta !== '')
  return [
    ...(spans.has('anthropic_version') ? [] : [`"anthropic_version":"${VERSION}"`]),
    ...(spans.has('anthropic_beta') || betas.length === 0
      ? []
      : [`"anthropic_beta":${JSON.stringify(betas)}`]),
  ]
}

/** Returns the place of a whole member by that of its value: with the comma after it, or before the last one. */
function memberAt(body: Buffer, value: JsonSpan): JsonSpan {
  // No escape stands in the name: another spelling of it was refused.
  const nameEnd = body.lastIndexOf(QUOTE, value.start - 1)
  const start = body.lastIndexOf(QUOTE, nameEnd - 1)
  const after = nextPlace(body, value.end, 1)
  if (body[after] === COMMA) return { start, end: after + 1 }
  const before = nextPlace(body, start - 1, -1)
  return { start: body[before] === COMMA ? before : start, end: value.end }
}

function nextPlace(body: Buffer, from: number, step: 1 | -1): number {
  let at = from
  while (at >= 0 && at < body.length && (body[at] ?? 0) <= SPACE) at += step
  return at
}
