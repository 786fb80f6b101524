import { once } from 'node:events'
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { Dispatcher } from 'undici'
import { HOP_BY_HOP } from '../../proxy/egress/hop-by-hop.ts'
import { LingeringConnections, lingerAtEnd, makeLingerable } from '../../proxy/tls/lingering.ts'
import { errorEnvelope, type LocalError } from './envelope.ts'
import { eventStream } from './event-stream.ts'
import type { ClientSession } from './signing/session.ts'

const NAMES = ['127.0.0.1', 'localhost', '[::1]']

/**
 * Returns the error that a request to the sidecar is refused with, or null. A party that can make this
 * machine's browser call a loopback port would speak as the agent: a page of another site (its `Origin` or
 * `Sec-Fetch-Site` says so), or a name that was pointed here (DNS rebinding: its `Host` says so, and it has
 * one). `port`: the sidecar's own. Does NOT keep out other users of this machine: a loopback port has no
 * owner.
 */
function localFault(
  { headers, rawHeaders, url = '' }: Pick<IncomingMessage, 'headers' | 'rawHeaders' | 'url'>,
  port: number,
): LocalError | null {
  // Node keeps the first of two.
  if (rawHeaders.filter((name, i) => i % 2 === 0 && name.toLowerCase() === 'host').length > 1) {
    return malformed('The header host was sent twice.')
  }
  const hosts = NAMES.map((name) => `${name}:${port}`)
  const { host = '', origin, 'sec-fetch-site': site, expect = CONTINUE } = headers
  const local = NAMES.map((name) => authorityOf(`${name}:${port}`))
  if (!local.includes(authorityOf(host))) {
    return localRefusal(403, 'host_not_local', `The Host header must be one of ${hosts.join(', ')}.`)
  }
  if (origin !== undefined && !(origin.startsWith(HTTP) && local.includes(authorityOf(origin.slice(7))))) {
    return localRefusal(403, 'origin_not_local', 'Pages of other origins may not call this agent.')
  }
  if (site !== undefined && site !== 'same-origin' && site !== 'none') {
    return localRefusal(403, 'origin_not_local', 'Pages of other sites may not call this agent.')
  }
  if (expect.toLowerCase() !== CONTINUE) {
    return localRefusal(417, 'expectation_failed', 'The Expect header may only be 100-continue.')
  }
  if (url.startsWith('/') && !url.startsWith('//')) return null
  return malformed('The target must be an absolute path.')
}

const HTTP = 'http://'
const CONTINUE = '100-continue'

/** A host and a port, and nothing else (RFC 9110 §7.2). */
const AUTHORITY = /^(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::\d{0,5})?$/i

/**
 * Returns an authority as a URL of plain HTTP has it: in lower case, and without the port if it is 80. Null if
 * it is none.
 */
function authorityOf(text: string): string | null {
  if (!AUTHORITY.test(text)) return null
  // A dot at the end says that the name is whole already.
  return URL.parse(`${HTTP}${text.replace(/\.(?=:|$)/, '')}`)?.host ?? null
}

const localRefusal = (status: number, reason: string, message: string): LocalError => ({
  status,
  reason,
  message,
  final: true,
})

const malformed = (message: string): LocalError => localRefusal(400, 'bad_request', message)

const PARSER_FAULTS: Readonly<Record<string, LocalError>> = {
  HPE_HEADER_OVERFLOW: localRefusal(
    431,
    'headers_too_large',
    'The request headers are larger than this sidecar accepts.',
  ),
  ERR_HTTP_REQUEST_TIMEOUT: localRefusal(408, 'body_timeout', 'The request did not arrive in time.'),
}

// Answered or checked on this side. Cookies of any program on this machine would come along: they know no
// ports.
const ENDS_HERE = ['host', 'expect', 'origin', 'referer', 'cookie', 'accept-encoding']

function forwardedRequestHeaders(
  rawHeaders: readonly string[],
  { connection }: IncomingHttpHeaders,
): string[] {
  const dropped = new Set([...HOP_BY_HOP, ...ENDS_HERE, ...connectionHeaderNames(connection)])
  const kept = pairs(rawHeaders).filter(
    ([name]) => !dropped.has(name.toLowerCase()) && !name.toLowerCase().startsWith('sec-fetch-'),
  )
  // An answer that is not compressed can be passed on event by event.
  return [...kept.flat(), 'accept-encoding', 'identity']
}

function forwardedAnswerHeaders(rawHeaders: readonly string[]): string[] {
  const all = pairs(rawHeaders)
  const connection = all.find(([name]) => name.toLowerCase() === 'connection')?.[1]
  const dropped = new Set([
    ...HOP_BY_HOP,
    'strict-transport-security',
    'dpop-nonce',
    ...connectionHeaderNames(connection),
  ])
  return all.filter(([name]) => !dropped.has(name.toLowerCase())).flat()
}

const connectionHeaderNames = (connection = ''): string[] => connection.toLowerCase().split(/\s*,\s*/)

function pairs(raw: readonly string[]): [name: string, value: string][] {
  const found: [string, string][] = []
  for (let i = 0; i + 1 < raw.length; i += 2) found.push([raw[i] ?? '', raw[i + 1] ?? ''])
  return found
}

export interface SidecarServer {
  /** e.g. `http://127.0.0.1:8787` */
  readonly url: string
  /** Takes no more calls, lets those under way end for `graceMs`, then cuts them off. */
  readonly close: (graceMs: number) => Promise<void>
}

// Longer than clients keep an idle connection: the side that closes first must not be the one that is about
// to be asked.
const KEEP_ALIVE_MS = 95_000

const LOOPBACK = new Set(['127.0.0.1', '::1', 'localhost'])

