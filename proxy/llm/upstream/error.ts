/**
 * `connect`: no connection came about. `timeout`: it came, and no answer in time. `reset`: it broke, or what
 * came was no HTTP.
 */
export type UpstreamErrorKind = 'connect' | 'timeout' | 'reset'

interface Options {
  readonly cause?: unknown
  /** The request died on a pooled connection without a byte of an answer. */
  readonly stale?: boolean
}

/** A failure between us and a provider. The message is for the log: it never holds headers or bodies. */
export class UpstreamError extends Error {
  readonly kind: UpstreamErrorKind
  readonly stale: boolean

  constructor(kind: UpstreamErrorKind, message: string, { cause, stale = false }: Options = {}) {
    super(`upstream ${kind}: ${message}`, { cause })
    this.kind = kind
    this.stale = stale
  }
}
