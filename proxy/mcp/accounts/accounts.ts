import type { AccountEnd, AccountHolder, OAuthSettings, UpstreamAccount } from '../../../db/mcp/accounts.ts'
import type { Arrival } from '../../../plugins/plugin.ts'

/** The path of the people's listener that authorization servers send browsers back to. Made in this place alone. */
export const ACCOUNT_CALLBACK = '/oauth/account/callback'
/** The path of our client's metadata document, whose address is our client id where a server takes one. */
export const CLIENT_DOCUMENT = '/oauth/client.json'
/** The cookie of a browser that connects an account: __Host-, HttpOnly, Lax. */
export const ACCOUNT_COOKIE = '__Host-account-transaction'

/** The MCP server of an account. Parsed by the code that has read the resource. */
export interface AccountResource {
  readonly resource_id: string
  readonly endpoint_url: string
  /** Null: its `auth_type` is not `oauth`. */
  readonly oauth: OAuthSettings | null
}

/** A server that cannot be asked now, or answers what is not valid. Holds no token; its message is for callers, too. */
export class IssuerUnavailable extends Error {
  override readonly name = 'IssuerUnavailable'
}

/** An answer to another browser's beginning, to an old one, or one that came before. */
export class NotBegun extends Error {
  override readonly name = 'NotBegun'
}

/** The issuer, or the person there, has refused. The message has the error code of RFC 6749, and nothing else of theirs. */
export class ConnectRefused extends Error {
  override readonly name = 'ConnectRefused'
}

/** Asks for an account to be connected. */
export interface AccountBeginning {
  /** The principal whose account it becomes. */
  readonly holder: AccountHolder
  readonly resource: AccountResource
  /** The scopes that are asked for, among the settings'. Empty: all of the settings'. */
  readonly scopes: readonly string[]
  /** The principal that is signed in at the browser, by its id: {@link Accounts.finish} demands the same. */
  readonly person: string
  /** A path of ours that the browser goes on to afterwards. */
  readonly returnTo: string
  /** ms since the epoch. */
  readonly at: number
}

/** The answer to a browser that begins. */
export interface BegunAccount {
  /** The issuer's page. */
  readonly location: string
  /** The value of `Set-Cookie`. */
  readonly cookie: string
}

/** The destination of a browser, which a page says before it redirects: nobody is sent anywhere unasked. */
export interface FoundIssuer {
  readonly issuer: string
  /** The way in which the issuer knows us. */
  readonly client: 'configured' | 'document' | 'registered'
}

/** The answer of the issuer, as the browser brings it. */
export interface AccountAnswer {
  /** Without the question mark. */
  readonly query: string
  /** The headers of the request: its cookie is {@link ACCOUNT_COOKIE}. */
  readonly headers: Arrival['headers']
  /** The principal that is signed in at the browser now, by its id. */
  readonly person: string
  /** Finds the resource as it is now; undefined: it is gone. */
  readonly resourceOf: (id: string) => Promise<AccountResource | undefined>
  /** Whoever connects it, and the request's id: both stand in the row. */
  readonly by: Pick<AccountHolder, 'ref' | 'type'>
  readonly requestId: string
  readonly at: number
}

export interface ConnectedAccount {
  readonly account: UpstreamAccount
  readonly returnTo: string
}

/** An account, ready for one request to its server. */
export interface AccountUse {
  /** The account at the revision whose token stands in `headers`. */
  readonly account: UpstreamAccount
  /** `authorization`, and `dpop` where the token is bound to a key. */
  readonly headers: Readonly<Record<string, string>>
  /** The token: an answer that quotes it is not passed on (plugins/secrets/traces.ts). */
  readonly secrets: readonly string[]
  /** True if this use has waited for a new token: outcome rows say it. */
  readonly refreshed: boolean
}

/** The request that an account is used for. */
export interface AccountRequest {
  readonly method: string
  readonly url: string
  /** The server's `DPoP-Nonce` of its 401 (RFC 9449 §9). Absent: none. */
  readonly nonce?: string
}

/**
 * Accounts of principals at MCP servers (docs/accounts.md). Tokens leave it in {@link AccountUse} alone. All
 * requests go by the fenced egress: judged addresses, 5 s, 64 KiB, no redirect.
 */
export interface Accounts {
  /**
   * Finds the account of a principal at a resource; undefined: none, or it has ended, or it is of another
   * endpoint or issuer than the resource has now, or its row was edited and does not open.
   */
  readonly find: (
    principal: Pick<AccountHolder, 'id' | 'type'>,
    resource: AccountResource,
  ) => Promise<UpstreamAccount | undefined>
  /** Finds one by its id. Does NOT open it. */
  readonly findById: (id: string) => Promise<UpstreamAccount | undefined>
  /** Lists those of a principal, newest first. Does NOT open them. */
  readonly listOf: (principal: Pick<AccountHolder, 'id' | 'type'>) => Promise<readonly UpstreamAccount[]>
  /** Finds whom the browser will be sent to. Rejects with {@link IssuerUnavailable}. */
  readonly issuerOf: (resource: AccountResource) => Promise<FoundIssuer>
  /** Begins. Rejects with {@link IssuerUnavailable}. Does NOT ask whether the person may: the page does. */
  readonly begin: (beginning: AccountBeginning) => Promise<BegunAccount>
  /**
   * Redeems the code and stores the account with its row `upstream_account.connected`; one that was there is
   * ended as `replaced`. Rejects with {@link NotBegun}, {@link ConnectRefused}, {@link IssuerUnavailable}, or
   * the ledger's error.
   */
  readonly finish: (answer: AccountAnswer) => Promise<ConnectedAccount>
  /**
   * Makes the headers of one request. Refreshes first if less than 60 s are left. `ended`: the issuer takes it
   * no more, and its row is written: ask the person anew. Rejects with {@link IssuerUnavailable} if a new
   * token is needed and the issuer cannot be asked.
   */
  readonly authorization: (account: UpstreamAccount, request: AccountRequest) => Promise<AccountUse | 'ended'>
  /**
   * Has a newer token than that of `seenRevision`, after the server's 401: one refresh for all who wait, here
   * and at other processes. `ended` and errors: as above.
   */
  readonly refresh: (account: UpstreamAccount, seenRevision: number) => Promise<UpstreamAccount | 'ended'>
  /**
   * Ends an account at once, with its row; its tokens are revoked at the issuer afterwards. `by`: null, the
   * gateway. False: it had ended. An operation of administration writes its own row: `endingOf` (ending.ts).
   */
  readonly end: (
    account: UpstreamAccount,
    why: AccountEnd,
    by: Pick<AccountHolder, 'ref' | 'type'> | null,
  ) => Promise<boolean>
}
