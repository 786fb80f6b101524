import type { Agent } from 'undici'
import { z } from 'zod'
import { askNameServers } from '../../../db/host-names/ask.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import { HolderPlaces } from '../../../plugins/holder-places.ts'
import type { CallPermit } from '../../../plugins/permit.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { VERSION } from '../../boot/version.ts'
import { egressAgent, type ResolveHost } from '../../egress/agent.ts'
import { type FetchedText, type FetchRequest, fetchVia } from './fetch.ts'
import { type AllowedHosts, FetchFailure, firstHop, parseAllowedHosts } from './hop.ts'

export interface HttpGetOptions {
  /** Names, `*.name`, or either with `:port`. Empty: any public host on the ports 80 and 443. */
  readonly allowed_hosts: readonly string[]
  /** For a whole fetch, redirects included. ms. */
  readonly timeout_ms: number
  /** The most that is returned of a body. Bytes. */
  readonly max_bytes: number
}

export interface HttpGetResult {
  /** A CallToolResult (MCP, `tools/call`). */
  readonly result: JsonObject
  /** For the outcome row: hosts, status, sizes, and the reason of a failure. Never a path or a query. */
  readonly report: JsonObject
}

export type HttpGet = (
  permit: CallPermit,
  args: Readonly<Record<string, unknown>>,
  signal: AbortSignal,
) => Promise<HttpGetResult>

/** Fetches under way at once, of one principal and of all: they go anywhere, and may take their time. */
const MAX_FETCHES = { own: 16, all: 64 }

/** Makes the look-up of callers' names: by DNS alone, the full name as it stands, and off every thread. */
export const dnsOnlyResolver =
  (servers?: readonly string[]): ResolveHost =>
  async (hostname, signal) =>
    (await askNameServers(hostname, { servers, signal })).addresses

/** The headers that a caller may send along. None of them can identify or authorise anybody. */
const CALLER_HEADERS: ReadonlySet<string> = new Set([
  'accept',
  'accept-language',
  'if-modified-since',
  'if-none-match',
  'range',
])

export const HTTP_GET_TOOL = {
  name: 'http.get',
  title: 'HTTP GET',
  description:
    'Fetches a public http or https URL and returns its status, content type and text. Text formats only; long ' +
    'bodies are cut. Hosts on private networks cannot be reached. At most three redirects are followed.',
  inputSchema: {
    type: 'object',
    properties: {
      url: { type: 'string', maxLength: 2048, description: 'The http:// or https:// URL to fetch.' },
      headers: {
        type: 'object',
        additionalProperties: { type: 'string' },
        description: `Request headers. Accepted: ${[...CALLER_HEADERS].join(', ')}.`,
      },
      max_bytes: { type: 'integer', minimum: 1, description: 'Cuts the body after this many bytes.' },
    },
    required: ['url'],
    additionalProperties: false,
  },
  annotations: { readOnlyHint: true, openWorldHint: true },
} as const satisfies JsonObject

const callArguments = z.strictObject({
  url: z.string(),
  headers: z.record(z.string(), z.string()).default({}),
  max_bytes: z.int().min(1).optional(),
})

const ARGUMENTS =
  'The arguments are url, and optionally headers (strings by name) and max_bytes (an integer above 0).'

/**
 * Makes the built-in tool `http.get` (docs/protocol.md#http-get, docs/threats.md#threat-19). A fetch that is
 * refused or fails is a tool result with `isError`; too many at once are refused with `overloaded`. Private
 * addresses, names of the hosts file and search domains stay out of reach whatever the operator allows to MCP
 * servers. Throws an Error for an entry of `allowed_hosts` that cannot be read.
 */
export function httpGet(options: HttpGetOptions, resolve = dnsOnlyResolver()): HttpGet {
  const stage = options.timeout_ms
  const agentOf: FetchAgent = (signal) =>
    egressAgent({
      allowPrivate: false,
      connectMs: stage,
      answerMs: stage,
      keepAlive: false,
      resolve,
      signal,
    })
  return withFetchLimit(new HolderPlaces(MAX_FETCHES), httpGetVia(agentOf, options))
}

type FetchAgent = (signal: AbortSignal) => Agent

