/** The facts that plugins establish about a request, by name. Each file says which plugin gives it. */

export type PrincipalType = 'agent' | 'user' | 'workload'

/** Who is calling: given by `pin`, read from the database on this very request. */
export interface Principal {
  readonly id: string
  readonly type: PrincipalType
  readonly capabilities: readonly string[]
  /** RFC 7638 thumbprint of the pinned DPoP key, or null. */
  readonly dpopJkt: string | null
  /** True where the certificate is the one before the last rotation, still in its grace window. */
  readonly inGrace: boolean
}

/** What the request asks for: given by the route, or read from the parsed call. */
export interface Demand {
  /** The audit action, e.g. `egress_llm_chat`. */
  readonly action: string
  readonly capability: string
}

declare const granted: unique symbol

/** A demand that was checked against the principal's capabilities. Only `plugins/capability.ts` makes one. */
export type Granted = Demand & { readonly [granted]: true }

/** What the audit rows of a call say about its content, never the content itself. */
export interface CallSummary {
  readonly model: string | null
  readonly tool: string | null
  readonly stream: boolean
}

/** A DPoP proof that was verified: given by `dpop`, null where the mode lets mutual TLS alone pass. */
export interface Proof {
  /** RFC 7638 thumbprint of the key that signed. base64url. */
  readonly jkt: string
}
