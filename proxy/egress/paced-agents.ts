import { type AgentOptions, type ClientRequestArgs, Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import { connect, type NetConnectOpts, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { Inbound } from '../tls/inbound.ts'
import { Sender, Turns } from '../tls/turns.ts'

export interface PacedAgents {
  readonly http: HttpAgent
  readonly https: HttpsAgent
}

/**
 * Makes Node's two agents for upstreams whose manner of sending must not hold up the loop: what comes in tiny
 * pieces is handed on a little at a time (docs/threats.md#a3). Else they are Node's own.
 */
export function pacedAgents(options: AgentOptions): PacedAgents {
  const turns = new Turns()
  return { http: new PacedHttpAgent(options, turns), https: new PacedHttpsAgent(options, turns) }
}

class PacedHttpsAgent extends HttpsAgent {
  readonly #turns: Turns

  constructor(options: AgentOptions, turns: Turns) {
    super(options)
    this.#turns = turns
  }

  // The request decides about the connection's time-out, so TLS has it and the socket below has none.
  override createConnection(options: ClientRequestArgs, callback?: Created): Duplex | null | undefined {
    const { timeout: _, ...where } = options
    const socket = new Inbound(connect(where as NetConnectOpts), this.#turns, null, new Sender())
    return super.createConnection({ ...options, socket } as ClientRequestArgs, callback)
  }
}

class PacedHttpAgent extends HttpAgent {
  readonly #turns: Turns

  constructor(options: AgentOptions, turns: Turns) {
    super(options)
    this.#turns = turns
  }

  override createConnection(options: ClientRequestArgs): Duplex {
    return new PacedSocket(connect(options as NetConnectOpts), this.#turns)
  }
}

type Created = (error: Error | null, stream: Duplex) => void

/** What Node's client asks of a socket, beside its bytes. */
class PacedSocket extends Inbound {
  readonly #socket: Socket

  constructor(socket: Socket, turns: Turns) {
    super(socket, turns, null, new Sender())
    this.#socket = socket
    socket.on('connect', () => this.emit('connect'))
    socket.on('timeout', () => this.emit('timeout'))
  }

  get bytesRead(): number {
    return this.#socket.bytesRead
  }

  get timeout(): number | undefined {
    return this.#socket.timeout
  }

  setTimeout(ms: number): this {
    this.#socket.setTimeout(ms)
    return this
  }

  setKeepAlive(on: boolean, delayMs: number): this {
    this.#socket.setKeepAlive(on, delayMs)
    return this
  }

  setNoDelay(on: boolean): this {
    this.#socket.setNoDelay(on)
    return this
  }

  ref(): this {
    this.#socket.ref()
    return this
  }

  unref(): this {
    this.#socket.unref()
    return this
  }
}
