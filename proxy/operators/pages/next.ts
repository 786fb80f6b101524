/** The page that is shown where no other was asked for. */
export const HOME = '/proxy'

const LOCAL = /^\/proxy(?:[/?][!-~]*)?$/
/** They lead back to themselves. */
const OF_SIGN_IN = /^\/proxy\/(?:sign-in|sign-out|oidc\/)/
const MAX_CHARACTERS = 512

/** Where to go after sign-in: a page of ours, or {@link HOME} for anything else. */
export function nextOf(query: string): string {
  const next = new URLSearchParams(query).get('next') ?? ''
  const isOurs = next.length <= MAX_CHARACTERS && LOCAL.test(next) && !OF_SIGN_IN.test(next)
  // As a browser reads it: `..` leads nowhere else.
  const path = isOurs ? URL.parse(next, 'https://sallyport.invalid')?.pathname : undefined
  return path !== undefined && /^\/proxy(?:\/|$)/.test(path) && !OF_SIGN_IN.test(path) ? next : HOME
}

/** The same as the query of a link. */
export const withNext = (path: string, next: string): string =>
  next === HOME ? path : `${path}?next=${encodeURIComponent(next)}`
