import type { Server } from 'node:https'
import type { Socket } from 'node:net'
import { type SecureContext, TLSSocket } from 'node:tls'
import { boundedCache } from '../../db/support/bounded-cache.ts'
import { senderOf } from '../../plugins/secrets/throttle.ts'
import { ClientFlight, FlightError, type FlightFault } from './client-flight.ts'
import {
  CONNECTION_PLACE,
  ConnectionLimit,
  type ConnectionPlace,
  type PlacedConnection,
  UNLIMITED_CONNECTIONS,
} from './connection-limit.ts'
import { type HandshakeSteps, type PendingHandshake, PendingHandshakes } from './handshakes.ts'
import { InboundStream, LoopScheduler, SenderCost } from './inbound.ts'
import { LINGER, LINGER_LIMITS, type LingerableConnection, LingeringConnections } from './lingering.ts'
import { beginsProxyHeader, type ProxiedClient, ProxyHeader } from './proxy-header.ts'
import { clientSecretIn, RecordReader } from './record-reader.ts'

interface ProxyHeaderCallbacks {
  /** The header is whole: null if the connection itself counts. */
  readonly named: (caller: ProxiedClient | null) => void
  readonly failed: () => void
  /** The peer has ended before it has said anything, as a look at an open port does. */
  readonly left: () => void
}

/** Reads the PROXY protocol from a paused socket, which it leaves paused. Calls one of three once. */
function awaitProxyHeader(socket: Socket, { named, failed, left }: ProxyHeaderCallbacks): void {
  const header = new ProxyHeader()
  const take = (piece: Buffer): void => {
    try {
      const whole = header.add(piece)
      if (whole === null) return
      stop()
      if (whole.rest.length > 0) socket.unshift(whole.rest)
      named(whole.caller)
    } catch {
      stop()
      failed()
    }
  }
  const end = (): void => {
    stop()
    if (header.begun) failed()
    else left()
  }
  const stop = (): void => {
    socket.pause()
    socket.off('data', take).off('end', end).off('error', end)
  }
  socket.on('data', take).on('end', end).on('error', end)
  socket.resume()
}

const MAX_ADDRESSES = 10_000

export type HandshakeFault =
  | FlightFault
  | 'handshake_failed'
  | 'handshake_timeout'
  | 'plain_http'
  | 'proxy_protocol'
  | 'too_many_handshakes'

interface SocketEndpoints {
  readonly remoteAddress: string
  readonly remotePort: number | undefined
  readonly remoteFamily: string | undefined
  readonly localAddress: string | undefined
  readonly localPort: number | undefined
}

export interface TlsAcceptOptions {
  /** The certificate to show, and all else of TLS, in force for the next handshake. */
  readonly context: () => SecureContext
  /** The time that a client may let the gateway wait until TLS stands, all together. ms. */
  readonly handshakeMs: number
  /** Tells the balancers, whose connections begin with the PROXY protocol. Null: there are none. */
  readonly isBalancer: ((address: string) => boolean) | null
  /** The whole answer to a client that speaks HTTP without TLS. */
  readonly plainHttp: string
  /** The connections that may be open at once. Default: as many as come. */
  readonly connections?: ConnectionLimit | undefined
  /** False: clients are not asked for a certificate. Default true. */
  readonly asksCertificate?: boolean
  /** The time in which a client may go on sending after its answer. ms. */
  readonly lingerMs: number
  /** True: TLS lies on the socket itself, and writes to it; false: on a stream of ours ({@link canTap}). */
  readonly direct: boolean
  /** Called with each handshake that did not come to its end, unless the client just left. */
  readonly onFault: (why: HandshakeFault) => void
}

/**
 * Takes a server's connections from TCP to TLS in the place of Node's own listener, so that the handshakes of
 * strangers do not take the loop (docs/threats.md#a1). Does NOT verify certificates: the pin decides. Returns
 * a function that ends the handshakes under way, and the connections that linger.
 */
