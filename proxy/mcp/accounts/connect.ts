import { randomBytes } from 'node:crypto'
import * as client from 'openid-client'
import type { Database } from '../../../db/database.ts'
import { LedgerError } from '../../../db/ledger/record/entry.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import {
  type AccountHolder,
  accountLookup,
  insertAccount,
  insertRevocation,
  mayHaveAccount,
  removeAccount,
  type StoredAccount,
  upstreamAccountOf,
} from '../../../db/mcp/accounts.ts'
import { claimOnce } from '../../../db/single-uses.ts'
import { type LedgerStatement, timestamp } from '../../../db/support/statement.ts'
import { type AuditNote, noteEntry } from '../../../plugins/audit/entries.ts'
import { commitmentsBy } from '../../../plugins/pin/pin.ts'
import type { SubjectKeys } from '../../../plugins/pin/subject-keys.ts'
import {
  ACCOUNT_CALLBACK,
  type AccountAnswer,
  type AccountBeginning,
  type AccountResource,
  type BegunAccount,
  type ConnectedAccount,
  ConnectRefused,
  type FoundIssuer,
  NotBegun,
} from './accounts.ts'
import type { OurClients } from './clients.ts'
import type { FoundServer, IssuerDirectory } from './issuers.ts'
import { accountConnectedNote, accountEndedNote } from './rows.ts'
import { type GivenTokens, givenTokens, issuerError, newAccountKey } from './tokens.ts'
import {
  type AccountTransaction,
  ownTransaction,
  transactionCookie,
  transactionDigest,
  transactionEnd,
} from './transaction.ts'
import type { AccountTokens, AccountVault, OurClient } from './vault.ts'

export interface ConnectorOptions {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly subjectKeys: Pick<SubjectKeys, 'find' | 'derived'>
  readonly vault: AccountVault
  readonly issuers: IssuerDirectory
  readonly clients: OurClients
  readonly peopleUrl: string | null
  readonly configDigest: () => string
  readonly clock: () => number
}

/** A code that was redeemed, and for what. */
interface RedeemedCode {
  readonly begun: AccountTransaction
  readonly found: FoundServer
  readonly ours: OurClient
  readonly given: GivenTokens
  readonly key: AccountTokens['key']
  readonly named: boolean
}

/** Connects accounts: the authorization code flow with PKCE (RFC 6749 §4.1, RFC 7636, RFC 8707, RFC 9207). */
export class AccountConnector {
  readonly #of: ConnectorOptions
  readonly #key: Buffer
  readonly #known: ReturnType<typeof accountLookup>

  constructor(options: ConnectorOptions) {
    this.#of = options
    this.#key = options.subjectKeys.derived('account transactions')
    this.#known = accountLookup(options.database)
  }