/** Refuses with `overloaded` if there is no place for the fetch of a principal. */
export const withFetchLimit =
  (places: HolderPlaces, fetch: HttpGet): HttpGet =>
  async (permit, ...given) => {
    const place = places.acquire(permit.principal.id)
    if (place.taken === null)
      throw new Refusal('overloaded', {
        message: `${place.held} ${place.limit === 'own' ? 'of your ' : ''}fetches are under way. Try again when one is done.`,
        headers: { 'retry-after': '1' },
      })
    try {
      return await fetch(permit, ...given)
    } finally {
      place.taken()
    }
  }

/** Makes {@link httpGet} over given agents, which alone decide where a name may lead. */
export function httpGetVia(agentOf: FetchAgent, options: HttpGetOptions): HttpGet {
  const allowed = parseAllowedHosts(options.allowed_hosts)
  return async ({ authority }, args, signal) => {
    const prepared = attempt(() => requestOf(args, options, allowed, { signal, authority }))
    if (prepared instanceof FetchFailure) {
      return { result: failedResult(prepared), report: { host: hostOf(args.url), ...reasonOf(prepared) } }
    }
    const { url, request } = prepared
    const { hops, outcome } = await fetchVia(agentOf(request.signal), url, request)
    const report = { host: prepared.url.hostname, ...trail(hops) }
    return outcome instanceof FetchFailure
      ? { result: failedResult(outcome), report: { ...report, ...reasonOf(outcome) } }
      : { result: fetchedResult(outcome), report: { ...report, ...sizes(outcome) } }
  }
}

function attempt<Made>(make: () => Made): Made | FetchFailure {
  try {
    return make()
  } catch (error) {
    if (error instanceof FetchFailure) return error
    throw error
  }
}

function requestOf(
  args: Readonly<Record<string, unknown>>,
  options: HttpGetOptions,
  allowed: AllowedHosts,
  { signal, authority }: Pick<FetchRequest, 'signal' | 'authority'>,
): { url: URL; request: FetchRequest } {
  const parsed = callArguments.safeParse(args)
  if (!parsed.success) throw new FetchFailure('arguments', ARGUMENTS)
  const { url, headers, max_bytes: maxBytes = options.max_bytes } = parsed.data
  return {
    url: firstHop(url, allowed),
    request: {
      headers: requestHeaders(headers),
      maxBytes: Math.min(maxBytes, options.max_bytes),
      allowed,
      signal: AbortSignal.any([signal, AbortSignal.timeout(options.timeout_ms)]),
      authority,
    },
  }
}

function requestHeaders(requested: Readonly<Record<string, string>>): Record<string, string> {
  const headers: Record<string, string> = { accept: '*/*' }
  for (const [given, value] of Object.entries(requested)) {
    const name = given.toLowerCase()
    if (!CALLER_HEADERS.has(name)) {
      throw new FetchFailure(
        'header_refused',
        `The header ${JSON.stringify(given.slice(0, 64))} may not be sent.`,
      )
    }
    if (!/^[\x20-\x7e]{0,1024}$/.test(value)) {
      throw new FetchFailure('header_refused', `The value of the header ${name} cannot be sent.`)
    }
    headers[name] = value
  }
  return { ...headers, 'accept-encoding': 'identity', 'user-agent': `sallyport-http-get/${VERSION}` }
}

function fetchedResult({ status, mediaType, text, bytes, cut }: FetchedText): JsonObject {
  const note = cut ? `\n\n[The body was cut after ${bytes} bytes.]` : ''
  const head = mediaType === '' ? `HTTP ${status}` : `HTTP ${status} ${mediaType}`
  return content(`${head}\n\n${text}${note}`, false)
}

const failedResult = ({ message }: FetchFailure): JsonObject => content(message, true)

const content = (text: string, isError: boolean): JsonObject => ({
  content: [{ type: 'text', text }],
  isError,
})

const reasonOf = ({ reason, detail }: FetchFailure): JsonObject => ({ reason, ...detail })

const sizes = ({ status, bytes, cut }: FetchedText): JsonObject => ({ status, bytes, cut })

function trail(hops: readonly URL[]): JsonObject {
  const redirects = hops.length - 1
  return redirects === 0 ? { redirects } : { redirects, final_host: hops.at(-1)?.hostname ?? null }
}

function hostOf(url: unknown): string | null {
  return typeof url === 'string' ? (URL.parse(url)?.hostname.slice(0, 253) ?? null) : null
}
