import { AsyncLocalStorage } from 'node:async_hooks'
import {
  type BlockList,
  isIP,
  isIPv6,
  type LookupFunction,
  connect as netConnect,
  type Socket,
} from 'node:net'
import type { Duplex } from 'node:stream'
import { type ConnectionOptions, type TLSSocket, connect as tlsConnect } from 'node:tls'
import { Agent, type buildConnector } from 'undici'
import { HostNameCache } from '../../db/host-names/kept-names.ts'
import type { HostAddress } from '../../db/host-names/machine-names.ts'
import { withDeadline } from '../../plugins/deadline.ts'
import { addressRefusal, blockedAddresses, hostnameRefusal } from './address.ts'

/**
 * The connection that is being opened for one request: `end` ends it. undici goes on opening it when the
 * request is given up, so that descriptors would pile up (docs/threats.md#pools).
 */
export interface OpeningConnection {
  end: ((reason: Error) => void) | null
}

/** Holds, while a request is dispatched, the connection that is opened for it alone. */
export const openingStorage = new AsyncLocalStorage<OpeningConnection>()

/** Registers how to end the connection that is opened now. Call the result once it is open or failed. */
export function trackOpening(end: (reason: Error) => void): () => void {
  const opening = openingStorage.getStore()
  if (!opening) return () => {}
  opening.end = end
  return () => {
    if (opening.end === end) opening.end = null
  }
}

export const CONNECTION_ABANDONED = new Error('nobody waits for the connection any more')

/** The time without a request after which a pooled connection is dropped, whatever the server hints. ms. */
export const POOL_IDLE_MS = 20_000
/**
 * The silence on a connection to an upstream after which TCP asks, once a second, whether the other side is
 * still there (RFC 9293 §3.8.4). Longer than the quiet of most answers, shorter than any NAT forgets. ms.
 */
export const TCP_PROBE_MS = 5_000
/** The time after which the next of several addresses of a name is tried. ms. */
const ATTEMPT_MS = 1000
const MAX_ATTEMPTS = 8

/** Resolves a name to its addresses. Rejects if there are none. `signal`: nobody waits any more. */
export type ResolveHost = (hostname: string, signal: AbortSignal) => Promise<readonly HostAddress[]>

export interface EgressOptions {
  /** Loopback and private addresses may be connected to. Metadata services never. */
  readonly allowPrivate: boolean
  /** The time until the connection stands: name look-up, TCP and TLS. ms. */
  readonly connectMs: number
  /** The time that the server may be silent from then on. ms. */
  readonly answerMs: number
  /** The client certificate, shown to every server that asks: one agent, one upstream. PEM. */
  readonly tls?: { readonly cert: string; readonly key: string }
  /** Default: {@link HostNameCache} of this agent's own, for what operators choose. */
  readonly resolve?: ResolveHost
  /** Ends the connections that do not stand yet, and lets none begin, once it fires. */
  readonly signal?: AbortSignal
  /** False: a connection serves one request. Default true. */
  readonly keepAlive?: boolean
}

/** The side's own part of TLS: a client certificate, PEM, or a session to resume. */
type EgressTls = Pick<ConnectionOptions, 'cert' | 'key' | 'session'>

/** The host or one of its addresses is forbidden. The message is for the log. */
export class EgressRefused extends Error {
  /** The word of {@link addressRefusal}. */
  readonly reason: string

  constructor(host: string, reason: string) {
    super(`connecting to ${host} is refused: ${reason}`)
    this.name = 'EgressRefused'
    this.reason = reason
  }
}

/**
 * Makes an HTTP agent whose connections go to vetted addresses only (docs/threats.md#t16, #threat-19). It
 * resolves each name itself, refuses with {@link EgressRefused} if any of its addresses is forbidden, and
 * connects to one of those it judged. HTTP/1.1. No proxy of the environment is used, TLS is always verified,
 * by the URL's name. Redirects are not followed. Its pool is its own. Does NOT judge ports, schemes or paths.
 */
export function egressAgent(options: EgressOptions): Agent {
  const { allowPrivate, resolve = new HostNameCache().resolve } = options
  const opening: ResolvedEgressOptions = {
    ...options,
    resolve,
    blocked: BLOCKED[allowPrivate ? 'metadata' : 'private'],
  }
  return new Agent({
    connect: (target, callback) => {
      void openConnection(target, opening, callback)
    },
    allowH2: false,
    pipelining: options.keepAlive === false ? 0 : 1,
    headersTimeout: options.answerMs,
    bodyTimeout: options.answerMs,
    keepAliveTimeout: POOL_IDLE_MS,
    keepAliveMaxTimeout: POOL_IDLE_MS,
  })
}

