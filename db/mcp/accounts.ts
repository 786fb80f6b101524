import type { PrincipalType } from '../schema.ts'

/** The `oauth` block of a resource whose `auth_type` is `oauth` (docs/accounts.md). */
export interface OAuthSettings {
  /** Absent: found from the endpoint (RFC 9728). */
  readonly issuer?: string
  /** Absent: our metadata document, or registration. */
  readonly client_id?: string
  /** A reference like `auth_secret_ref`. Absent: a public client. */
  readonly client_secret_ref?: string
  readonly scopes: readonly string[]
  /** The id of the principal whose account reads the definitions that are pinned. */
  readonly reader: string
}

/** The principal of an account. */
export interface AccountHolder {
  readonly id: string
  readonly type: PrincipalType
  /** Its name in the ledger. */
  readonly ref: string
}

/** A principal's account at an MCP server. Never its tokens. Instants: ms since the epoch. */
export interface UpstreamAccount {
  /** `ua_` and 24 hex digits. */
  readonly id: string
  readonly holder: AccountHolder
  readonly resourceId: string
  readonly issuer: string
  /** As the issuer granted them; sorted. */
  readonly scopes: readonly string[]
  /** True: its tokens are bound to a key of the account (RFC 9449). */
  readonly bound: boolean
  /** Counts its tokens: from 1. */
  readonly revision: number
  readonly connectedAt: number
  /** The end of the present access token; null: the issuer did not say. */
  readonly expiresAt: number | null
  /** The instant of the last refresh; null: none yet. */
  readonly refreshedAt: number | null
}

/** The reason that an account ended (docs/ledger.md#actions). */
export type AccountEnd =
  | 'person'
  | 'operator'
  | 'deactivated'
  | 'erased'
  | 'unbound'
  | 'resource_removed'
  | 'replaced'
  | 'invalid_grant'