/**
 * Starts the sidecar: plain HTTP in, mutual TLS, access token and DPoP out, as the session's principal.
 * Throws if `host` is not a loopback address, or the port is taken. Port 0 picks one.
 */
export async function startSidecar(
  session: ClientSession,
  host: string,
  port: number,
): Promise<SidecarServer> {
  if (!LOOPBACK.has(host)) {
    throw new Error(`the sidecar speaks plain HTTP as the agent: it listens on loopback only, not on ${host}`)
  }
  const underWay = new WeakMap<Duplex, number>()
  const answer: RequestListener = (req, res) => {
    const { socket } = req
    underWay.set(socket, (underWay.get(socket) ?? 0) + 1)
    res.once('close', () => underWay.set(socket, (underWay.get(socket) ?? 1) - 1))
    void serve(session, req, res)
  }
  const server = createServer({ keepAliveTimeout: KEEP_ALIVE_MS }, answer)
  server.on('checkContinue', answer).on('checkExpectation', answer)
  const lingering = new LingeringConnections()
  server.on('connection', (socket) => makeLingerable(socket, lingering))
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    // In the middle of an answer it would be taken for a part of that.
    if ((underWay.get(socket) ?? 0) > 0) socket.destroy()
    else refuseRaw(socket, error)
  })
  server.listen(port, host)
  await once(server, 'listening')
  // A server that listens on a port has such an address.
  const { address, port: taken, family } = server.address() as AddressInfo
  const url = `http://${family === 'IPv6' ? `[${address}]` : address}:${taken}`
  return { url, close: (graceMs) => close(server, graceMs, lingering) }
}

async function close(server: Server, graceMs: number, lingering: LingeringConnections): Promise<void> {
  const closed = new Promise((resolve) => server.close(resolve))
  server.closeIdleConnections()
  const cut = setTimeout(() => {
    server.closeAllConnections()
    lingering.endAll()
  }, graceMs)
  await closed
  clearTimeout(cut)
}

async function serve(session: ClientSession, req: IncomingMessage, res: ServerResponse): Promise<void> {
  // A server's socket has a port for as long as it is open; without one nothing matches.
  const fault = localFault(req, req.socket.localPort ?? -1)
  if (fault) return refuse(req, res, fault)
  const gone = new AbortController()
  res.once('close', () => gone.abort(new Error('the client hung up')))
  try {
    await pass(session, req, res, gone.signal)
  } catch (error) {
    // Once an answer has begun, `pipeline` has destroyed the connection.
    if (!res.headersSent && !gone.signal.aborted) refuse(req, res, unreachable(session.origin, error))
  }
}

async function pass(
  { origin, dispatcher }: ClientSession,
  req: IncomingMessage,
  res: ServerResponse,
  signal: AbortSignal,
): Promise<void> {
  const { statusCode, statusText, headers, body } = await dispatcher.request({
    origin,
    // Node's parser knows no other methods than undici.
    method: req.method as Dispatcher.HttpMethod,
    path: req.url ?? '',
    headers: forwardedRequestHeaders(req.rawHeaders, req.headers),
    body: bodyOf(req, res),
    signal,
    responseHeaders: 'raw',
  })
  // With `raw` they come as names and values in turn.
  const raw = headers as unknown as readonly string[]
  res.writeHead(statusCode, statusText, [...forwardedAnswerHeaders(raw), ...closing(req)])
  res.flushHeaders()
  // A broken answer is never ended as if it were whole: an SDK would take the cut text for all of it
  // (docs/threats.md#t4).
  const [, type = ''] = pairs(raw).find(([name]) => name.toLowerCase() === 'content-type') ?? []
  const isEvents = /^text\/event-stream/i.test(type)
  await (isEvents ? pipeline(eventStream(body), res) : pipeline(body, res))
}

function bodyOf(req: IncomingMessage, res: ServerResponse): IncomingMessage | null {
  const { 'content-length': length, 'transfer-encoding': coding, expect } = req.headers
  if (coding === undefined && (length === undefined || length === '0')) return null
  if (expect !== undefined) res.writeContinue()
  // Undici takes any iterable of bytes. Its end must not be the end of the connection that the answer goes
  // back on.
  return req.iterator({ destroyOnReturn: false }) as unknown as IncomingMessage
}

/** Lets a client that still sends read its answer once all is written: its connection closes after it. */
function closing({ complete, socket }: IncomingMessage): readonly string[] {
  if (complete) return []
  lingerAtEnd(socket)
  return ['connection', 'close']
}

function refuse(req: IncomingMessage, res: ServerResponse, error: LocalError): void {
  const { headers, body } = errorEnvelope(error)
  res.writeHead(error.status, [...Object.entries(headers).flat(), ...closing(req)]).end(body)
}

function refuseRaw(socket: Duplex, { code }: NodeJS.ErrnoException): void {
  // The error of a connection that was refused before, or that is gone.
  if (!socket.writable) return
  const error = PARSER_FAULTS[code ?? ''] ?? malformed('The request is not well-formed HTTP.')
  const { headers, body } = errorEnvelope(error)
  const head = Object.entries({ ...headers, connection: 'close' }).map(([name, value]) => `${name}: ${value}`)
  socket.write([`HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}`, ...head, '', body].join('\r\n'))
  lingerAtEnd(socket)
  // Of a server of HTTP.
  ;(socket as Socket).destroySoon()
}

function unreachable(origin: string, error: unknown): LocalError {
  const why = error instanceof Error ? codeOf(error) : String(error)
  return {
    status: 502,
    reason: 'gateway_unreachable',
    message: `The gateway ${origin} gave no answer (${why}).`,
    final: false,
  }
}

const codeOf = (error: Error): string =>
  'code' in error && typeof error.code === 'string' ? `${error.code}: ${error.message}` : error.message
