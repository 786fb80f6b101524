import type { Logger } from 'pino'
import type { Database } from '../../../db/database.ts'
import { LedgerError } from '../../../db/ledger/record/entry.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import {
  type AccountEnd,
  type AccountHolder,
  accountLookup,
  findAccount,
  listAccounts,
  type StoredAccount,
  type UpstreamAccount,
  upstreamAccountOf,
} from '../../../db/mcp/accounts.ts'
import { noteEntry } from '../../../plugins/audit/entries.ts'
import type { SubjectKeys } from '../../../plugins/pin/subject-keys.ts'
import type { MonotonicClock } from '../../../plugins/secrets/throttle.ts'
import type { ResolveHost } from '../../egress/agent.ts'
import {
  type AccountRequest,
  type AccountResource,
  type Accounts,
  type AccountUse,
  IssuerUnavailable,
} from './accounts.ts'
import { OurClients } from './clients.ts'
import { AccountConnector } from './connect.ts'
import { endingStatements } from './ending.ts'
import { issuerFetch } from './issuer-fetch.ts'
import { IssuerDirectory } from './issuers.ts'
import { AccountRefresher, isExpiring } from './refresh.ts'
import { tokenRevoker } from './revoke.ts'
import { accountEndedNote } from './rows.ts'
import { authorizationHeaders } from './tokens.ts'
import { type AccountTokens, AccountVault } from './vault.ts'

interface AccountsOptions {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly subjectKeys: Pick<SubjectKeys, 'find' | 'derived'>
  /** Reads the secret of a reference (proxy/egress/secret-reference.ts). */
  readonly secret: (reference: string) => Promise<string>
  /** MCP_PROXY_PEOPLE_URL. Null: the listener for people is closed, and nobody connects an account. */
  readonly peopleUrl: string | null
  /** MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS. */
  readonly allowPrivate: boolean
  readonly resolve?: ResolveHost
  /** The digest of the configuration in force. */
  readonly configDigest: () => string
  readonly clock: () => number
  readonly monotonic: MonotonicClock
  readonly log: Pick<Logger, 'warn'>
}

interface OpenedAccounts extends Accounts {
  /** Revokes what is due. One process does it for all. */
  readonly revokeDue: () => Promise<void>
}

/** Opens the accounts of the process, whichever configuration is in force. Asks nobody for anything. */
export function openAccounts(options: AccountsOptions): OpenedAccounts {
  const { database, subjectKeys, monotonic } = options
  const vault = new AccountVault(subjectKeys)
  const fetch = issuerFetch(options)
  const issuers = new IssuerDirectory({ fetch, allowPrivate: options.allowPrivate, now: monotonic })
  const clients = new OurClients({ ...options, vault, fetch })
  const connector = new AccountConnector({ ...options, vault, issuers, clients })
  const known = new KnownAccounts({ ...options, vault })
  const end = accountEnder({ ...options, vault })
  const refresher = new AccountRefresher({
    ...{ ...options, vault, issuers, clients },
    end: (row) => end(row, 'invalid_grant', null, row.revision),
  })
  return {
    find: (principal, resource) => known.find(principal, resource),
    findById: async (id) => {
      const row = await findAccount(database, id)
      return row && upstreamAccountOf(row)
    },
    listOf: async (principal) => (await listAccounts(database, { principal })).map(upstreamAccountOf),
    issuerOf: (resource) => connector.issuerOf(resource),
    begin: (beginning) => connector.begin(beginning),
    finish: (answer) => connector.finish(answer),
    authorization: accountUser({ ...options, known, refresher }),
    refresh: (account, seenRevision) => refresher.refresh(account.id, seenRevision, 'refused'),
    end: async ({ id }, why, by) => {
      const row = await findAccount(database, id)
      return row ? end(row, why, by) : false
    },
    revokeDue: tokenRevoker({ ...options, vault, issuers, clients }),
  }
}

interface KnownOptions extends Pick<AccountsOptions, 'database' | 'log'> {
  readonly vault: AccountVault
}

