import type { ErrorWords } from '../../egress/error-words.ts'

/**
 * `unreachable`: no connection, a refused address, or a connection that broke before an answer. `timeout`: no
 * answer in time. `too_large`: an answer past the limits. `mcpUpstreamFailure`: anything else that is not the
 * answer we asked for.
 */
export type FailureKind = 'unreachable' | 'timeout' | 'failed' | 'too_large'

/**
 * The remedy of a failure that does nothing twice: a new session, if the upstream does not know the one we
 * named, so it did nothing.
 */
export type FailureRemedy = 'new_session'

/** The parts of an answer with an HTTP error that its caller may have. */
export interface HttpErrorReport {
  /** The server's own words; null if there are none that may be passed on. */
  readonly words: ErrorWords | null
  /** The headers that say when to come back, and how much is left. */
  readonly headers: Readonly<Record<string, string>>
  /** The server's id of the request, or null. */
  readonly requestId: string | null
}

interface McpErrorOptions {
  readonly cause?: unknown
  /** The HTTP status of the answer, if there was one. */
  readonly status?: number
  readonly cure?: FailureRemedy
  /** The words and headers of an answer with an HTTP error. */
  readonly told?: HttpErrorReport
  /** True: the server took the request, and nobody knows what became of it. Default false. */
  readonly outcomeUnknown?: boolean
}

/**
 * A failure between us and an MCP server. The message is for the log: it never holds headers, bodies or
 * secrets.
 */
export class McpUpstreamError extends Error {
  readonly kind: FailureKind
  readonly status: number | null
  readonly cure: FailureRemedy | null
  readonly outcomeUnknown: boolean
  readonly told: HttpErrorReport | null

  constructor(kind: FailureKind, message: string, options: McpErrorOptions = {}) {
    const { cause, status, cure, told = null, outcomeUnknown = false } = options
    super(`mcp upstream ${kind}: ${message}`, { cause })
    this.kind = kind
    this.status = status ?? null
    this.cure = cure ?? null
    this.outcomeUnknown = outcomeUnknown
    this.told = told
  }
}

/** Makes an error of the commonest kind. */
export const mcpUpstreamFailure = (message: string, options: McpErrorOptions = {}): McpUpstreamError =>
  new McpUpstreamError('failed', message, options)
