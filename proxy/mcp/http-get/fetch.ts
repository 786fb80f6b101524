import type { Agent, Dispatcher } from 'undici'
import { type CallAuthority, confirmAuthority, OVERTAKEN } from '../../../plugins/call-authority.ts'
import { ByteCollector } from '../../../plugins/collect.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { EgressRefused } from '../../egress/agent.ts'
import type { AllowedHosts } from './hop.ts'
import { FetchFailure, nextHop } from './hop.ts'

const TEXT_TYPES: ReadonlySet<string> = new Set([
  'application/ecmascript',
  'application/graphql',
  'application/javascript',
  'application/json',
  'application/jsonl',
  'application/ld+json',
  'application/sql',
  'application/toml',
  'application/x-javascript',
  'application/x-ndjson',
  'application/x-yaml',
  'application/xml',
  'application/yaml',
])

const MEDIA_TYPE = /^\s*([a-z0-9!#$&^_.+-]{1,80}\/[a-z0-9!#$&^_.+-]{1,80})\s*(?:;|$)/i
const CHARSET = /;\s*charset\s*=\s*"?([a-z0-9_.:-]{1,40})"?\s*(?:;|$)/i

const UTF_8: ReadonlySet<string> = new Set(['utf-8', 'utf8', 'us-ascii', 'ascii'])
const LATIN_1: ReadonlySet<string> = new Set(['iso-8859-1', 'latin1'])

interface TextType {
  /** Lower case, without parameters. */
  readonly mediaType: string
  readonly charset: 'utf-8' | 'iso-8859-1'
}

/** Reads a Content-Type. Refuses with {@link FetchFailure} what is not text, or of another charset. */
function textType(header: string): TextType {
  const mediaType = MEDIA_TYPE.exec(header)?.[1]?.toLowerCase()
  if (mediaType === undefined)
    throw new FetchFailure('content_type', 'The answer has no readable content type.')
  if (
    !mediaType.startsWith('text/') &&
    !TEXT_TYPES.has(mediaType) &&
    !/\+(?:json|xml|yaml)$/.test(mediaType)
  ) {
    throw new FetchFailure('content_type', `The answer is ${mediaType}, which is not text.`)
  }
  const charset = CHARSET.exec(header)?.[1]?.toLowerCase() ?? 'utf-8'
  if (UTF_8.has(charset)) return { mediaType, charset: 'utf-8' }
  if (LATIN_1.has(charset)) return { mediaType, charset: 'iso-8859-1' }
  throw new FetchFailure('charset', `The answer is in the character set ${charset}, which is not read here.`)
}

function decodeText(bytes: Buffer, charset: TextType['charset'], cut: boolean): string {
  if (charset === 'iso-8859-1') return bytes.toString('latin1')
  return new TextDecoder('utf-8').decode(bytes, { stream: cut })
}

const MAX_REDIRECTS = 3
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308])
/** Answers that have no body, whatever they say (RFC 9110 §15). */
const BODILESS: ReadonlySet<number> = new Set([204, 304])

export interface FetchRequest {
  readonly headers: Readonly<Record<string, string>>
  /** The body is cut after so many bytes. */
  readonly maxBytes: number
  readonly allowed: AllowedHosts
  readonly signal: AbortSignal
  readonly authority: CallAuthority
}

export interface FetchedText {
  readonly status: number
  /** Lower case, without parameters; empty if the answer has no body. */
  readonly mediaType: string
  readonly text: string
  readonly bytes: number
  readonly cut: boolean
}

export interface FetchAttempt {
  readonly hops: readonly [URL, ...URL[]]
  readonly outcome: FetchedText | FetchFailure
}

type FetchResponse = Dispatcher.ResponseData

/**
 * GETs a text through `agent`, following at most three redirects, each judged by {@link nextHop}. Never
 * throws because of a server; rejects with `authority_revoked`. Does NOT judge `first`, nor limit the time:
 * the signal does.
 */
export async function fetchVia(agent: Agent, first: URL, request: FetchRequest): Promise<FetchAttempt> {
  const hops: [URL, ...URL[]] = [first]
  try {
    return { hops, outcome: await follow(agent, hops, request) }
  } catch (error) {
    return { hops, outcome: failureOf(error, request.signal) }
  }
}

async function follow(agent: Agent, hops: [URL, ...URL[]], request: FetchRequest): Promise<FetchedText> {
  let current = hops[0]
  for (;;) {
    const answer = await get(agent, current, request)
    const { location } = answer.headers
    if (!REDIRECTS.has(answer.statusCode) || location === undefined) return read(answer, request.maxBytes)
    answer.body.destroy()
    if (typeof location !== 'string')
      throw new FetchFailure('redirects', 'The server redirects to two URLs at once.')
    if (hops.length > MAX_REDIRECTS) throw new FetchFailure('redirects', 'The server redirects too often.')
    current = nextHop(current, location, request.allowed)
    hops.push(current)
  }
}

