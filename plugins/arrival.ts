import type { X509Certificate } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import type { JsonObject } from '../db/support/json.ts'
import type { CallTrace } from './call-trace.ts'

/** The leaf certificate of a TLS client that has proven it holds the key. Says nothing about who that is. */
export interface TlsPeer {
  readonly certificate: X509Certificate
  /** Lower-case hex SHA-256 of the DER (RFC 8705 §3.1). */
  readonly thumbprint: string
  /** ms since the epoch. */
  readonly notBefore: number
  /** ms since the epoch. */
  readonly notAfter: number
}

export interface MemoryOwner {
  readonly principal?: { readonly id: string; readonly capabilities: readonly string[] }
  readonly actor?: { readonly id: string }
}

/** The account of the bytes that one call holds, until it ends. */
export interface MemoryReservation {
  /** Names the owner of the bytes, before the first of them. */
  readonly setOwner: (caller: MemoryOwner) => void
  /** Counts more bytes. Returns false, and counts nothing, if they do not fit or the call has ended. */
  readonly tryReserve: (bytes: number) => boolean
  /**
   * Counts more bytes of an answer as soon as they fit; undefined: they are counted. Refuses with `overloaded`
   * if they have not for 20 s.
   */
  readonly reserveAnswerInTurn: (bytes: number) => Promise<void> | undefined
  /**
   * Counts an answer that is about to be sent whole, as far as it was not counted while it came. It waits if
   * that is no more than 64 KiB; else it is refused at once.
   */
  readonly reserveReply: (bytes: number) => Promise<void> | undefined
}

/** Tells a call that nobody waits for it any more: its caller hung up, or its authority is gone. */
export interface HangupSignal {
  readonly gone: boolean
  /** Why; undefined while somebody waits, and if the caller just hung up. */
  readonly reason: unknown
  /** The same as a signal, with a reason that can always be thrown. Made for who asks for it: it is dear. */
  readonly signal: AbortSignal
  /** Calls `told` once, when it happens; never if it has happened before. Must not throw. */
  readonly onGone: (told: () => void) => void
  readonly offGone: (told: () => void) => void
}

/** Tells whether the authority of a call has stood since (docs/threats.md#h19). */
export interface CallAuthority {
  /** False once any authority has changed since it was asked about last. Costs no question. */
  readonly unchanged: boolean
  /**
   * Asks whether the call would be allowed now. Rejects with `authority_revoked`, or a DatabaseUnavailable.
   */
  readonly confirm: () => Promise<void>
}

/** One request as it arrived: nothing about its sender is believed yet. */
export interface Arrival {
  /** `req_…`: the log's request id and the audit row's. */
  readonly id: string
  /** The instant of its arrival. ms since the epoch, read once. */
  readonly at: number
  readonly method: string
  /** The path as sent, before any `?`, never decoded. */
  readonly path: string
  readonly query: string
  /** The variable segments of the route's path, percent-decoded once. */
  readonly params: Readonly<Record<string, string>>
  readonly headers: IncomingHttpHeaders
  readonly remoteAddress: string
  /** The user id of the process at the control socket; null on the network, and if it cannot be told. */
  readonly localUid: number | null
  /** Null if the client presented no certificate. */
  readonly peer: TlsPeer | null
  /**
   * Reads the whole body, on `caller`'s account, once there is room for it. Refuses with `body_too_large` past
   * `limit` bytes, with `overloaded` if there is none for 20 s. A second call gives the same body: the first
   * limit counts.
   */
  readonly readBody: (limit: number, caller: MemoryOwner) => Buffer | Promise<Buffer>
  readonly held: MemoryReservation
  /** Headers that are sent whatever the outcome, e.g. DPoP-Nonce. */
  readonly answer: Record<string, string>
  readonly hangup: HangupSignal
  readonly authority: CallAuthority
  /** The trace of the call while telemetry is on. Absent or null: there is none. */
  readonly trace?: CallTrace | null
}

/** The place of a decision in the ledger: the caller's receipt. */
export interface Receipt {
  readonly stream: string
  readonly seq: number
  readonly hash: string
  /** The salt of the commitment to the body, if it was read. Lower-case hex. */
  readonly salt?: string
}

/** The place of a refusal in a row that stands for many, only for the log (docs/ledger.md#summarised). */
export interface SummarisedRefusal {
  readonly summarised: {
    readonly action: string
    /** `since` of the row. */
    readonly since: string
    /** Counts from 1. */
    readonly n: number
    /** RFC 3339. */
    readonly at: string
    readonly body_sha256: string | null
  }
}

/** The end of a call, for plugins that count the results. */
export interface CallSettlement {
  /** The instant of its end. ms since the epoch. */
  readonly at: number
  /** `refused`: a later plugin, or the record, refused it. Else the status of its outcome row. */
  readonly status: 'success' | 'error' | 'truncated' | 'unknown' | 'refused'
  /** The provider, MCP resource or built-in tool that did the work; null if none was reached. */
  readonly provider: string | null
  /** The outcome row's: tokens, sizes, the upstream's status. */
  readonly detail: JsonObject
}
