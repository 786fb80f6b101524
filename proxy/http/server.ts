import { constants } from 'node:crypto'
import type { RequestListener } from 'node:http'
import { createServer, type Server } from 'node:https'
import type { Duplex } from 'node:stream'
import type { SecureContextOptions } from 'node:tls'
import { Refusal, type RefusalReason } from '../../plugins/refusal.ts'
import { refusalBody } from './refusal.ts'

/** How long each slow thing may take. ms. Node's defaults protect nobody (SECURITY T9). */
export interface Timers {
  /** From TCP accept to the end of the TLS handshake. */
  readonly handshakeMs: number
  /** From the first byte of a request to the end of its headers. */
  readonly headersMs: number
  /** From the first byte of a request to the end of its body. */
  readonly requestMs: number
  /** Between two requests of one connection. Longer than the SDKs' pools keep theirs. */
  readonly keepAliveMs: number
  /** How often the limits above are looked at: each may be exceeded by so much. */
  readonly checkMs: number
  /** How long a client may read nothing of an answer. Watched in `proxy/http/send.ts`. */
  readonly writeStallMs: number
}

export const TIMERS: Timers = {
  handshakeMs: 5_000,
  headersMs: 10_000,
  requestMs: 120_000,
  keepAliveMs: 75_000,
  checkMs: 500,
  writeStallMs: 60_000,
}

export interface TlsMaterial {
  /** Leaf and intermediate. PEM. */
  readonly certPem: string
  readonly keyPem: string
  /** CAs that client certificates may chain to: both tiers, for clients that send their leaf alone. PEM. */
  readonly clientCaPems: readonly string[]
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3'
}

/** Requests of one connection that may be under way at once (pipelining, SECURITY F-23). */
const PIPELINED = 100

/**
 * The runtime's listener: raw `node:https`. A client certificate is asked for and not required here, because operators'
 * callers have none and because a refusal over HTTP can say why; the pin decides. No session tickets: a resumed session
 * would outlive its certificate (SECURITY T5). No renegotiation, HTTP/1.1 only.
 */
export function createTlsServer(tls: TlsMaterial, timers: Timers, handle: RequestListener): Server {
  const server = createServer({
    ...secureContext(tls),
    requestCert: true,
    rejectUnauthorized: false,
    ALPNProtocols: ['http/1.1'],
    handshakeTimeout: timers.handshakeMs,
    headersTimeout: timers.headersMs,
    requestTimeout: timers.requestMs,
    keepAliveTimeout: timers.keepAliveMs,
    connectionsCheckingInterval: timers.checkMs,
    insecureHTTPParser: false,
    // The framing gate asks for it. Node would answer by itself, close, and still serve what was pipelined behind.
    requireHostHeader: false,
  })
  attach(server, handle)
  return server
}

/** What `setSecureContext` needs to swap the server's certificate under way. */
export function secureContext({
  certPem,
  keyPem,
  clientCaPems,
  minVersion,
}: TlsMaterial): SecureContextOptions {
  return {
    cert: certPem,
    key: keyPem,
    ca: [...clientCaPems],
    minVersion,
    ciphers: CIPHERS,
    honorCipherOrder: true,
    secureOptions: constants.SSL_OP_NO_TICKET | constants.SSL_OP_NO_RENEGOTIATION,
  }
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

/** Wires requests, `Expect`, and what the parser refuses, to one place each. Also used by the control socket. */
export function attach(server: Pick<Server, 'on'>, handle: RequestListener): void {
  const underWay = new WeakMap<object, number>()
  const answeredEarly = new WeakSet<object>()
  const counted: RequestListener = (req, res) => {
    const outstanding = (underWay.get(req.socket) ?? 0) + 1
    if (outstanding > PIPELINED) return void req.socket.destroy()
    underWay.set(req.socket, outstanding)
    res.once('close', () => {
      underWay.set(req.socket, (underWay.get(req.socket) ?? 1) - 1)
      if (!req.complete) answeredEarly.add(req.socket)
    })
    handle(req, res)
  }
  server.on('request', counted)
  // The body is asked for only when a plugin reads it: a stranger's upload is refused before it is sent.
  server.on('checkContinue', counted)
  // Refused by the framing gate, in its turn: to write it out here would be to write into another answer.
  server.on('checkExpectation', counted)
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
    const { code = '' } = error
    // In the middle of an answer a second status line would be read as part of it. And what TLS complains of has no
    // connection to answer on: an answer would wait for a handshake that never ends (SECURITY T9).
    const answerable = code.startsWith('HPE_') || code === 'ERR_HTTP_REQUEST_TIMEOUT'
    // Nor is a request answered twice, whose body goes wrong after its answer: the second would be taken for the next one's.
    const busy = (underWay.get(socket) ?? 0) > 0 || answeredEarly.has(socket)
    if (!answerable || busy) return void socket.destroy()
    refuseRaw(socket, PARSER_FAULTS[code] ?? 'bad_request')
  })
}

const PARSER_FAULTS: Readonly<Record<string, RefusalReason>> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'body_timeout',
}

/** Refuses what never became a request, and closes: the connection's framing is not to be trusted any more. */
function refuseRaw(socket: Duplex | null, reason: RefusalReason): void {
  if (!socket?.writable) return void socket?.destroy()
  const refusal = new Refusal(reason)
  const body = refusalBody(refusal, 'req_none')
  socket.end(
    `HTTP/1.1 ${refusal.status} Refused\r\ncontent-type: application/json\r\ncache-control: no-store\r\n` +
      `x-should-retry: false\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
    () => socket.destroy(),
  )
}
