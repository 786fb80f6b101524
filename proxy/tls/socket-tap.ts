import type { Socket } from 'node:net'
import { createSecureContext, TLSSocket } from 'node:tls'

// All that is used of Node and is no public interface stands in this file
// (docs/decisions/036-tls-on-the-socket.md).

interface StreamHandle {
  readStart(): number
  readStop(): number
}

interface TlsHandle extends StreamHandle {
  receive(bytes: Buffer): void
}

/** A socket's `_handle`, which it has until it is closed. */
interface HandleOwner<Handle> {
  readonly _handle: Handle | null
}

type HttpParser = Record<number, (bytes: Buffer) => void> & {
  initialize(type: number, resource: object): void
  execute(bytes: Buffer): unknown
  consume(handle: StreamHandle): void
}

interface HttpParserModule {
  readonly HTTPParser: { new (): HttpParser; readonly REQUEST: number; readonly kOnBody: number }
}

/** The head of a request whose body ends after 8 PiB: all that follows it is handed on as it is. */
const HEAD = Buffer.from(`POST / HTTP/1.1\r\ncontent-length: ${2 ** 53}\r\n\r\n`)

/**
 * Makes what hears a socket before TLS does, which lies below it. Node has one listener only that tells those
 * below when their writes are done: the parser of HTTP.
 */
function listener(take: (bytes: Buffer) => void): HttpParser {
  const { HTTPParser } = process.getBuiltinModule('_http_common') as HttpParserModule
  const parser = new HTTPParser()
  parser.initialize(HTTPParser.REQUEST, {})
  parser.execute(HEAD)
  parser[HTTPParser.kOnBody] = take
  return parser
}

/** Node's own functions: on the way of a call nothing else is between the socket and TLS. */
export interface SocketTap {
  /** Each is called in turn with the other. Returns 0, or what is wrong. */
  readonly start: () => number
  readonly stop: () => number
  /** Gives bytes to TLS. Does nothing once TLS has ended. */
  readonly give: (bytes: Buffer) => void
  /** A listener that nobody holds is collected. */
  readonly listener: object
}

/**
 * Lets a socket that TLS was just laid on be heard before TLS: what is read goes to `take`, and to TLS when it
 * is given to it. What TLS writes goes to the socket without a detour. `want`: called when TLS wants more, and
 * when for now it does not. Nothing is read before `start`.
 */
export function tapSocket(
  socket: Socket,
  tls: TLSSocket,
  take: (bytes: Buffer) => void,
  want: (more: boolean) => void,
): SocketTap {
  const handle = handleOf<StreamHandle>(socket)
  const ssl = handleOf<TlsHandle>(tls)
  handle.readStop()
  const heard = listener(take)
  heard.consume(handle)
  const wanting = (more: boolean) => (): number => {
    want(more)
    return 0
  }
  ssl.readStart = wanting(true)
  ssl.readStop = wanting(false)
  return {
    start: handle.readStart.bind(handle),
    stop: handle.readStop.bind(handle),
    give: ssl.receive.bind(ssl),
    listener: heard,
  }
}

function handleOf<Handle extends StreamHandle>(socket: Socket): Handle {
  const { _handle } = socket as unknown as HandleOwner<Handle>
  if (_handle === null) throw new Error('the socket is closed')
  return _handle
}

/** Tells whether this Node has all that a {@link tapSocket} uses, as it uses it. */
export function canTap(): boolean {
  try {
    let heard = ''
    listener((bytes) => {
      heard += bytes.toString('hex')
    }).execute(Buffer.from('160301', 'hex'))
    return heard === '160301' && isTlsHandle()
  } catch {
    return false
  }
}

function isTlsHandle(): boolean {
  // Without a socket it makes one of its own, which is connected to nothing.
  const tls = new TLSSocket(undefined as unknown as Socket, {
    isServer: true,
    secureContext: createSecureContext({ ca: [] }),
  })
  tls.on('error', () => {})
  const ssl: Partial<TlsHandle> & { readonly _parent?: Partial<StreamHandle> } = handleOf<TlsHandle>(tls)
  const methods = [ssl.receive, ssl.readStart, ssl.readStop, ssl._parent?.readStart, ssl._parent?.readStop]
  tls.destroy()
  return methods.every((method) => typeof method === 'function')
}
