import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { TLSSocket } from 'node:tls'
import { thumbprintOf } from '../../certs/x509/thumbprint.ts'
import { Collector } from '../../plugins/collect.ts'
import type { Arrival, Peer } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'

/**
 * Splits a request target at its `?`. Nothing is decoded: routes match the raw path (docs/threats.md#t17).
 */
export function splitTarget(target: string): { readonly path: string; readonly query: string } {
  const mark = target.indexOf('?')
  return mark < 0
    ? { path: target, query: '' }
    : { path: target.slice(0, mark), query: target.slice(mark + 1) }
}

export interface Incoming {
  readonly req: IncomingMessage
  readonly res: ServerResponse
  readonly at: number
  readonly params: Readonly<Record<string, string>>
  readonly signal: AbortSignal
}

/** Makes the first facts of a request, before any plugin has run. */
export function arrive({ req, res, at, params, signal }: Incoming): Arrival {
  const { path, query } = splitTarget(req.url ?? '/')
  return {
    id: requestId(at),
    at,
    method: req.method ?? '',
    path,
    query,
    params,
    headers: req.headers,
    remoteAddress: req.socket.remoteAddress ?? '',
    peer: req.socket instanceof TLSSocket ? peerOf(req.socket) : null,
    readBody: (limit) => readBody(req, res, limit),
    answer: {},
    signal,
  }
}

// The time first: rows of one moment then lie side by side in the ledger's index. More than 70 random bits
// after it.
const requestId = (at: number): string =>
  `req_${at.toString(16).padStart(12, '0')}${randomUUID().replaceAll('-', '').slice(12)}`

// The certificate of a connection never changes (no renegotiation, no post-handshake authentication), so it
// is read once. What can change (its pin, its principal, the time) is checked on every request.
const peers = new WeakMap<TLSSocket, Peer | null>()

function peerOf(socket: TLSSocket): Peer | null {
  const known = peers.get(socket)
  if (known !== undefined) return known
  const certificate = socket.getPeerX509Certificate()
  const peer = certificate
    ? {
        certificate,
        thumbprint: thumbprintOf(certificate.raw),
        notBefore: certificate.validFromDate.getTime(),
        notAfter: certificate.validToDate.getTime(),
      }
    : null
  peers.set(socket, peer)
  return peer
}

/**
 * Reads the whole body of a request. Refuses with `body_too_large` past `limit` bytes, `bad_request` where it
 * breaks off.
 */
function readBody(req: IncomingMessage, res: ServerResponse, limit: number): Promise<Buffer> {
  const length = req.headers['content-length']
  const declared = length === undefined ? undefined : Number(length)
  if (declared !== undefined && declared > limit) return Promise.reject(tooLarge(limit))
  // The client hung up while an earlier plugin ran: no further event of the request will come.
  if (req.destroyed) return Promise.reject(brokenOff())
  // The client waits for this before it sends: only now is the body wanted.
  if (req.headers.expect !== undefined) res.writeContinue()
  return new Promise((resolve, reject) => {
    const body = new Collector(limit, declared)
    req.on('data', (chunk: Buffer) => {
      if (!body.add(chunk)) reject(tooLarge(limit))
    })
    req.on('end', () => resolve(body.bytes()))
    req.on('error', (cause) => reject(brokenOff(cause)))
    req.on('close', () => {
      if (!req.complete) reject(brokenOff())
    })
  })
}

const brokenOff = (cause?: unknown): Refusal =>
  new Refusal('bad_request', { cause, message: 'The body broke off.' })

const tooLarge = (limit: number): Refusal =>
  new Refusal('body_too_large', {
    message: `The body is larger than the ${limit} bytes this endpoint accepts.`,
  })
