import type { ProviderContext, ProviderToken } from 'oidc-provider'
import type { Database } from '../../../db/database.ts'
import {
  findGrant,
  grantLookup,
  grantsOf,
  insertGrant,
  MAX_GRANTS_PER_USER,
  type PeopleGrant,
  removeGrants,
} from '../../../db/people/grants.ts'
import { removeGrantStates } from '../../../db/people/states.ts'
import { authorityUnchanged } from '../../../db/principals/pins.ts'
import { findPrincipal, type PrincipalRecord } from '../../../db/principals/read.ts'
import { type AuditNote, noteEntry } from '../../../plugins/audit/entries.ts'
import { grantEndedNote, grantIssuedNote, grantTokenDetail } from '../../../plugins/people/rows.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { PrincipalQuota } from '../../../plugins/secrets/quota.ts'
import { grantClientOf } from './clients.ts'
import type { TokenParts } from './provider.ts'
import { currentUnit } from './unit.ts'

export interface IssueDependencies {
  readonly database: Database
  readonly configDigest: string
  /** Counts the tokens of each grant. */
  readonly tokens: PrincipalQuota
}

/** The scopes that stand for all that a person holds. */
const WHOLE: readonly string[] = ['mcp', 'llm']

/** Makes the look-up of a user who may sign in, or whose grant a refresh token is of. */
export function userFinder({ database }: Pick<IssueDependencies, 'database'>) {
  const lookup = grantLookup(database, 'asked')
  return async (id: string, token?: ProviderToken): Promise<PrincipalRecord | undefined> => {
    const user = await findPrincipal(database, 'user', id)
    if (!user?.is_active) return undefined
    if (token?.kind !== 'RefreshToken') return user
    const held = await lookup(token.grantId)
    const { at } = currentUnit().arrival
    return held && held.grant.expiresAt > at && held.grant.principalId === id ? user : undefined
  }
}

/**
 * Makes the function that completes an access token before it is signed: with the first of a grant its row is
 * written, with each the row of the token, in the unit of the request. No token leaves without its rows.
 */
export function tokenIssuer(means: IssueDependencies) {
  const { database, configDigest, tokens } = means
  const unchanged = authorityUnchanged(database)
  return async ({ oidc }: ProviderContext, token: ProviderToken, parts: TokenParts): Promise<void> => {
    const unit = currentUnit()
    const user = await findPrincipal(database, 'user', token.accountId)
    if (!user?.is_active) throw unit.refuse(new Refusal('principal_deactivated'))
    const waitS = tokens.consume(token.grantId)
    if (waitS > 0) unit.refuse(new Refusal('token_throttled', { headers: { 'retry-after': String(waitS) } }))
    const { AuthorizationCode: code, Grant: allowed } = oidc.entities
    if (code && allowed)
      await beginGrant(means, user, {
        id: token.grantId,
        principalId: user.principal_id,
        client: grantClientOf(oidc.client.clientId, code.redirectUri ?? null),
        kind: 'code',
        ...grantTerms(token, allowed.exp * 1000, code.amr ?? []),
      })
    else if (oidc.entities.RefreshToken) await requireSameKey(database, token)
    const grant = { id: token.grantId, bound: token.jkt ? 'key' : 'none' } as const
    unit.record({
      ...rowOf(
        { action: 'token.issued', detail: grantTokenDetail(grant, token.scope ?? '') },
        user,
        configDigest,
      ),
      dpop_jkt: token.jkt ?? null,
    })
    unit.assert(unchanged('user', user.principal_ref, user.authority_revision))
    Object.assign(parts.payload, { sub: user.principal_ref, grant: token.grantId })
  }
}

/** Refuses a key that the grant was not issued to: the person has consented to another grade. */
async function requireSameKey(
  database: Database,
  { grantId, jkt }: Pick<ProviderToken, 'grantId' | 'jkt'>,
): Promise<void> {
  const grant = await findGrant(database, grantId)
  if (grant && grant.jkt === (jkt ?? null)) return
  const { errors } = await import('oidc-provider')
  throw new errors.InvalidGrant('the grant is of another key')
}

/** Reads the terms of a grant from its first token. `expiresAt`: ms since the epoch. */
export function grantTerms(
  { scope = '', aud = '', jkt }: Pick<ProviderToken, 'scope' | 'aud' | 'jkt'>,
  expiresAt: number,
  amr: readonly string[],
): Pick<PeopleGrant, 'scope' | 'resource' | 'bound' | 'jkt' | 'amr' | 'issuedAt' | 'expiresAt'> {
  const names = scope.split(' ').filter((name) => name !== '')
  return {
    scope: names.some((name) => WHOLE.includes(name)) ? null : names,
    resource: aud,
    bound: jkt ? 'key' : 'none',
    jkt: jkt ?? null,
    amr,
    issuedAt: currentUnit().arrival.at,
    expiresAt,
  }
}

/** Writes a grant with its row, and ends the user's oldest if it would be one too many. */
export async function beginGrant(
  { database, configDigest }: IssueDependencies,
  user: PrincipalRecord,
  grant: PeopleGrant,
): Promise<void> {
  const unit = currentUnit()
  const held = await grantsOf(database, user.principal_id)
  const excess = held.slice(MAX_GRANTS_PER_USER - 1)
  if (excess.length > 0) {
    const ids = excess.map(({ id }) => id)
    unit.write(removeGrants(database, ids), removeGrantStates(database, ids))
    for (const one of excess)
      unit.record(rowOf(grantEndedNote(one, user.principal_ref, 'replaced'), user, configDigest))
  }
  unit.write(insertGrant(database, grant))
  unit.record(rowOf(grantIssuedNote(grant, user.principal_ref), user, configDigest))
}

/** Makes a row about a user by themself, of the request under way. */
export function rowOf(note: AuditNote, { principal_ref: ref }: PrincipalRecord, configDigest: string) {
  const { id, at } = currentUnit().arrival
  return {
    ...noteEntry(note, at, configDigest),
    request_id: id,
    principal_id: ref,
    principal_type: 'user' as const,
  }
}
