import { Readable } from 'node:stream'
import { HostNameError } from '../../../db/host-names/host-name-error.ts'
import type { HangupSignal } from '../../../plugins/arrival.ts'
import { collectBytes } from '../../../plugins/collect.ts'
import type { CallPermit, CatalogPermit, CredentialPermit } from '../../../plugins/permit.ts'
import type { MemoryReservation } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { connectionCause } from '../../egress/error-words.ts'
import type { EgressProxy } from '../../egress/proxy-tunnel.ts'

export interface UpstreamTimeouts {
  /** The time until the connection stands, name look-up and TLS handshake included. ms. */
  readonly connectMs: number
  /** The time from then until the answer's head. ms, and up to a second more. */
  readonly firstByteMs: number
  /**
   * The time between two pieces of the answer, while we are ready to take them. ms, and up to a second more.
   */
  readonly idleMs: number
}

export interface UpstreamRequest {
  /** Allows it: of a granted call, or of the gateway's own reading. */
  readonly permit: CallPermit | CatalogPermit | CredentialPermit
  /** No other method: the library rewrites the framing of DELETE and OPTIONS (docs/threats.md#t1). */
  readonly method: 'GET' | 'POST'
  readonly url: URL
  /** Names and values in turn: all but `content-length` and `connection`. */
  readonly headers: readonly string[]
  /** Sent one after the other. Empty: no body. */
  readonly body: readonly Buffer[]
  readonly timeouts: UpstreamTimeouts
  readonly proxy?: EgressProxy | undefined
  /** The caller hung up: the upstream request is destroyed at once, before or during the answer. */
  readonly hangup: Pick<HangupSignal, 'gone' | 'reason' | 'onGone'>
}

/** Keyed by lower-case name. */
export type UpstreamHeaders = Readonly<Record<string, string | undefined>>

export interface UpstreamAnswer {
  readonly status: number
  /** One that stands several times is joined, or its first counts, as Node does it. */
  readonly headers: UpstreamHeaders
  /**
   * The whole of a short JSON answer of status 2xx. Else a stream, which errors, and never just ends, if the
   * answer is cut short or stalls. Somebody must read or destroy it.
   */
  readonly body: Buffer | Readable
  /** The time from the request to the head. ms. */
  readonly firstByteMs: number
}

export interface LlmUpstream {
  /** Resolves with the answer's head. Rejects with {@link UpstreamError}, or the reason of the hangup. */
  readonly call: (request: UpstreamRequest) => Promise<UpstreamAnswer>
  /** Drops the pooled connections. Requests under way go on. */
  readonly close: () => void
}

/** `connect`: no connection was made. `timeout`: no answer in time. `reset`: it broke, or was no HTTP. */
export type UpstreamErrorKind = 'connect' | 'timeout' | 'reset'

interface UpstreamErrorOptions {
  readonly cause?: unknown
  /** The request died on a pooled connection without a byte of an answer. */
  readonly stale?: boolean
}

/** A failure between us and a provider. The message is for the log: it never holds headers or bodies. */
export class UpstreamError extends Error {
  readonly kind: UpstreamErrorKind
  readonly stale: boolean

  constructor(kind: UpstreamErrorKind, message: string, { cause, stale = false }: UpstreamErrorOptions = {}) {
    super(`upstream ${kind}: ${message}`, { cause })
    this.kind = kind
    this.stale = stale
  }
}

const codeOf = (error: Error): string => ('code' in error ? String(error.code) : error.message)

/** Makes the failure of a request without a connection, with cause and cure. */
export function connectFailure(error: Error): UpstreamError {
  const code = error instanceof HostNameError ? error.message : codeOf(error)
  const cause = connectionCause(code, PROVIDER_SETTINGS)
  return new UpstreamError('connect', cause === null ? code : `${code}: ${cause}`, { cause: error })
}

const PROVIDER_SETTINGS = {
  url: 'base_url',
  certificate: 'if it demands a client certificate, it cannot be a provider here',
} as const

/** Makes the failure of a request that has gone out of undici's error. `isStale`: if its connection broke. */
export function failureOfRequest(error: Error, isStale: boolean): UpstreamError {
  const code = codeOf(error)
  if (code === 'UND_ERR_HEADERS_TIMEOUT') return new UpstreamError('timeout', 'no answer in time')
  if (code === 'UND_ERR_BODY_TIMEOUT') return new UpstreamError('timeout', 'the answer stalled')
  if (code === 'UND_ERR_SOCKET')
    return new UpstreamError('reset', error.message, { cause: error, stale: isStale })
  // The unreadable text is part of that error.
  return new UpstreamError('reset', code, code.startsWith('HPE_') ? {} : { cause: error })
}

export const hangupReason = ({ reason }: Pick<HangupSignal, 'reason'>): Error =>
  reason instanceof Error ? reason : new Refusal('client_gone')

/** Makes a body of the bytes that came, which breaks off as a longer one would have. */
export const brokenBody = (bytes: Buffer, failure: Error): Readable =>
  Readable.from(yieldThenFail(bytes, failure), { objectMode: false, highWaterMark: 1 }).on('error', () => {})

async function* yieldThenFail(bytes: Buffer, failure: Error): AsyncGenerator<Buffer> {
  if (bytes.length > 0) yield bytes
  throw failure
}

/** Reads the rest of an unwanted answer, so that its connection can be used again; cuts off a long one. */
export function discardAnswer({ body }: UpstreamAnswer, limit = 65_536): void {
  if (Buffer.isBuffer(body)) return
  let seen = 0
  body.on('data', (chunk: Buffer) => {
    seen += chunk.length
    if (seen > limit) body.destroy()
  })
}

export function abandonAnswer({ body }: UpstreamAnswer): void {
  if (!Buffer.isBuffer(body)) body.destroy()
}

/** Resolves with the whole of a body, under the conditions of `collectBytes`. */
export async function readWholeBody(
  { body }: UpstreamAnswer,
  limit: number,
  held: MemoryReservation | null = null,
): Promise<Buffer | null> {
  return Buffer.isBuffer(body) ? body : collectBytes(body, limit, held)
}