/** Finds accounts and opens them. */
class KnownAccounts {
  readonly #of: KnownOptions
  readonly #lookup: ReturnType<typeof accountLookup>
  /** The tokens of accounts that were handed out. */
  readonly #tokens = new WeakMap<UpstreamAccount, AccountTokens>()

  constructor(options: KnownOptions) {
    this.#of = options
    this.#lookup = accountLookup(options.database)
  }

  async find(
    principal: Pick<AccountHolder, 'id' | 'type'>,
    resource: AccountResource,
  ): Promise<UpstreamAccount | undefined> {
    const { oauth, resource_id: id, endpoint_url: endpoint } = resource
    const row = oauth ? await this.#lookup(principal, id) : undefined
    const tokens = row && (await this.#open(row))
    if (!oauth || !tokens) return undefined
    const { issuer = row.issuer, client_id: clientId = null } = oauth
    const isOfNow =
      tokens.endpoint === endpoint &&
      row.issuer === issuer &&
      clientId === (tokens.client.kind === 'configured' ? tokens.client.id : null)
    return isOfNow ? this.#handOut(row, tokens) : undefined
  }

  /** Returns the tokens of an account; null: it has ended. */
  async tokensOf(account: UpstreamAccount): Promise<AccountTokens | null> {
    const known = this.#tokens.get(account)
    if (known) return known
    const row = await findAccount(this.#of.database, account.id)
    return row ? this.#open(row) : null
  }

  #handOut(row: StoredAccount, tokens: AccountTokens): UpstreamAccount {
    const account = upstreamAccountOf(row)
    this.#tokens.set(account, tokens)
    return account
  }

  async #open(row: StoredAccount): Promise<AccountTokens | null> {
    const tokens = await this.#of.vault.open(row)
    if (!tokens)
      this.#of.log.warn(
        { account: row.account_id },
        'the tokens of an account do not open: somebody has edited the database',
      )
    return tokens
  }
}

type EndRow = (
  row: StoredAccount,
  why: AccountEnd,
  by: Pick<AccountHolder, 'ref' | 'type'> | null,
  revision?: number,
) => Promise<boolean>

/** Makes the function that ends an account with its row. False: it had ended, or is of another revision. */
function accountEnder({
  database,
  ledger,
  vault,
  clock,
  configDigest,
}: AccountsOptions & { readonly vault: AccountVault }): EndRow {
  return async (row, why, by, revision) => {
    const at = clock()
    const entry = noteEntry(accountEndedNote(upstreamAccountOf(row), why), at, configDigest())
    try {
      await ledger.commit({
        statements: await endingStatements(database, vault, row, at, revision),
        entries: [{ ...entry, principal_id: by?.ref ?? null, principal_type: by?.type ?? null }],
      })
      return true
    } catch (error) {
      if (error instanceof LedgerError && (error.code === 'conflict' || error.code === 'duplicate'))
        return false
      throw error
    }
  }
}

interface UserOptions extends Pick<AccountsOptions, 'clock'> {
  readonly known: KnownAccounts
  readonly refresher: AccountRefresher
}

/** Makes the function that has an account ready for a request. */
function accountUser({ known, refresher, clock }: UserOptions): Accounts['authorization'] {
  const useOf = async (
    account: UpstreamAccount,
    request: AccountRequest,
    refreshed: boolean,
  ): Promise<AccountUse | 'ended'> => {
    const tokens = await known.tokensOf(account)
    if (!tokens) return 'ended'
    const headers = await authorizationHeaders(tokens, request, clock())
    return { account, headers, secrets: [tokens.access], refreshed }
  }
  return async (account, request) => {
    if (!isExpiring(account, clock())) return useOf(account, request, false)
    try {
      const newer = await refresher.refresh(account.id, account.revision, 'expiring')
      return newer === 'ended' ? newer : await useOf(newer, request, true)
    } catch (error) {
      const isOver = account.expiresAt !== null && account.expiresAt <= clock()
      if (isOver || !(error instanceof IssuerUnavailable)) throw error
      return useOf(account, request, false)
    }
  }
}
