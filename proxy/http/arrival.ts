import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { TLSSocket } from 'node:tls'
import { thumbprintOf } from '../../certs/x509/thumbprint.ts'
import type { Arrival, Peer } from '../../plugins/plugin.ts'
import { readBody } from './body.ts'

/** Splits a request target at its `?`. Nothing is decoded: routes match the raw path (SECURITY T17). */
export function splitTarget(target: string): { readonly path: string; readonly query: string } {
  const mark = target.indexOf('?')
  return mark < 0
    ? { path: target, query: '' }
    : { path: target.slice(0, mark), query: target.slice(mark + 1) }
}

interface Door {
  readonly req: IncomingMessage
  readonly res: ServerResponse
  readonly at: number
  readonly params: Readonly<Record<string, string>>
  readonly signal: AbortSignal
}

/** Makes the facts of a request as it stands at the door. */
export function arrive({ req, res, at, params, signal }: Door): Arrival {
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

// The time first: rows of one moment then lie side by side in the ledger's index. More than 70 random bits after it.
const requestId = (at: number): string =>
  `req_${at.toString(16).padStart(12, '0')}${randomUUID().replaceAll('-', '').slice(12)}`

// The certificate of a connection never changes (no renegotiation, no post-handshake authentication), so it is read
// once. What can change (its pin, its principal, the time) is asked on every request.
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
