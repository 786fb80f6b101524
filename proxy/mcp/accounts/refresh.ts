import { setTimeout as delay } from 'node:timers/promises'
import * as client from 'openid-client'
import type { Database } from '../../../db/database.ts'
import { LedgerError } from '../../../db/ledger/record/entry.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import {
  claimRefresh,
  findAccount,
  type RefreshedMembers,
  releaseRefresh,
  type StoredAccount,
  storeRefreshed,
  type UpstreamAccount,
  upstreamAccountOf,
} from '../../../db/mcp/accounts.ts'
import { boundedCache } from '../../../db/support/bounded-cache.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { IssuerUnavailable } from './accounts.ts'
import type { OurClients } from './clients.ts'
import type { IssuerDirectory } from './issuers.ts'
import { accountKeyOf, type GivenTokens, givenTokens, issuerError, oauthErrorOf } from './tokens.ts'
import type { AccountTokens, AccountVault } from './vault.ts'

/** A process has the refresh for so long: longer than an issuer may take, twice with a nonce, and storing it. ms. */
const CLAIM_MS = 15_000
/** The time that others wait for it. ms. */
const PATIENCE_MS = 20_000
const FIRST_PAUSE_MS = 25
const MAX_PAUSE_MS = 250
/** A token that is younger is not replaced because of a 401: a server that says so each time would have us do it. ms. */
const MIN_AGE_MS = 10_000
/** The time in which an issuer that could not be asked is not asked again for the same account. ms. */
const REST_MS = 5_000
const MAX_KEPT = 10_000

export interface RefresherOptions {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly vault: AccountVault
  readonly issuers: IssuerDirectory
  readonly clients: OurClients
  /** Ends an account as it was read: of another revision it is left, and the answer is false. */
  readonly end: (row: StoredAccount) => Promise<boolean>
  readonly clock: () => number
}

/** The cause of a refresh: little time is left, or the server has refused the token. */
export type RefreshCause = 'expiring' | 'refused'

/**
 * Refreshes tokens: once for all who wait in this process, and once for all processes, by a claim on the
 * account's revision. The losers read what the winner has stored. A process that dies with the claim leaves it
 * for {@link CLAIM_MS}; the next one asks with the former refresh token, and what the issuer says of it counts.
 */
