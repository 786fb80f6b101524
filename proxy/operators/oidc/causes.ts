import { AuthorizationResponseError, ResponseBodyError } from 'openid-client'

const MAX_DEPTH = 8
const MAX_CHARACTERS = 256

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
 * themselves carry the claims of the token.
 */
export function oidcFailureFields(
  error: unknown,
): Readonly<Record<'why' | 'error' | 'error_description', string | undefined>> {
  const causes = causesOf(error)
  const said = causes.find(
    (one) => one instanceof AuthorizationResponseError || one instanceof ResponseBodyError,
  )
  return {
    why: causes.map(({ message }) => message).join(': '),
    error: said?.error.slice(0, MAX_CHARACTERS),
    error_description: said?.error_description?.slice(0, MAX_CHARACTERS),
  }
}