  async issuerOf(resource: AccountResource): Promise<FoundIssuer> {
    const { server } = await this.#of.issuers.of(resource)
    return { issuer: server.issuer, client: this.#of.clients.kindAt(server, settingsOf(resource)) }
  }

  async begin({ holder, resource, scopes, person, returnTo, at }: AccountBeginning): Promise<BegunAccount> {
    const settings = settingsOf(resource)
    const { server, audience } = await this.#of.issuers.of(resource)
    const ours = await this.#of.clients.at(server, settings)
    const asked = scopes.length > 0 ? scopes : settings.scopes
    const begun: AccountTransaction = {
      ...{ state: client.randomState(), verifier: client.randomPKCECodeVerifier() },
      ...{ issuer: server.issuer, client: ours.id, holder, resource: resource.resource_id },
      ...{ endpoint: resource.endpoint_url, scopes: [...asked], person, returnTo, at },
    }
    const location = client.buildAuthorizationUrl(await this.#of.clients.configuration(server, ours), {
      redirect_uri: this.#redirect(),
      state: begun.state,
      code_challenge: await client.calculatePKCECodeChallenge(begun.verifier),
      code_challenge_method: 'S256',
      resource: audience,
      ...(asked.length > 0 && { scope: asked.join(' ') }),
      // OpenID Connect Core 1.0 §11: without the question no refresh token.
      ...(asked.includes('offline_access') && { prompt: 'consent' }),
    })
    return { location: location.href, cookie: transactionCookie(this.#key, begun) }
  }

  async finish(answer: AccountAnswer): Promise<ConnectedAccount> {
    const begun = ownTransaction(this.#key, answer)
    const resource = await answer.resourceOf(begun.resource)
    if (!resource?.oauth || resource.endpoint_url !== begun.endpoint)
      throw new NotBegun('the server was changed meanwhile')
    await this.#claim(begun)
    const found = await this.#of.issuers.of(resource)
    const ours = await this.#of.clients.at(found.server, settingsOf(resource))
    if (found.server.issuer !== begun.issuer || ours.id !== begun.client)
      throw new NotBegun('the authorization server was changed meanwhile')
    checkIssuer(answer.query, found.server)
    const redeemed = await this.#redeem(answer, begun, found, ours)
    const named = resource.oauth.issuer !== undefined
    return { account: await this.#store({ ...redeemed, named }, answer), returnTo: begun.returnTo }
  }

  /** Ends a transaction, whichever replica sees its answer first. */
  async #claim(begun: AccountTransaction): Promise<void> {
    const { database, ledger } = this.#of
    const claim = claimOnce(database, transactionDigest(begun), transactionEnd(begun))
    try {
      await ledger.commit({ statements: [claim], entries: [] })
    } catch (error) {
      if (error instanceof LedgerError && error.code === 'duplicate')
        throw new NotBegun('this answer came before')
      throw error
    }
  }

  async #redeem(
    { query, at }: AccountAnswer,
    begun: AccountTransaction,
    found: FoundServer,
    ours: OurClient,
  ): Promise<Omit<RedeemedCode, 'named'>> {
    const { server, audience } = found
    const configuration = await this.#of.clients.configuration(server, ours)
    const key = await newAccountKey(server)
    try {
      const answer = await client.authorizationCodeGrant(
        configuration,
        new URL(`${this.#redirect()}?${query}`),
        { pkceCodeVerifier: begun.verifier, expectedState: begun.state },
        { resource: audience },
        key ? { DPoP: client.getDPoPHandle(configuration, key.pair) } : {},
      )
      const given = givenTokens(answer, begun.scopes, at)
      return { begun, found, ours, given, key: given.bound && key ? key.jwk : null }
    } catch (error) {
      throw issuerError(error, server.issuer)
    }
  }

  /** Stores the account with its row, in the place of the one that was there. */
  async #store(redeemed: RedeemedCode, answer: AccountAnswer) {
    const { database, ledger, configDigest } = this.#of
    const { holder, resource } = redeemed.begun
    const row = await this.#rowOf(redeemed, answer.at)
    const account = upstreamAccountOf(row)
    const before = await this.#replaced(holder, resource, answer.at)
    const facts = { client: redeemed.ours.kind, subjectSha256: await this.#commitment(redeemed, answer) }
    const notes = [...before.notes, accountConnectedNote(account, facts)]
    const by = { principal_id: answer.by.ref, principal_type: answer.by.type, request_id: answer.requestId }
    try {
      await ledger.commit({
        assertions: [mayHaveAccount(database, holder, resource)],
        statements: [...before.statements, insertAccount(database, row)],
        entries: notes.map((note) => ({ ...noteEntry(note, answer.at, configDigest()), ...by })),
      })
    } catch (error) {
      if (error instanceof LedgerError && error.code === 'stale')
        throw new ConnectRefused('the principal is not in service any more, or the server is gone')
      throw error
    }
    return account
  }

  async #rowOf({ begun, found, ours, given, key, named }: RedeemedCode, at: number): Promise<StoredAccount> {
    const { holder, resource: resourceId, issuer } = begun
    const id = `ua_${randomBytes(12).toString('hex')}`
    const { access, refresh } = given
    const held = {
      access,
      refresh,
      client: ours,
      key,
      endpoint: begun.endpoint,
      audience: found.audience,
      named,
    }
    return {
      ...{ account_id: id, principal_type: holder.type, principal_id: holder.id, principal_ref: holder.ref },
      ...{ resource_id: resourceId, issuer, scopes: given.scopes.join(' ') },
      tokens: await this.#of.vault.seal({ account: id, holder, resourceId, issuer }, held),
      ...{ bound: key ? 1 : 0, revision: 1, connected_at: timestamp(at), refreshed_at: null },
      expires_at: given.expiresAt === null ? null : timestamp(given.expiresAt),
      refreshing_until: null,
    }
  }

  async #replaced(
    holder: AccountHolder,
    resourceId: string,
    at: number,
  ): Promise<{ readonly statements: readonly LedgerStatement[]; readonly notes: readonly AuditNote[] }> {
    const { database, vault } = this.#of
    const row = await this.#known(holder, resourceId)
    if (!row) return { statements: [], notes: [] }
    const held = await vault.open(row)
    return {
      statements: [
        removeAccount(database, row.account_id),
        ...(held ? [insertRevocation(database, vault.revocation(row, held, at))] : []),
      ],
      notes: [accountEndedNote(upstreamAccountOf(row), 'replaced')],
    }
  }

  async #commitment({ begun, given }: RedeemedCode, { requestId }: AccountAnswer): Promise<string | null> {
    const key = given.subject === null ? null : await this.#of.subjectKeys.find(begun.holder.ref)
    return key && commitmentsBy(key, requestId).of('issuer_subject_sha256', given.subject ?? '')
  }

  #redirect(): string {
    return `${this.#of.peopleUrl ?? ''}${ACCOUNT_CALLBACK}`
  }
}

function settingsOf({ oauth }: AccountResource) {
  if (!oauth) throw new NotBegun('the server takes no accounts')
  return oauth
}

/** RFC 9207 §2.4: an answer of another issuer is none, whatever the library makes of it. */
function checkIssuer(query: string, server: client.ServerMetadata): void {
  const said = new URLSearchParams(query).getAll('iss')
  const isOwn = said.length === 1 && said[0] === server.issuer
  const isUnsaid = said.length === 0 && server.authorization_response_iss_parameter_supported !== true
  if (!isOwn && !isUnsaid) throw new NotBegun('the answer is of another issuer')
}
