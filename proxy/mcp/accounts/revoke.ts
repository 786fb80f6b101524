import * as client from 'openid-client'
import type { Database } from '../../../db/database.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import {
  dueRevocations,
  postponeRevocation,
  removeRevocation,
  type StoredRevocation,
} from '../../../db/mcp/accounts.ts'
import type { OurClients } from './clients.ts'
import type { IssuerDirectory } from './issuers.ts'
import { oauthErrorOf } from './tokens.ts'
import type { AccountVault } from './vault.ts'

/** The revocations that are tried at one time: each may take as long as an issuer may. */
const AT_ONCE = 20
const FIRST_PAUSE_MS = 60_000
const MAX_PAUSE_MS = 3_600_000

interface RevokerOptions {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly vault: AccountVault
  readonly issuers: IssuerDirectory
  readonly clients: OurClients
  readonly clock: () => number
}

/**
 * Tells issuers to revoke tokens of accounts that have ended (RFC 7009): again after a minute, then ever more
 * rarely, for a day. One that says no has been told. Does NOT ask whether this process leads.
 */
export function tokenRevoker(options: RevokerOptions): () => Promise<void> {
  const { database, ledger, clock } = options
  return async () => {
    const due = await dueRevocations(database, clock(), AT_ONCE)
    const statements = await Promise.all(
      due.map(async (row) => {
        if (await isTold(options, row)) return removeRevocation(database, row.account_id)
        const next = clock() + Math.min(FIRST_PAUSE_MS * 2 ** row.tries, MAX_PAUSE_MS)
        return next < Date.parse(row.until)
          ? postponeRevocation(database, row, next)
          : removeRevocation(database, row.account_id)
      }),
    )
    if (statements.length > 0) await ledger.commit({ statements, entries: [] })
  }
}

/** Tells an issuer. False: it could not be asked. */
async function isTold({ vault, issuers, clients }: RevokerOptions, row: StoredRevocation): Promise<boolean> {
  const held = vault.openRevocation(row)
  if (!held) return true
  try {
    const server = await issuers.server(row.issuer, held.named)
    if (server.revocation_endpoint === undefined) return true
    const configuration = await clients.configuration(server, held.client)
    // The refresh token first: with it most issuers revoke all that came of it.
    if (held.refresh !== null)
      await client.tokenRevocation(configuration, held.refresh, { token_type_hint: 'refresh_token' })
    await client.tokenRevocation(configuration, held.access, { token_type_hint: 'access_token' })
    return true
  } catch (error) {
    return oauthErrorOf(error) !== null
  }
}
