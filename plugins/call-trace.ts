import type { JsonObject, JsonValue, UnknownRecord } from '../db/support/json.ts'
import type { CallGrant, CallSummary, CapabilityDemand, Principal } from './facts.ts'

/** One request to a provider or an MCP server, as its span says it. */
export interface TracedRequest {
  /** The name of the provider or of the MCP server. */
  readonly upstream: string
  readonly origin: string
  /** The model at the provider. */
  readonly model?: string | null
  /** The method of an MCP message. */
  readonly method?: string
  /** The MCP server's own name of the tool or prompt. */
  readonly target?: string | null
  /** The requests to the same upstream for this call before this one. */
  readonly resent?: number
}

/** The trace context that a request carries (W3C Trace Context), as headers or members of `_meta`. */
export interface TraceContext {
  readonly traceparent?: string
  /** Undefined: none of the caller's goes on either. */
  readonly tracestate?: string | undefined
}

/** The span of one request to an upstream. One that is never ended ends with its call. */
export interface TracedAttempt {
  readonly context: TraceContext
  readonly answered: (status: number) => void
  /** `reason`: why there is no answer for the caller; null: there is one. */
  readonly ended: (reason: string | null, status?: number | null) => void
}

/** Facts that a span may tell of a call: none of its content, and of its caller the ledger's name. */
export interface TracedFacts {
  readonly principal?: Pick<Principal, 'ref' | 'type'>
  readonly demand?: CapabilityDemand
  readonly call?: Pick<CallSummary, 'model' | 'tool'>
  readonly grant?: Pick<CallGrant, 'bound'>
  /** The verdict of a check of content on the request. */
  readonly content?: { readonly verdict: string }
  readonly message?: {
    readonly method: string
    readonly version: string
    /** JSON text. */
    readonly id: string | null
    readonly meta: UnknownRecord
  }
}

/** One call when it has ended. */
export interface TracedCall {
  readonly facts: TracedFacts & { readonly id: string; readonly method: string }
  /** The path of its route. */
  readonly route: string
  /** The session that the caller names, as rows have it. */
  readonly session: string | null
  readonly status: number
  readonly allowed: boolean
  /** The status of its outcome row; `refused`: it has none. */
  readonly result: string
  readonly reason: string | null
  /** The plugin that refused, or `handler`. */
  readonly by: string | null
  /** Null: it has no row of its own. */
  readonly receipt: { readonly stream: string; readonly seq: number } | null
  readonly upstream: string | null
  readonly tool: string | null
  /** The code of a JSON-RPC error; null: the answer is none. */
  readonly rpcCode: number | null
  /** The detail of its outcome row. */
  readonly detail: JsonObject
  /** Makes its line of the log. */
  readonly line: () => Readonly<Record<string, JsonValue | undefined>>
}

/** The trace of one call while telemetry is on. It is only written to: nothing is decided by it. */
export interface CallTrace {
  /** Lower-case hex, once a parent is known; null: no traces are exported. */
  readonly traceId: string | null
  /** Takes the parent from the `_meta` of an MCP message, if there is one. The first time counts. */
  readonly adopt: (meta: UnknownRecord) => void
  /** Returns the context of the attempt that begins next. */
  readonly upcoming: () => TraceContext
  readonly attempt: (request: TracedRequest) => TracedAttempt
  readonly end: (call: TracedCall) => void
}