export class AccountRefresher {
  readonly #of: RefresherOptions
  readonly #underWay = new Map<string, Promise<UpstreamAccount | 'ended'>>()
  /** The instants until which issuers are left alone, by account. */
  readonly #resting = boundedCache<{ readonly until: number; readonly error: IssuerUnavailable }>(MAX_KEPT)
  /** Tokens that the ledger could not store yet: the former ones may be void. */
  readonly #unsaved = boundedCache<{ readonly revision: number; readonly members: RefreshedMembers }>(
    MAX_KEPT,
  )

  constructor(options: RefresherOptions) {
    this.#of = options
  }

  refresh(id: string, seenRevision: number, cause: RefreshCause): Promise<UpstreamAccount | 'ended'> {
    const known = this.#underWay.get(id)
    if (known) return known
    const made = this.#refresh(id, seenRevision, cause).finally(() => this.#underWay.delete(id))
    this.#underWay.set(id, made)
    return made
  }

  async #refresh(id: string, seen: number, cause: RefreshCause): Promise<UpstreamAccount | 'ended'> {
    const { database, clock } = this.#of
    const end = performance.now() + PATIENCE_MS
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, MAX_PAUSE_MS)) {
      const row = await findAccount(database, id)
      if (!row) return 'ended'
      const account = upstreamAccountOf(row)
      if (account.revision !== seen || (cause === 'refused' && isYoung(account, clock()))) return account
      const rest = this.#resting.get(id)
      if (rest && clock() < rest.until) throw rest.error
      if (await this.#saved(id, seen)) continue
      if (await this.#claim(account)) return this.#exchange(row, account)
      if (performance.now() > end)
        throw new IssuerUnavailable('another process asks the issuer, and has no answer')
      await delay(pause)
    }
  }

  /** Stores what an earlier refresh could not. True: it did, or it is stored already. */
  async #saved(id: string, revision: number): Promise<boolean> {
    const unsaved = this.#unsaved.get(id)
    if (unsaved?.revision !== revision) return false
    await this.#store({ id, revision }, unsaved.members)
    return true
  }

  async #store(of: Pick<UpstreamAccount, 'id' | 'revision'>, members: RefreshedMembers): Promise<void> {
    const { database, ledger } = this.#of
    try {
      await ledger.commit({ statements: [storeRefreshed(database, of, members)], entries: [] })
    } catch (error) {
      // It has ended meanwhile, or a newer one is stored.
      if (!(error instanceof LedgerError && error.code === 'conflict')) {
        this.#unsaved.set(of.id, { revision: of.revision, members })
        throw error
      }
    }
    this.#unsaved.delete(of.id)
  }

  async #claim(account: UpstreamAccount): Promise<boolean> {
    const { database, ledger, clock } = this.#of
    const at = clock()
    try {
      const claim = claimRefresh(database, account, at, at + CLAIM_MS)
      await ledger.commit({ statements: [claim], entries: [] })
      return true
    } catch (error) {
      if (error instanceof LedgerError && error.code === 'conflict') return false
      throw error
    }
  }

  /** Asks the issuer, and stores what it gives. */
  async #exchange(row: StoredAccount, account: UpstreamAccount): Promise<UpstreamAccount | 'ended'> {
    const { vault, clock, database } = this.#of
    const held = await vault.open(row)
    if (!held?.refresh) return this.#ended(row)
    let given: GivenTokens
    try {
      given = await this.#ask(account, held, held.refresh)
    } catch (error) {
      return this.#failed(row, account, held, error)
    }
    const { id, holder, resourceId, issuer, revision } = account
    const next = { ...held, access: given.access, refresh: given.refresh ?? held.refresh }
    await this.#store(
      { id, revision },
      {
        tokens: await vault.seal({ account: id, holder, resourceId, issuer }, next),
        scopes: given.scopes.join(' '),
        expires_at: given.expiresAt === null ? null : timestamp(given.expiresAt),
        refreshed_at: timestamp(clock()),
      },
    )
    const stored = await findAccount(database, id)
    return stored ? upstreamAccountOf(stored) : 'ended'
  }

  async #ask(account: UpstreamAccount, held: AccountTokens, refresh: string): Promise<GivenTokens> {
    const { issuers, clients, clock } = this.#of
    const server = await issuers.server(account.issuer, held.named)
    const configuration = await clients.configuration(server, held.client)
    const key = await accountKeyOf(held)
    const answer = await client.refreshTokenGrant(
      configuration,
      refresh,
      { resource: held.audience },
      key ? { DPoP: client.getDPoPHandle(configuration, key.pair) } : {},
    )
    return givenTokens(answer, account.scopes, clock())
  }

  async #failed(
    row: StoredAccount,
    account: UpstreamAccount,
    { client: ours }: AccountTokens,
    error: unknown,
  ): Promise<UpstreamAccount | 'ended'> {
    const code = oauthErrorOf(error)
    if (code === 'invalid_grant') return this.#ended(row)
    if (code === 'invalid_client' && ours.kind === 'registered') {
      await this.#of.clients.forget(account.issuer)
      return this.#ended(row)
    }
    const { database, ledger, clock } = this.#of
    const { message } = issuerError(error, account.issuer)
    const unavailable = new IssuerUnavailable(message)
    this.#resting.set(account.id, { until: clock() + REST_MS, error: unavailable })
    await ledger.commit({ statements: [releaseRefresh(database, account)], entries: [] })
    throw unavailable
  }

  /** Ends the account as it was read; if another process has newer tokens, those count. */
  async #ended(row: StoredAccount): Promise<UpstreamAccount | 'ended'> {
    if (await this.#of.end(row)) return 'ended'
    const now = await findAccount(this.#of.database, row.account_id)
    return now ? upstreamAccountOf(now) : 'ended'
  }
}

const isYoung = ({ refreshedAt, connectedAt, expiresAt }: UpstreamAccount, at: number): boolean =>
  at - (refreshedAt ?? connectedAt) < MIN_AGE_MS && (expiresAt === null || at < expiresAt)

/** The time that must be left for a token to be used. ms. */
const MARGIN_MS = 60_000

/** Tells whether a token is to be replaced before its next use: of a short life half, of others a minute is left. */
export function isExpiring({ refreshedAt, connectedAt, expiresAt }: UpstreamAccount, at: number): boolean {
  if (expiresAt === null) return false
  const lifeMs = expiresAt - (refreshedAt ?? connectedAt)
  return expiresAt - at < Math.min(MARGIN_MS, lifeMs / 2)
}
