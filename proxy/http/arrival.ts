import { randomFillSync } from 'node:crypto'
import { TLSSocket } from 'node:tls'
import { thumbprintOf } from '../../certs/x509/x509.ts'
import type { CallAuthority } from '../../plugins/call-authority.ts'
import type { CallTrace } from '../../plugins/call-trace.ts'
import type { Arrival, MemoryOwner, TlsPeer } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { BYTES_AT_ONCE } from '../../plugins/turns.ts'
import { requireComingBody } from './framing.ts'
import { type LocalConnection, PEER_UID } from './local-uid.ts'
import { type BodyReading, IncomingBody, tooLarge } from './memory/incoming-body.ts'
import type { Route } from './route.ts'

export interface MatchedRoute {
  readonly route: Route
  readonly params: Readonly<Record<string, string>>
}

/** Finds the one route of a method and a raw path, or refuses. */
export type Router = (method: string, path: string) => MatchedRoute

interface RoutePattern {
  readonly segments: readonly string[]
  readonly methods: Map<string, Route>
}

interface MatchedPattern {
  readonly pattern: RoutePattern
  readonly params: MatchedRoute['params']
}

const NO_PARAMS = Object.freeze({})

/**
 * Makes a {@link Router}. It matches the path exactly as it was sent (docs/threats.md#t17, #threat-32), but
 * decodes a variable segment, once. Two routes of one method and path throw. If several patterns fit, the
 * first one that has the method counts.
 */
export function router(routes: readonly Route[]): Router {
  const exact = new Map<string, RoutePattern>()
  for (const route of routes) add(exact, route)
  const variable = [...exact.values()].filter(({ segments }) => segments.some(isVariable))
  /** Finds the patterns of a path, with its variable segments. One without any stands alone. */
  const patternsOf = (path: string): readonly MatchedPattern[] => {
    const found = exact.get(path)
    if (found && !found.segments.some(isVariable)) return [{ pattern: found, params: NO_PARAMS }]
    if (path.startsWith(TWICE)) throw new Refusal('base_url_wrong')
    const segments = path.split('/')
    return variable.flatMap((pattern) => {
      const params = paramsOf(pattern.segments, segments)
      return params ? [{ pattern, params }] : []
    })
  }
  return (method, path) => {
    const found = patternsOf(path)
    for (const { pattern, params } of found) {
      const route = routeFor(pattern, method)
      if (route) return { route, params }
    }
    if (found.length > 0) throw methodNotAllowed(found)
    const lacksPrefix = !path.startsWith(PREFIX) && patternsOf(`/v1${path}`).length > 0
    if (!lacksPrefix && UNSERVED.test(path)) throw new Refusal('not_found', ELSEWHERE)
    throw new Refusal('not_found', lacksPrefix ? WITHOUT_PREFIX : {})
  }
}

const PREFIX = '/v1/'
const TWICE = '/v1/v1/'

/** The paths at which the vendors' APIs keep or begin something, for other requests to fetch or end. */
const UNSERVED =
  /^(?:\/v1)?\/(?:responses\/|chat\/completions\/|messages\/batches|(?:assistants|audio|batches|containers|conversations|evals|files|fine_tuning|images|organizations|realtime|skills|threads|uploads|vector_stores|videos)(?:\/|$))/

const ELSEWHERE = {
  message:
    "This gateway does not serve this part of the vendor's API. It serves single calls: chat completions, responses, completions, embeddings, moderations, pictures, messages and the list of models.",
}

const WITHOUT_PREFIX = {
  message: 'There is nothing at this path. Append /v1 to the base URL of this client.',
}

function add(patterns: Map<string, RoutePattern>, route: Route): void {
  const pattern = patterns.get(route.path) ?? {
    segments: route.path.split('/'),
    methods: new Map<string, Route>(),
  }
  if (pattern.methods.has(route.method)) throw new Error(`two routes for ${route.method} ${route.path}`)
  pattern.methods.set(route.method, route)
  patterns.set(route.path, pattern)
}

/** Finds the route of a method. RFC 9110 §9.1: HEAD is wherever GET is safe, and its answer has no body. */
function routeFor({ methods }: RoutePattern, method: string): Route | undefined {
  const isHead = method === 'HEAD'
  const route = methods.get(isHead ? 'GET' : method) ?? methods.get('OTHER')
  return isHead && route?.usesUp ? undefined : route
}

const isVariable = (segment: string): boolean => segment.startsWith('{')

function methodNotAllowed(found: readonly MatchedPattern[]): Refusal {
  const methods = found
    .flatMap(({ pattern }) => [...pattern.methods])
    .flatMap(([method, { usesUp }]) => (method === 'GET' && !usesUp ? ['GET', 'HEAD'] : [method]))
  return new Refusal('method_not_allowed', { headers: { allow: methods.join(', ') } })
}

