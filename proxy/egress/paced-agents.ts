import { type AgentOptions, type ClientRequestArgs, Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import { connect, type NetConnectOpts, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { Inbound, Sender, Turns } from '../tls/inbound.ts'

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
    const socket = new Inbound(connect(where as NetConnectOpts), this.#turns, new Sender())
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
    return paced(connect(options as NetConnectOpts), this.#turns)
  }
}

type Created = (error: Error | null, stream: Duplex) => void

/** What Node's client asks of a socket beside its bytes. */
const ASKED = ['setTimeout', 'setKeepAlive', 'setNoDelay', 'ref', 'unref'] as const

/** Makes a stream for Node's client of a socket, which answers what is asked of one. */
function paced(socket: Socket, turns: Turns): Duplex {
  const inbound = new Inbound(socket, turns, new Sender())
  for (const name of ASKED) Object.defineProperty(inbound, name, { value: socket[name].bind(socket) })
  Object.defineProperty(inbound, 'bytesRead', { get: Reflect.get.bind(null, socket, 'bytesRead') })
  for (const event of ['connect', 'timeout']) socket.on(event, inbound.emit.bind(inbound, event))
  return inbound
}
