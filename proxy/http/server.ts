import { constants } from 'node:crypto'
import type { RequestListener } from 'node:http'
import { createServer, type Server } from 'node:https'
import { createSecureContext, type SecureContext } from 'node:tls'
import { Refusal } from '../../plugins/refusal.ts'
import { acceptTlsConnections, type TlsAcceptOptions } from '../tls/doorkeeper.ts'
import { LINGER_LIMITS } from '../tls/lingering.ts'
import { attachRequestListener, rawRefusal } from './framing.ts'
import { MAX_ROOM_WAIT_MS } from './memory/waiting-line.ts'

/** The time limits of a connection. ms. Node's defaults protect nobody (docs/threats.md#t9). */
export interface ConnectionTimers {
  /** The time that a client may let the gateway wait until TLS stands, all together. */
  readonly handshakeMs: number
  /** The time from the first byte of a request to the end of its headers. */
  readonly headersMs: number
  /** The time from the first byte of a request to the end of its body. */
  readonly requestMs: number
  /** The time that a body waits unread for room in memory. */
  readonly roomMs: number
  /** The time between two requests of one connection; longer than Go's clients keep theirs, for 90 s. */
  readonly keepAliveMs: number
  /** The interval at which the limits above are checked: each may be exceeded by so much. */
  readonly checkMs: number
  /** The time that a client may read nothing of an answer. Watched in `proxy/http/send.ts`. */
  readonly writeStallMs: number
  /** The time that a client may go on sending after its answer, which ends the connection. */
  readonly lingerMs: number
}

export const DEFAULT_TIMERS: ConnectionTimers = {
  handshakeMs: 5_000,
  headersMs: 10_000,
  requestMs: 120_000,
  roomMs: MAX_ROOM_WAIT_MS,
  keepAliveMs: 95_000,
  checkMs: 500,
  writeStallMs: 60_000,
  lingerMs: LINGER_LIMITS.lingerMs,
}

export interface TlsMaterial {
  /** Leaf and intermediate. PEM. */
  readonly certPem: string
  readonly keyPem: string
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3'
}

/** The silence on a caller's connection after which TCP asks whether the caller is still there. ms. */
const CALLER_PROBE_MS = 60_000

export interface TlsServer {
  readonly server: Server
  readonly use: (tls: TlsMaterial) => void
  readonly destroy: () => void
}

/**
 * Makes the runtime's listener: raw `node:https`. A client certificate is requested and not required here,
 * because a refusal over HTTP can say why; the pin decides. No session tickets: a resumed session would
 * outlive its certificate (docs/threats.md#t5). No renegotiation, HTTP/1.1 only.
 */
export function createTlsServer(
  tls: TlsMaterial,
  timers: ConnectionTimers,
  handle: RequestListener,
  door: Pick<TlsAcceptOptions, 'asksCertificate' | 'connections' | 'direct' | 'isBalancer' | 'onFault'>,
): TlsServer {
  const server = createServer({
    // The door sees a connection's first bytes before TLS does, and does what else TLS would be told here.
    pauseOnConnect: true,
    // TLS ends a connection's second half after its last word.
    allowHalfOpen: true,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: CALLER_PROBE_MS,
    headersTimeout: timers.headersMs,
    requestTimeout: timers.requestMs,
    keepAliveTimeout: timers.keepAliveMs,
    connectionsCheckingInterval: timers.checkMs,
    insecureHTTPParser: false,
    // The framing gate requires it. Node would answer by itself, close, and still serve the requests
    // pipelined after it.
    requireHostHeader: false,
  })
  let context = secureContext(tls)
  const endHandshakes = acceptTlsConnections(server, {
    context: () => context,
    handshakeMs: timers.handshakeMs,
    lingerMs: timers.lingerMs,
    plainHttp: PLAIN_HTTP,
    ...door,
  })
  attachRequestListener(server, handle, door.connections)
  return {
    server,
    use: (next) => {
      context = secureContext(next)
    },
    destroy: () => {
      endHandshakes()
      server.closeAllConnections()
    },
  }
}

const PLAIN_HTTP = rawRefusal(
  new Refusal('bad_request', { message: 'This port speaks HTTPS: use https:// in the URL.' }),
)

function secureContext({ certPem, keyPem, minVersion }: TlsMaterial): SecureContext {
  return createSecureContext({
    cert: certPem,
    key: keyPem,
    // None is named in the handshake (RFC 8446 §4.2.4, RFC 5246 §7.4.4): Go and Java send a certificate only
    // if it chains to one that is named, and not all can be known here.
    ca: [],
    minVersion,
    ciphers: CIPHERS,
    honorCipherOrder: true,
    ecdhCurve: GROUPS,
    secureOptions: constants.SSL_OP_NO_TICKET | constants.SSL_OP_NO_RENEGOTIATION,
  })
}

// TLS 1.3's three, and for the explicit TLS 1.2 setting only AEAD with forward secrecy (BCP 195).
const CIPHERS = [
  'TLS_AES_128_GCM_SHA256',
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-ECDSA-CHACHA20-POLY1305',
].join(':')

// Groups that cost the server a millisecond or two; proposing one costs a client nothing. By default OpenSSL
// takes finite fields and P-521 too (docs/threats.md#a1).
const GROUPS = 'X25519MLKEM768:X25519:P-256:P-384'
