import { AuthorizationResponseError, ClientError, ResponseBodyError } from 'openid-client'
import { isObject } from '../../../db/support/json.ts'
import { refusedTime, wrongTime } from '../../../plugins/dpop/jwt.ts'
import { clockRefusal, type Refusal, type RefusalReason, type WrongTime } from '../../../plugins/refusal.ts'
import { quotesSecret, secretTraces } from '../../../plugins/secrets/traces.ts'
import type { OidcOptions } from '../options.ts'

const MAX_DEPTH = 8
const MAX_CHARACTERS = 256
const QUOTING = 'left out: it repeats the client secret'

/** An error and its causes. */
function causesOf(error: unknown): readonly Error[] {
  const all: Error[] = []
  for (let at = error; at instanceof Error && all.length < MAX_DEPTH; at = at.cause) all.push(at)
  return all
}

/** An error of that class, among the causes of an error; null if there is none. */
export const findCause = <E extends Error>(error: unknown, of: new (...args: never[]) => E): E | null =>
  causesOf(error).find((one): one is E => one instanceof of) ?? null

/**
 * Says for the log why an answer of the identity provider does not hold, and nothing else of it: the errors
 * themselves carry the claims of the token. A text that repeats the client's secret is left out.
 */
export function oidcFailureFields(
  error: unknown,
  { client_id: id, client_secret: secret }: Pick<OidcOptions, 'client_id' | 'client_secret'>,
): Readonly<Record<'why' | 'error' | 'error_description', string | undefined>> {
  const causes = causesOf(error)
  const said = causes.find(
    (one) => one instanceof AuthorizationResponseError || one instanceof ResponseBodyError,
  )
  const pair = [id, secret].map(encodeURIComponent).join(':')
  const basic = [`${id}:${secret}`, pair].map((text) => Buffer.from(text).toString('base64'))
  const traces = secretTraces([secret, ...basic])
  const told = (text: string | undefined): string | undefined =>
    text !== undefined && quotesSecret(traces, Buffer.from(text)) ? QUOTING : text
  return {
    why: told(causes.map(({ message }) => message).join(': ')),
    error: told(said?.error)?.slice(0, MAX_CHARACTERS),
    error_description: told(said?.error_description)?.slice(0, MAX_CHARACTERS),
  }
}

/** The cure for a clock of the identity provider's, or ours. */
const SET_ONE_CLOCK = 'Set the clock of the gateway or of the identity provider, and try again.'

/** Makes the refusal of a token of the provider's for its time alone; null if its time is not the fault. */
export function clockRefusalOf(error: unknown, reason: RefusalReason, at: number): Refusal | null {
  const wrong = refusedTime(error) ?? libraryTime(error)
  const what = 'The token of the identity provider'
  return wrong && clockRefusal(reason, { ...wrong, what, at, cure: SET_ONE_CLOCK, cause: error })
}

// The library judges exp and nbf before we do, and tells the claims as the cause of its error's cause.
function libraryTime(error: unknown): WrongTime | null {
  if (!(error instanceof ClientError && error.code === 'OAUTH_JWT_TIMESTAMP_CHECK_FAILED')) return null
  const found = error.cause instanceof Error ? error.cause.cause : null
  return isObject(found) && isObject(found.claims) ? wrongTime(found.claim, found.claims) : null
}