export function acceptTlsConnections(
  server: Server,
  {
    context,
    handshakeMs,
    lingerMs,
    direct,
    asksCertificate = true,
    isBalancer,
    plainHttp,
    onFault,
    connections = new ConnectionLimit(UNLIMITED_CONNECTIONS),
  }: TlsAcceptOptions,
): () => void {
  const turns = new LoopScheduler()
  const handshakes = new PendingHandshakes(Math.ceil(connections.limits.maxConnections / 2), handshakeMs)
  const senders = boundedCache<SenderCost>(MAX_ADDRESSES)
  const lingering = new LingeringConnections({ ...LINGER_LIMITS, lingerMs })

  const admit = (socket: Socket): void => {
    turns.accepted()
    const { remoteAddress, remotePort, remoteFamily, localAddress, localPort } = socket
    // Gone already.
    if (remoteAddress === undefined) return void socket.destroy()
    const place = connections.enter(() => socket.destroy())
    if (!place) return void socket.destroy()
    socket.once('close', () => connections.leave(place))
    const ends = { remoteAddress, remotePort, remoteFamily, localAddress, localPort }
    if (isBalancer?.(remoteAddress)) hearOf(socket, ends, place)
    else shake(socket, ends, place)
  }

  const senderAt = (address: string): SenderCost => {
    const sender = senders.get(address) ?? new SenderCost()
    senders.set(address, sender)
    return sender
  }

  /** Lets a balancer say whose connection this is. Until then it is the balancer's own. */
  const hearOf = (socket: Socket, own: SocketEndpoints, place: ConnectionPlace): void => {
    const end = (why: HandshakeFault): void => {
      if (!socket.destroyed) onFault(why)
      socket.destroy()
    }
    const address = senderOf(own.remoteAddress)
    const steps = { begin: () => {}, proceed: () => {}, end }
    const pending = handshakes.enterBegun(address, senderAt(address), steps)
    socket.once('close', () => handshakes.over(pending))
    awaitProxyHeader(socket, {
      named: (caller) => {
        handshakes.over(pending)
        shake(socket, { ...own, ...caller }, place, pending.ticks)
      },
      failed: () => end('proxy_protocol'),
      left: () => socket.destroy(),
    })
  }

  /** `ticks`: what is left of the client's time, if a part is gone. */
  const shake = (socket: Socket, ends: SocketEndpoints, place: ConnectionPlace, ticks?: number): void => {
    const address = senderOf(ends.remoteAddress)
    let inbound: InboundStream | null = null
    const steps: HandshakeSteps = {
      begin: () => {
        inbound = receive(socket, ends, place, pending)
      },
      proceed: () => inbound?.proceed(),
      end: (why) => {
        if (!socket.destroyed) onFault(why)
        if (inbound) inbound.destroy()
        else socket.destroy()
      },
    }
    const pending = handshakes.enter(address, senderAt(address), steps, ticks)
    socket.once('close', () => handshakes.over(pending))
    // One whose PROXY header was read may end, or break, before it is read on.
    socket.once('end', () => {
      if (!inbound) socket.destroy()
    })
    socket.on('error', () => {})
  }

  const receive = (
    socket: Socket,
    ends: SocketEndpoints,
    place: ConnectionPlace,
    pending: PendingHandshake,
  ): InboundStream => {
    const { address, sender } = pending.crowd
    let reader: RecordReader | null = null
    const flight = new ClientFlight(() => reader, asksCertificate)
    const inbound: InboundStream = new InboundStream(socket, turns, sender, {
      flight,
      begin: (first) => begin(first),
      heard: () => handshakes.heard(pending),
      answered: () => handshakes.answered(pending),
      linger: () => {
        place.isProtected = false
        lingering.add(socket, address)
      },
    })
    const end = (why: HandshakeFault): void => {
      if (inbound.destroyed) return
      if (inbound.isHandshake) onFault(why)
      inbound.destroy()
    }
    inbound.on('error', (error) => {
      if (error instanceof FlightError) onFault(error.fault)
    })
    inbound.once('close', () => handshakes.over(pending))

    const refusePlain = (): void => {
      onFault('plain_http')
      inbound.linger()
      inbound.end(plainHttp, () => inbound.destroy())
    }

    /** Refuses connections by their first bytes. Returns true for all else, which is OpenSSL's to judge. */
    const isOfTls = (first: Buffer): boolean => {
      if (beginsProxyHeader(first)) end('proxy_protocol')
      else if (isUpperCase(first[0] ?? 0)) refusePlain()
      else return true
      return false
    }

    const linger = (tls: TLSSocket): void => {
      tls.pause()
      tls.destroySoon = () => {
        place.isProtected = false
        if (tls.readableEnded) TLSSocket.prototype.destroySoon.call(tls)
        else lingering.add(tls, address)
      }
    }

    const begin = (first: Buffer): boolean => {
      if (first[0] !== HANDSHAKE && !isOfTls(first)) return false
      const tls = new TLSSocket(direct ? socket : inbound, {
        isServer: true,
        secureContext: context(),
        requestCert: asksCertificate,
        rejectUnauthorized: false,
        ALPNProtocols: ['http/1.1'],
      })
      if (direct) inbound.giveTo(tls)
      // Not so for its socket: TLS has a last word when its client has ended.
      tls.allowHalfOpen = false
      tls.on('keylog', function listen(line: Buffer) {
        const secret = clientSecretIn(line)
        if (!secret) return
        tls.off('keylog', listen)
        reader = new RecordReader(tls.getCipher().standardName, secret)
      })
      // Errors of TLS: before and after the handshake. Nobody can be told but by the end.
      tls.on('_tlsError', (error) => (isOfSystem(error) ? inbound.destroy() : end('handshake_failed')))
      tls.on('error', () => {})
      tls.once('secure', () => {
        handshakes.finish(pending)
        inbound.established()
        const known = {
          [CONNECTION_PLACE]: place,
          [LINGER]: () => (direct ? linger(tls) : inbound.linger()),
        }
        Object.assign(tls, known satisfies PlacedConnection & LingerableConnection)
        place.isProtected = false
        // TLS over anything but a socket of TCP does not know them.
        for (const [name, value] of Object.entries(ends)) Object.defineProperty(tls, name, { value })
        server.emit('secureConnection', tls)
      })
      return true
    }
    return inbound
  }

  server.removeAllListeners('connection')
  server.on('connection', admit)
  return () => {
    handshakes.endAll()
    lingering.endAll()
  }
}

/** Tells an error of the connection, such as a client that has left, from one of TLS. */
const isOfSystem = (error: Error): boolean => 'syscall' in error

/** The first byte of every client's first record (RFC 8446 §5.1). */
const HANDSHAKE = 22

/** Tells the first byte of a method of HTTP: no record of TLS begins with one (RFC 8446 §5.1). */
const isUpperCase = (byte: number): boolean => byte >= 0x41 && byte <= 0x5a
