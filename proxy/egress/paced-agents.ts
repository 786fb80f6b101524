import { isIPv6, connect as netConnect, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { Agent, type buildConnector, errors } from 'undici'
import type { HostNameCache } from '../../db/host-names/kept-names.ts'
import { InboundStream, LoopScheduler, SenderCost } from '../tls/inbound.ts'
import {
  connectTimeoutError,
  connectTlsOver,
  POOL_IDLE_MS,
  TCP_PROBE_MS,
  trackOpening,
  urlPort,
} from './agent.ts'
import { type EgressProxy, ProxyTunnelError, requestTunnel } from './proxy-tunnel.ts'

/**
 * Agents for upstreams whose tiny pieces must not hold up the loop (docs/threats.md#a3). HTTP/1.1, one
 * request at a time on a connection. TLS is always verified, by the URL's name. Redirects are not followed.
 * Does NOT judge addresses: an operator chose them.
 */
export class PacedAgents {
  /** Keyed by the limit of {@link open}, if no proxy is used. */
  readonly byLimit = new Map<number, Agent>()
  readonly #proxied = new Map<string, Agent>()
  /** True while undici takes over a new connection, and sends the waiting requests. */
  isNew = false
  readonly turns: LoopScheduler
  readonly #keepAlive: boolean
  readonly #names: Pick<HostNameCache, 'lookup'>

  constructor(
    { keepAlive, names }: { readonly keepAlive: boolean; readonly names: Pick<HostNameCache, 'lookup'> },
    turns = new LoopScheduler(),
  ) {
    this.#keepAlive = keepAlive
    this.#names = names
    this.turns = turns
  }

  through(proxy: EgressProxy, connectMs: number): Agent {
    const { shown, authorization } = proxy
    const key = `${connectMs} ${shown} ${authorization}`
    const agent = this.#proxied.get(key) ?? this.#agent(connectMs, proxy)
    this.#proxied.set(key, agent)
    return agent
  }

  /** Makes the agent of a limit. `connectMs`: the time until a connection stands. */
  open(connectMs: number): Agent {
    const agent = this.#agent(connectMs, null)
    this.byLimit.set(connectMs, agent)
    return agent
  }

  #agent(connectMs: number, proxy: EgressProxy | null): Agent {
    const connect = connector(connectMs, this.turns, this.#names, proxy)
    return new Agent({
      connect: (target, callback) => {
        connect(target, (...result) => {
          this.isNew = true
          callback(...result)
          this.isNew = false
        })
      },
      allowH2: false,
      pipelining: this.#keepAlive ? 1 : 0,
      keepAliveTimeout: POOL_IDLE_MS,
      keepAliveMaxTimeout: POOL_IDLE_MS,
    })
  }

  /** Drops the pooled connections. Requests under way go on. */
  close(): void {
    for (const agent of [...this.byLimit.values(), ...this.#proxied.values()]) void agent.close()
  }
}

function connector(
  connectMs: number,
  turns: LoopScheduler,
  { lookup }: Pick<HostNameCache, 'lookup'>,
  proxy: EgressProxy | null,
): buildConnector.connector {
  const sessions = new Map<string, Buffer>()
  return ({ hostname, protocol, port }, callback) => {
    const origin = `${hostname}:${port}`
    const secure = protocol === 'https:'
    const tcp = netConnect({
      host: proxy?.hostname ?? hostname,
      port: proxy?.port ?? urlPort(protocol, port),
      lookup,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: TCP_PROBE_MS,
    })
    let opening: Duplex = tcp
    let tunnelling = proxy
    const late = setTimeout(() => {
      const inTunnel = tunnelling && new ProxyTunnelError(tunnelling, 'gave no tunnel in time')
      opening.destroy(inTunnel ?? connectTimeoutError(hostname))
    }, connectMs)
    const opened = trackOpening((reason) => opening.destroy(reason))
    let settled = false
    const settle = (error: Error | null, socket: Duplex | null): void => {
      clearTimeout(late)
      opened()
      if (settled) return
      settled = true
      // A stream has all that undici uses of it.
      if (error) callback(error, null)
      else callback(null, socket as Socket)
    }
    /** Lays pacing, and TLS, over a connection to the upstream, which stands already or is about to. */
    const lay = (socket: Socket, stands: boolean): void => {
      const inbound = new UpstreamInbound(socket, turns, new SenderCost())
      const session = sessions.get(origin)
      const stream = secure ? connectTlsOver(inbound, hostname, { session }) : inbound
      opening = stream
      tunnelling = null
      if (secure) stream.on('session', (latest: Buffer) => sessions.set(origin, latest))
      // Stay: between here and the moment when undici takes the connection over, nobody else would hear it
      // fail.
      stream.on('error', (error) => settle(error, null))
      stream.once('close', () => settle(new Error('the connection was closed before it stood'), null))
      const ready = (): void => {
        inbound.stands = true
        settle(null, stream)
      }
      if (secure) stream.once('secureConnect', ready)
      else if (stands) ready()
      else socket.once('connect', ready)
      if (stands) socket.resume()
    }
    if (proxy === null) lay(tcp, false)
    else {
      const target = `${isIPv6(hostname) ? `[${hostname}]` : hostname}:${urlPort(protocol, port)}`
      opening = tunnel(tcp, proxy, target, (failure, socket) => {
        if (failure) settle(failure, null)
        else lay(socket, true)
      })
    }
  }
}

/** Opens a tunnel over a connection to a proxy that is being made. Returns the stream that ends it all. */
function tunnel(
  tcp: Socket,
  proxy: EgressProxy,
  target: string,
  done: (failure: ProxyTunnelError | null, socket: Socket) => void,
): Socket {
  const socket = proxy.secure ? connectTlsOver(tcp, proxy.hostname) : tcp
  let over = false
  const end = (failure: ProxyTunnelError | null): void => {
    // An error of the tunnel is then one of the upstream's.
    if (over) return
    over = true
    if (failure) socket.destroy()
    done(failure, socket)
  }
  const failed = (error: Error): void => {
    const isTold = error instanceof ProxyTunnelError
    end(isTold ? error : new ProxyTunnelError(proxy, `could not be reached (${codeOf(error)})`, null, error))
  }
  for (const stream of new Set([tcp, socket])) {
    stream.on('error', failed)
    stream.once('close', () => failed(new Error('closed')))
  }
  socket.once(proxy.secure ? 'secureConnect' : 'connect', () => requestTunnel(socket, proxy, target, end))
  return socket
}

const codeOf = (error: Error): string => ('code' in error ? String(error.code) : error.message)

class UpstreamInbound extends InboundStream {
  stands = false

  /**
   * undici takes a reset of an open connection by Node's name for the end of an answer that only its
   * connection ends, and fails requests with it that it has not sent yet.
   */
  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    const code = error && 'code' in error ? String(error.code) : ''
    const isReset = this.stands && (code === 'ECONNRESET' || code === 'EPIPE')
    super._destroy(isReset ? new errors.SocketError(code) : error, done)
  }
}