function paramsOf(pattern: readonly string[], segments: readonly string[]): Record<string, string> | null {
  if (pattern.length !== segments.length) return null
  const params: Record<string, string> = {}
  for (const [i, expected] of pattern.entries()) {
    const segment = segments[i] ?? ''
    if (!isVariable(expected)) {
      if (segment !== expected) return null
      continue
    }
    const value = decodeSegment(segment)
    if (value === null) return null
    params[expected.slice(1, -1)] = value
  }
  return params
}

function decodeSegment(segment: string): string | null {
  try {
    return segment === '' ? null : decodeURIComponent(segment)
  } catch {
    return null
  }
}

export function splitTarget(target: string): { readonly path: string; readonly query: string } {
  const mark = target.indexOf('?')
  return mark < 0
    ? { path: target, query: '' }
    : { path: target.slice(0, mark), query: target.slice(mark + 1) }
}

export interface IncomingRequest extends BodyReading {
  readonly path: string
  readonly query: string
  readonly at: number
  readonly authority: CallAuthority
}

export function createArrival(
  incoming: IncomingRequest,
  params: MatchedRoute['params'] = NO_PARAMS,
  trace: CallTrace | null = null,
): Arrival {
  const { req, path, query, at, hangup, authority, held } = incoming
  let body: Buffer | Promise<Buffer> | null = null
  return {
    id: requestId(at),
    at,
    method: req.method ?? '',
    path,
    query,
    params,
    headers: req.headers,
    remoteAddress: req.socket.remoteAddress ?? '',
    localUid: (req.socket as LocalConnection)[PEER_UID] ?? null,
    peer: req.socket instanceof TLSSocket ? peerOf(req.socket) : null,
    readBody: (limit, caller) => {
      body ??= readBody(incoming, limit, caller)
      return body
    },
    held,
    answer: {},
    hangup,
    authority,
    trace,
  }
}

// The time first: rows of one moment then lie side by side in the index. Eighty random bits after it.
const requestId = (at: number): string => `req_${at.toString(16).padStart(12, '0')}${randomHex()}`

const RANDOM_BYTES = 10
/** Random bytes are made for many requests at once. */
const random = Buffer.alloc(400 * RANDOM_BYTES)
let unusedRandomBytes = 0

function randomHex(): string {
  if (unusedRandomBytes === 0) unusedRandomBytes = randomFillSync(random).length
  unusedRandomBytes -= RANDOM_BYTES
  return random.toString('hex', unusedRandomBytes, unusedRandomBytes + RANDOM_BYTES)
}

/** On the socket itself, not in a WeakMap, which the collector would walk each time. */
const PEER = Symbol('peer')

interface SocketWithPeer {
  [PEER]?: TlsPeer | null
}

// A connection's certificate never changes, so it is read once. Its pin is asked on every request.
function peerOf(socket: TLSSocket & SocketWithPeer): TlsPeer | null {
  const known = socket[PEER]
  if (known !== undefined) return known
  const peer = readPeer(socket)
  socket[PEER] = peer
  return peer
}

function readPeer(socket: TLSSocket): TlsPeer | null {
  const certificate = socket.getPeerX509Certificate()
  if (!certificate) return null
  return {
    certificate,
    thumbprint: thumbprintOf(certificate.raw),
    notBefore: certificate.validFromDate.getTime(),
    notAfter: certificate.validToDate.getTime(),
  }
}

/** A body of at most so many bytes costs less than its connection does, and is not counted. */
const MIN_COUNTED_BODY = 4096

/**
 * Reads the whole body of a request, at once if it has come. Refuses with `body_too_large` past `limit` bytes,
 * with `overloaded` if the caller holds too much for too long, with `bad_request` if the body breaks off.
 */
function readBody(reading: BodyReading, limit: number, caller: MemoryOwner): Buffer | Promise<Buffer> {
  const { req, held } = reading
  const counted = limit > MIN_COUNTED_BODY
  held.setOwner(caller)
  const length = req.headers['content-length']
  const declared = length === undefined ? undefined : Number(length)
  if (declared !== undefined && declared > limit) throw tooLarge(limit)
  requireComingBody(req)
  if (!req.complete || req.readableLength > BYTES_AT_ONCE)
    return new IncomingBody(reading, { limit, counted, declared }).read()
  // Without an encoding, and null if there is none.
  const body = (req.read() as Buffer | null) ?? NOTHING
  if (body.length > limit) throw tooLarge(limit)
  const later = counted ? held.reserveInTurn(body.length, true) : undefined
  return later ? later.then(() => body) : body
}

const NOTHING = Buffer.alloc(0)
