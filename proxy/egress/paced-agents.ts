import { connect as netConnect, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { Agent, type buildConnector, errors } from 'undici'
import type { HostNameCache } from '../../db/host-names/kept-names.ts'
import { InboundStream, LoopScheduler, SenderCost } from '../tls/inbound.ts'
import { connectTimeoutError, connectTlsOver, POOL_IDLE_MS, TCP_PROBE_MS, urlPort } from './agent.ts'
import { trackOpening } from './opening.ts'

/**
 * Agents for upstreams whose manner of sending must not hold up the loop: tiny pieces are handed on a little
 * at a time (docs/threats.md#a3). HTTP/1.1, one request at a time on a connection. TLS is always verified, by
 * the URL's name, whatever the environment says. Redirects are not followed, no proxy is used. Does NOT judge
 * addresses: an operator chose them.
 */
export class PacedAgents {
  /** Keyed by the limit of {@link open}. */
  readonly byLimit = new Map<number, Agent>()
  /** True while undici takes over a new connection, and sends the waiting requests. */
  isNew = false
  readonly turns: LoopScheduler
  readonly #keepAlive: boolean
  readonly #names: Pick<HostNameCache, 'lookup'>

  constructor({ keepAlive, names }: PacedAgentsOptions, turns = new LoopScheduler()) {
    this.#keepAlive = keepAlive
    this.#names = names
    this.turns = turns
  }

  /**
   * Makes the agent of a limit. `connectMs`: the time until a connection stands, look-up and TLS included.
   */
  open(connectMs: number): Agent {
    const connect = connector(connectMs, this.turns, this.#names)
    const agent = new Agent({
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
    this.byLimit.set(connectMs, agent)
    return agent
  }

  /** Drops the pooled connections. Requests under way go on. */
  close(): void {
    for (const agent of this.byLimit.values()) void agent.close()
  }
}

interface PacedAgentsOptions {
  readonly keepAlive: boolean
  readonly names: Pick<HostNameCache, 'lookup'>
}

function connector(
  connectMs: number,
  turns: LoopScheduler,
  { lookup }: Pick<HostNameCache, 'lookup'>,
): buildConnector.connector {
  const sessions = new Map<string, Buffer>()
  return ({ hostname, protocol, port }, callback) => {
    const origin = `${hostname}:${port}`
    const secure = protocol === 'https:'
    const tcp = netConnect({
      host: hostname,
      port: urlPort(protocol, port),
      lookup,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: TCP_PROBE_MS,
    })
    const inbound = new UpstreamInbound(tcp, turns, new SenderCost())
    const session = sessions.get(origin)
    const stream = secure ? connectTlsOver(inbound, hostname, { session }) : inbound
    if (secure) stream.on('session', (latest: Buffer) => sessions.set(origin, latest))
    const late = setTimeout(() => stream.destroy(connectTimeoutError(hostname)), connectMs)
    const opened = trackOpening((reason) => stream.destroy(reason))
    let settled = false
    const failed = (error: Error): void => {
      clearTimeout(late)
      opened()
      if (!settled) callback(error, null)
      settled = true
    }
    // Stay: between here and the moment when undici takes the connection over, nobody else would hear it
    // fail.
    stream.on('error', failed)
    stream.once('close', () => failed(new Error('the connection was closed before it stood')))
    const standing: Duplex = secure ? stream : tcp
    standing.once(secure ? 'secureConnect' : 'connect', () => {
      clearTimeout(late)
      opened()
      settled = true
      inbound.stands = true
      // A stream has all that undici uses of it.
      callback(null, stream as Socket)
    })
  }
}

/** An upstream's bytes on their way to TLS or HTTP. */
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
