import type { Readable } from 'node:stream'
import type { JsonObject } from '../../db/support/json.ts'
import type { RefusalReason } from '../../plugins/refusal.ts'
import type { UpstreamTiming } from '../telemetry/provider-figures.ts'

/** The answer of a handler. `proxy/http/send.ts` sends it and adds the headers that every answer carries. */
export interface Reply {
  readonly status: number
  readonly headers?: Readonly<Record<string, string>>
  /** Lines of `Set-Cookie`, if there may be several. */
  readonly cookies?: readonly string[]
  /** Absent: an empty body. */
  readonly body?: string | Buffer | StreamedBody
  /** The code of the JSON-RPC error that a refusal is. Absent: it is none. */
  readonly rpcCode?: number
  /** Returns the outcome row's further details. Called once, when the reply has ended. */
  readonly report?: () => CallReport
}

/** A body that is passed on as it comes, with back-pressure; bytes that came together are one chunk. */
export interface StreamedBody {
  readonly source: Readable
  /** Looks at every chunk before it is written. Absent: each goes on as it came. */
  readonly screen?: AnswerScreen
  /** Gets every chunk after it was written. Must not throw and must not keep the chunk's caller waiting. */
  readonly observe?: (chunk: Buffer) => void
  /**
   * Tells whether all that counts of the answer was written, by what its API says. `ended`: the source has
   * ended soundly. Absent: it is whole if the source has ended so.
   */
  readonly isWhole?: (ended: boolean) => boolean
  /**
   * True: the bytes that are written are not the source's, so its client cannot judge how that ended. One that is
   * not whole is cut, even if its source has ended soundly. Absent: it ends as its source does.
   */
  readonly isRewritten?: boolean
  /** The dialect's own error event, sent before the connection is destroyed. Absent or empty: none. */
  readonly brokenOff?: () => string
}

/** Decides which bytes of an answer that comes in chunks may go on. Must not throw. */
export interface AnswerScreen {
  /** Returns the bytes that may be written by now; null: the answer is to be broken off. */
  readonly push: (chunk: Buffer) => Buffer | null
  readonly flush: () => Buffer
  /**
   * Called before the first chunk, with the means to write at a time of its own. Returns what is called when the
   * answer has ended. Absent: it writes nothing but with chunks.
   */
  readonly begin?: (line: ScreenLine) => () => void
}

/** The line to the caller of an answer that a screen writes at a time of its own. */
export interface ScreenLine {
  readonly write: (bytes: Buffer) => void
  /** Ends the answer before its source has: cleanly if it is whole. */
  readonly end: () => void
}

export interface CallReport {
  /** The name of the worker: a model provider, the MCP resource, or `http.get`. */
  readonly provider?: string
  readonly tool?: string
  readonly detail: JsonObject
  /** True if the answer, whatever its HTTP status, says that the work failed. */
  readonly failed?: boolean
  /** True if nobody knows whether the work was done: the answer about it was lost. */
  readonly unknown?: boolean
  /** The reason of a failure, if the answer had begun and so could not be refused any more. */
  readonly reason?: RefusalReason
  /** The provider's part of an LLM call's time. Absent: no answer was passed on. */
  readonly timing?: UpstreamTiming
  /** The cause of that failure. For the log only: the caller never sees it. */
  readonly cause?: unknown
}

export const jsonReply = (
  status: number,
  value: unknown,
  headers: Readonly<Record<string, string>> = {},
): Reply => ({
  status,
  headers: { 'content-type': 'application/json', ...headers },
  body: JSON.stringify(value),
})
