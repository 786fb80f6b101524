import { hash } from 'node:crypto'
import { decodeJwt, type JWTPayload } from 'jose'
import { LedgerError } from '../../../db/ledger/record/entry.ts'
import { endSessionsOfLogout, type StoredSession, sessionsOfLogout } from '../../../db/operators/sessions.ts'
import { claimOnce } from '../../../db/single-uses.ts'
import { isObject } from '../../../db/support/json.ts'
import { noteEntry } from '../../../plugins/audit/entries.ts'
import { isReplay } from '../../../plugins/dpop/single-use.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { jsonReply, type Reply } from '../../http/reply.ts'
import type { SubmittedForm } from '../pages/form.ts'
import { ROW_DIGITS } from '../sessions/open.ts'
import type { SignInContext } from '../signing-in.ts'
import { clockRefusalOf } from './causes.ts'
import type { IdentityProvider } from './provider.ts'
import { ProviderUnavailable } from './provider-fetch.ts'

const EVENT = 'http://schemas.openid.net/event/backchannel-logout'

/** The oldest logout token: one is sent as it is made. Seconds. */
const MAX_LOGOUT_TOKEN_AGE_S = 120
const MAX_CHARACTERS = 256

/**
 * POST /proxy/oidc/backchannel-logout: the provider says that somebody has signed out there (OpenID Connect
 * Back-Channel Logout 1.0 §2.6). Ends the sessions that it names, with a row for each. Refuses with
 * `logout_token_invalid`.
 */
export const backchannelLogout =
  (signing: Pick<SignInContext, 'context' | 'provider' | 'anonymous'>) =>
  async ({ form, id, at }: Arrival & SubmittedForm): Promise<Reply> => {
    const { provider, context, anonymous } = signing
    if (!provider) throw new Refusal('not_found')
    try {
      const logout = await verifyLogoutToken(provider, form.get('logout_token') ?? '', at)
      await endNamedSessions(context, logout, { id, at })
      return { status: 200 }
    } catch (error) {
      const refusal = refusalOf(error, at)
      if (refusal.reason === 'logout_token_invalid') anonymous.count(refusal.reason)
      throw refusal
    }
  }

function refusalOf(error: unknown, at: number): Refusal {
  if (error instanceof Refusal) return error
  if (error instanceof ProviderUnavailable) return new Refusal('sign_in_unavailable', { cause: error })
  if (error instanceof LedgerError && !isReplay(error))
    return new Refusal('audit_unavailable', { cause: error })
  return (
    clockRefusalOf(error, 'logout_token_invalid', at) ?? new Refusal('logout_token_invalid', { cause: error })
  )
}

/**
 * Renders a refusal as the specification has it (§2.8), with the members of every refusal of this service.
 */
export const logoutRefusal = (
  { status, message, headers, reason, detail }: Refusal,
  { id }: Pick<Arrival, 'id'>,
): Reply => {
  const fields = { reason, ...detail, request_id: id }
  const error = status < 500 ? 'invalid_request' : 'temporarily_unavailable'
  return jsonReply(status, { error, error_description: message, message, ...fields, detail: fields }, headers)
}

interface LogoutClaims {
  readonly issuer: string
  readonly subject: string | null
  readonly providerSession: string | null
  readonly jti: string
}

async function verifyLogoutToken(
  provider: IdentityProvider,
  token: string,
  at: number,
): Promise<LogoutClaims> {
  const { issuer } = provider.options
  // Before anything is asked of the provider: a token that does not even claim to come from it costs it
  // nothing.
  if (decodeJwt(token).iss !== issuer) throw new Error('another issuer')
  const requiredClaims = ['iat', 'jti', 'events']
  const claims = await provider.verify(token, at, MAX_LOGOUT_TOKEN_AGE_S, { requiredClaims })
  const { jti, sub, sid, events, nonce } = claims as JWTPayload & Record<'sid' | 'events' | 'nonce', unknown>
  // §2.6, checks 4 to 8. A nonce stands in ID tokens: none of them is a logout.
  if (!isObject(events) || !isObject(events[EVENT]) || nonce !== undefined || !isText(jti))
    throw new Error('not a logout token')
  const [subject, providerSession] = [optionalName(sub), optionalName(sid)]
  if (subject === null && providerSession === null) throw new Error('it names nobody')
  return { issuer, subject, providerSession, jti }
}

const isText = (value: unknown): value is string =>
  typeof value === 'string' && value !== '' && value.length <= MAX_CHARACTERS

function optionalName(value: unknown): string | null {
  if (value === undefined) return null
  if (!isText(value)) throw new Error('a name that is none')
  return value
}

async function endNamedSessions(
  { database, ledger, configDigest }: SignInContext['context'],
  logout: LogoutClaims,
  { id, at }: Pick<Arrival, 'id' | 'at'>,
): Promise<void> {
  const { newest, total } = await sessionsOfLogout(database, logout)
  const digest = hash('sha256', `logout ${logout.issuer} ${logout.jti}`)
  await ledger.commit({
    statements: [
      // Longer than a copy of it would be believed.
      claimOnce(database, digest, at + 10 * MAX_LOGOUT_TOKEN_AGE_S * 1000),
      endSessionsOfLogout(database, logout),
    ],
    entries: newest.map((session) =>
      entryOf(session, logout, { id, at }, configDigest, total - newest.length),
    ),
  })
}

const entryOf = (
  { id_sha256: digest, principal_id: principalId }: StoredSession,
  { issuer }: LogoutClaims,
  { id, at }: Pick<Arrival, 'id' | 'at'>,
  configDigest: string,
  unnamed: number,
) => ({
  ...noteEntry(
    {
      action: 'admin.signed_out',
      detail: {
        ...{ via: 'oidc', by: 'provider', issuer, session: digest.slice(0, ROW_DIGITS) },
        // By an earlier version, which knew no bound.
        ...(unnamed > 0 && { others: unnamed }),
      },
    },
    at,
    configDigest,
  ),
  request_id: id,
  principal_id: principalId,
  principal_type: 'operator',
})