/** `private`: all addresses but those of the public internet; `metadata`: the same but for private ones. */
const BLOCKED = { metadata: blockedAddresses(true), private: blockedAddresses(false) }

interface ResolvedEgressOptions extends EgressOptions {
  readonly resolve: ResolveHost
  readonly blocked: BlockList
}

async function openConnection(
  target: buildConnector.Options,
  opening: ResolvedEgressOptions,
  callback: buildConnector.Callback,
): Promise<void> {
  const { connectMs: ms, signal: given } = opening
  const late = (): Error => connectTimeoutError(target.hostname)
  const unwanted = new AbortController()
  const opened = trackOpening((reason) => unwanted.abort(reason))
  const signal = given ? AbortSignal.any([given, unwanted.signal]) : unwanted.signal
  let socket: Socket
  try {
    // One clock over all stages of a connection.
    socket = await withDeadline({ ms, late, signal }, (over) => connection(target, opening, over))
  } catch (error) {
    callback(error instanceof Error ? error : new Error(String(error)), null)
    return
  } finally {
    opened()
  }
  callback(null, socket)
}

/** Makes the error of a connection that was not made in time: for the log, so it names the host. */
export const connectTimeoutError = (hostname: string): Error =>
  Object.assign(new Error(`no connection to ${hostname} in time`), { code: 'UND_ERR_CONNECT_TIMEOUT' })

/**
 * Opens a connection, ready for its first request. When `signal` fires first it is destroyed, or never begun.
 */
async function connection(
  { hostname, protocol, port }: buildConnector.Options,
  { blocked, tls, ...judging }: ResolvedEgressOptions,
  signal: AbortSignal,
): Promise<Socket> {
  const addresses = await resolveVetted(hostname, judging, signal)
  signal.throwIfAborted()
  const secure = protocol === 'https:'
  const tcp = netConnect({
    host: hostname,
    port: urlPort(protocol, port),
    // Not called for an address (docs/threats.md#t16), which stands alone in `addresses` and has been judged
    // like any other.
    lookup: fixedLookup(addresses),
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: ATTEMPT_MS,
    // tls.connect would ignore it: that is why TLS is laid over an open connection.
    blockList: blocked,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: TCP_PROBE_MS,
  })
  signal.addEventListener('abort', () => tcp.destroy(), { once: true })
  await whenConnected(tcp, 'connect')
  return secure ? whenConnected(connectTlsOver(tcp, hostname, tls), 'secureConnect') : tcp
}

export const urlPort = (protocol: string, port: string): number =>
  port !== '' ? Number(port) : protocol === 'https:' ? 443 : 80

/** Lays TLS over a connection to an upstream. It is always verified, by the name. */
export function connectTlsOver(socket: Duplex, hostname: string, own: EgressTls = {}): TLSSocket {
  return tlsConnect({
    ...own,
    socket,
    // The certificate must name it. For a name also the SNI, which an address has not (RFC 6066 §3).
    host: hostname,
    ...(isIP(hostname) === 0 && { servername: hostname }),
    ALPNProtocols: ['http/1.1'],
    rejectUnauthorized: true,
  })
}

/** Resolves a host and judges every one of its addresses. Throws {@link EgressRefused}. */
async function resolveVetted(
  hostname: string,
  { allowPrivate, resolve }: Pick<ResolvedEgressOptions, 'allowPrivate' | 'resolve'>,
  signal: AbortSignal,
): Promise<readonly string[]> {
  refuse(hostname, hostnameRefusal(hostname, allowPrivate))
  if (isIP(hostname) !== 0) return [hostname]
  const addresses = (await resolve(hostname, signal)).map(({ address }) => address)
  for (const address of addresses) refuse(`${hostname} at ${address}`, addressRefusal(address, allowPrivate))
  if (addresses.length === 0) throw new Error(`${hostname} has no address`)
  return addresses.slice(0, MAX_ATTEMPTS)
}

function refuse(host: string, reason: string | null): void {
  if (reason !== null) throw new EgressRefused(host, reason)
}

function fixedLookup(addresses: readonly string[]): LookupFunction {
  const all = addresses.map((address) => ({ address, family: isIPv6(address) ? 6 : 4 }))
  return (_hostname, _options, done) => done(null, all)
}

function whenConnected(socket: Socket, event: 'connect' | 'secureConnect'): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>()
  // Stays: between here and the moment when undici takes the socket over, nobody else would hear it fail.
  socket.on('error', reject)
  socket.once('close', () => reject(new Error('the connection was closed before it stood')))
  socket.once(event, () => resolve(socket))
  return promise
}