async function get(agent: Agent, url: URL, request: FetchRequest): Promise<FetchResponse> {
  const { headers, signal, authority } = request
  await confirmAuthority(authority)
  const path = url.pathname + url.search
  const allowed = agent.compose(
    (dispatch) => (sent, handler) => dispatch(sent, new AllowedDispatchHandler(handler, authority)),
  )
  let answer: FetchResponse
  try {
    answer = await allowed.request({ origin: url.origin, path, method: 'GET', headers, signal })
  } catch (error) {
    if (error !== OVERTAKEN) throw error
    return get(agent, url, request)
  }
  // A body that is destroyed reports an error. Unheard it would end the process.
  answer.body.on('error', () => undefined)
  return answer
}

async function read(answer: FetchResponse, maxBytes: number): Promise<FetchedText> {
  const status = answer.statusCode
  try {
    if (BODILESS.has(status)) return { status, mediaType: '', text: '', bytes: 0, cut: false }
    const encoding = headerOf(answer, 'content-encoding').toLowerCase()
    if (encoding !== '' && encoding !== 'identity') {
      throw new FetchFailure('content_encoding', 'The answer is compressed, although that was not asked for.')
    }
    const { mediaType, charset } = textType(headerOf(answer, 'content-type'))
    const { body, cut } = await readUpTo(maxBytes, answer)
    return { status, mediaType, text: decodeText(body, charset, cut), bytes: body.length, cut }
  } catch (error) {
    throw error instanceof FetchFailure ? withStatus(error, status) : error
  } finally {
    // Unread, it would hold its connection.
    answer.body.destroy()
  }
}

/** Adds the status to a failure: it helps the caller, and says nothing that the body would not have said. */
function withStatus({ reason, message, detail }: FetchFailure, status: number): FetchFailure {
  return new FetchFailure(reason, `HTTP ${status}. ${message}`, { ...detail, status })
}

async function readUpTo(maxBytes: number, { body }: FetchResponse): Promise<{ body: Buffer; cut: boolean }> {
  const kept = new ByteCollector(maxBytes)
  let left = maxBytes
  // Proven by undici: without setEncoding, a body's chunks are Buffers.
  for await (const chunk of body as AsyncIterable<Buffer>) {
    kept.add(chunk.subarray(0, left))
    left -= chunk.length
    if (left < 0) break
  }
  return { body: kept.bytes(), cut: left < 0 }
}

function headerOf({ headers }: FetchResponse, name: string): string {
  const value = headers[name]
  return typeof value === 'string' ? value.trim() : (value?.join(', ') ?? '')
}

/** The one sentence for hosts that are forbidden, unknown or silent: they must not be told apart. */
const UNREACHABLE = 'The server could not be reached or broke off.'

function failureOf(error: unknown, signal: AbortSignal): FetchFailure {
  if (error instanceof Refusal) throw error
  if (error instanceof FetchFailure) return error
  if (error instanceof EgressRefused) {
    return new FetchFailure('address_refused', UNREACHABLE, { range: error.reason })
  }
  if (signal.aborted) return endedBy(signal.reason)
  const code = error instanceof Error && 'code' in error ? String(error.code).slice(0, 64) : 'unknown'
  return new FetchFailure('unreachable', UNREACHABLE, { code })
}

function endedBy(reason: unknown): FetchFailure {
  return reason instanceof Error && reason.name === 'TimeoutError'
    ? new FetchFailure('timeout', 'The fetch took too long.')
    : new FetchFailure('aborted', 'The fetch was cancelled.')
}

/** Fails with {@link OVERTAKEN}, before a byte has gone out, if the call's permission may have changed. */
class AllowedDispatchHandler implements Dispatcher.DispatchHandler {
  readonly #handler: Dispatcher.DispatchHandler
  readonly #authority: CallAuthority

  constructor(handler: Dispatcher.DispatchHandler, authority: CallAuthority) {
    this.#handler = handler
    this.#authority = authority
  }

  onRequestStart(controller: Dispatcher.DispatchController, context: unknown): void {
    if (!this.#authority.unchanged) throw OVERTAKEN
    this.#handler.onRequestStart?.(controller, context)
  }

  onResponseStart(...told: Parameters<NonNullable<Dispatcher.DispatchHandler['onResponseStart']>>): void {
    this.#handler.onResponseStart?.(...told)
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#handler.onResponseData?.(controller, chunk)
  }

  onResponseEnd(...told: Parameters<NonNullable<Dispatcher.DispatchHandler['onResponseEnd']>>): void {
    this.#handler.onResponseEnd?.(...told)
  }

  onResponseError(controller: Dispatcher.DispatchController, error: Error): void {
    this.#handler.onResponseError?.(controller, error)
  }
}
