import type { Hash } from 'node:crypto'
import type { CallGrade } from '../db/ledger/authority/rule.ts'
import type { PrincipalType } from '../db/schema.ts'
import type { JsonObject } from '../db/support/json.ts'

/**
 * The facts that plugins establish about a request, by name. Each is written once: a later plugin gives its
 * fact a name of its own. `principal` is the caller, `holder` the same one as the database says it at the
 * gate.
 */

export type { PrincipalType } from '../db/schema.ts'

/** A check's verdict on a call: `failed` if it broke, or took too long. */
export type CheckVerdict = 'pass' | 'refuse' | 'failed'

/** The caller: given by `pin`, read from the database on this very request. */
export interface Principal {
  readonly id: string
  /** The name that the ledger knows it by: the pseudonym of a user, the id of any other. */
  readonly ref: string
  readonly type: PrincipalType
  readonly capabilities: readonly string[]
  /** RFC 7638 thumbprint of the registered DPoP key, or null. */
  readonly dpopJkt: string | null
  /** The key before the last rotation, while it is still in its grace window; else null. */
  readonly previousDpopJkt: string | null
  /** True if the certificate is the one before the last rotation, still in its grace window. */
  readonly inGrace: boolean
  /** Authority revision: counts changes of capabilities, activity, certificate and proof key. */
  readonly revision: number
  /** The digest of the CA that vouches for its SVID, if it is known by its SPIFFE id and no pin. */
  readonly anchor?: string
}

/** The grant of a call without a certificate, which its user has given to a client: given by `bearer`. */
export interface CallGrant {
  readonly id: string
  /** `key`: the client has proven the key that its token is bound to. */
  readonly bound: CallGrade
  /** The thumbprint of that key; null: there is none. base64url. */
  readonly jkt: string | null
  /** The capabilities that token and grant are narrowed to; null: all that the user holds. */
  readonly scope: readonly string[] | null
  /** The client, as rows say it. */
  readonly client: JsonObject
}

/** The action that the request asks for: given by the route, or read from the parsed call. */
export interface CapabilityDemand {
  /** The audit action, e.g. `egress_llm_chat`. */
  readonly action: string
  /** The capabilities that must be held, in the order asked; empty: any. */
  readonly demanded: readonly string[]
}

/** The content of a call as its audit rows say it, never the content itself. */
export interface CallSummary {
  readonly model: string | null
  readonly tool: string | null
  readonly stream: boolean
  /** Further members of the decision row: names, digests, sizes. */
  readonly detail?: JsonObject
}

/** A DPoP proof that holds for this request: given by `dpop`, null if the mode lets mutual TLS alone pass. */
export interface DpopProof {
  /** RFC 7638 thumbprint of the key that signed. base64url. */
  readonly jkt: string
  /** The key that must be claimed, once, before anything acts: a second claim is a replay. */
  readonly replayKey: string
  /** The instant after which no copy of it is believed. ms since the epoch. */
  readonly expiresAt: number
}

/** An access token of ours that holds for this caller: given by `dpop`, null if none came. */
export interface AccessToken {
  /** The capabilities it was narrowed to, or null if it was not. It never widens the principal's set. */
  readonly scope: readonly string[] | null
  /** True if it is bound to a key of its own, which need not be the registered one. */
  readonly bound: boolean
}

/**
 * Commits to a call's bytes (docs/ledger.md#commitments). Given by `pin`, of the caller's own key and this
 * request. `label`: the name of the member of `detail` that holds the commitment.
 */
export interface CallCommitments {
  /** Hex SHA-256 of salt and bytes. */
  of(label: string, bytes: Buffer | string): string
  /** Sixteen bytes, in lower-case hex. */
  salt(label: string): string
  /** A SHA-256 that has been given the salt. */
  hashing(label: string): Hash
  /** 32 bytes for another use, the same for each request of this principal: they say nothing of its key. */
  derived(use: string): Buffer
}

/** The MCP resource that a call is for, as it was judged: given if it is one. */
export interface ReachedResource {
  readonly resource: { readonly id: string; readonly revision: number }
  /** The id of the binding; null if there is none. */
  readonly binding: string | null
  /** Lower-case hex digest of the tool's approved definition; null if it is no tool, or not approved. */
  readonly pin: string | null
}

/** The call of an MCP message, for checks that judge arguments. Given by `mcp_target`. */
export interface ToolCall {
  /** The bound resource, or null if the message is for the gateway itself or for all of them. */
  readonly resource: string | null
  readonly method: string
  /** Parsed once and dispatched later; null if the method has none. */
  readonly arguments: Readonly<Record<string, unknown>> | null
  /** Makes the lower-case hex SHA-256 of the arguments in canonical form (RFC 8785). */
  readonly argumentsSha256: (() => string) | null
}
