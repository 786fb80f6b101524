export const HOME_PAGE = '/proxy'

const LOCAL = /^\/proxy(?:[/?][!-~]*)?$/
/** They lead back to themselves. */
const SIGN_IN_PATHS = /^\/proxy\/(?:sign-in|sign-out|oidc\/)/
const MAX_CHARACTERS = 512

/** The page after sign-in: a page of ours, or {@link HOME_PAGE} for anything else. */
export function nextPage(query: string): string {
  const next = new URLSearchParams(query).get('next') ?? ''
  const isOurs = next.length <= MAX_CHARACTERS && LOCAL.test(next) && !SIGN_IN_PATHS.test(next)
  // Parsed as a browser does: `..` leads nowhere else.
  const path = isOurs ? URL.parse(next, 'https://sallyport.invalid')?.pathname : undefined
  return path !== undefined && /^\/proxy(?:\/|$)/.test(path) && !SIGN_IN_PATHS.test(path) ? next : HOME_PAGE
}

export const withNext = (path: string, next: string): string =>
  next === HOME_PAGE ? path : `${path}?next=${encodeURIComponent(next)}`
