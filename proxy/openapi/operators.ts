import { z } from 'zod'
import type { RefusalReason } from '../../plugins/refusal.ts'
import { EXAMPLE_ID, type RouteDoc } from '../http/doc.ts'
import { logoutRefusal } from '../operators/oidc/logout.ts'
import { refusalPage } from '../operators/pages/page.ts'
import { BODY_REASONS, KNOWN_CALLER_REASONS } from './reasons.ts'

const HTML = { media: 'text/html', schema: z.string() }
const FORM = 'application/x-www-form-urlencoded'

const page = (description: string, headers?: Readonly<Record<string, string>>) => ({
  description,
  content: [HTML],
  ...(headers && { headers }),
})
const elsewhere = (description: string, headers: Readonly<Record<string, string>> = {}) => ({
  description,
  headers: { Location: 'Where the browser goes on.', ...headers },
})
const COOKIE = { 'Set-Cookie': 'The session: `__Host-sallyport`, HttpOnly, Secure, SameSite=Strict.' }
const FORGOTTEN = {
  'Set-Cookie': 'The session is gone.',
  'Clear-Site-Data': 'The browser forgets what it has kept of this host.',
}

const next = z.object({
  next: z.string().exactOptional().meta({ description: 'The page under /proxy to go on with.' }),
})

type SignInRouteDoc = Pick<RouteDoc, 'name' | 'summary' | 'answers'> & Partial<RouteDoc>

const described = (doc: SignInRouteDoc, ...reasons: readonly RefusalReason[]): RouteDoc => ({
  caller: 'anyone',
  refuse: (refusal) => refusalPage(refusal, { id: EXAMPLE_ID }),
  ...doc,
  reasons,
})

export const SIGN_IN_PAGE = described({
  name: 'getSignIn',
  summary: 'The page of the ways to sign in with a browser.',
  query: next,
  answers: { 200: page('The ways that there are.') },
})

export const SIGN_IN = described(
  {
    name: 'signIn',
    summary: 'Signs a browser in by the operator secret.',
    query: next,
    body: { media: FORM, schema: z.strictObject({ secret: z.string() }) },
    answers: { 303: elsewhere('Signed in.', COOKIE) },
  },
  'origin_not_allowed',
  'body_invalid',
  'body_too_large',
  'admin_secret_invalid',
  'admin_throttled',
  'sign_in_throttled',
  'overloaded',
)

export const SIGN_IN_BY_CERTIFICATE = described(
  {
    name: 'signInByCertificate',
    summary:
      "Signs a browser in by the operator's certificate that its connection has shown. The session is good with that certificate alone.",
    query: next,
    body: { media: FORM, schema: z.strictObject({}) },
    answers: { 303: elsewhere('Signed in.', COOKIE) },
  },
  ...KNOWN_CALLER_REASONS,
  ...BODY_REASONS,
  'sign_in_throttled',
  'sign_in_refused',
)

export const SIGN_OUT = described(
  {
    name: 'signOut',
    summary:
      'Ends the session of a browser, and the one with the identity provider where it has a page for that.',
    headers: { 'X-Csrf-Token': "The session's token, where the field does not carry it." },
    body: { media: FORM, schema: z.strictObject({ csrf: z.string().exactOptional() }) },
    answers: {
      200: page('Signed out here. The page leads on to the identity provider.', FORGOTTEN),
      303: elsewhere('Signed out.', FORGOTTEN),
    },
  },
  'origin_not_allowed',
  'csrf_invalid',
  'body_invalid',
  'body_too_large',
  'principal_deactivated',
)

export const SIGN_IN_START = described(
  {
    name: 'startSignIn',
    summary: 'Sends a browser to the identity provider.',
    query: next,
    answers: {
      200: page('A browser that comes from another site: the page leads it on.'),
      303: elsewhere('To the identity provider.', {
        'Set-Cookie': 'What this sign-in was begun with, sealed, for ten minutes.',
      }),
    },
  },
  'not_found',
  'sign_in_unavailable',
)

export const SIGN_IN_CALLBACK = described(
  {
    name: 'finishSignIn',
    summary: 'Takes the answer of the identity provider (RFC 6749 §4.1.2, RFC 9207).',
    query: z.object({
      code: z.string().exactOptional(),
      state: z.string().exactOptional(),
      iss: z.string().exactOptional(),
      error: z.string().exactOptional(),
    }),
    answers: { 200: page('Signed in. The page leads on.', COOKIE) },
  },
  'not_found',
  'sign_in_throttled',
  'sign_in_not_begun',
  'sign_in_refused',
  'sign_in_unavailable',
  'overloaded',
)

export const LOGOUT = described(
  {
    name: 'backchannelLogout',
    summary: 'Ends the sessions that the identity provider names (OpenID Connect Back-Channel Logout 1.0).',
    body: { media: FORM, schema: z.strictObject({ logout_token: z.string() }) },
    answers: { 200: { description: 'They are ended.' } },
    refuse: (refusal) => logoutRefusal(refusal, { id: EXAMPLE_ID }),
  },
  'not_found',
  'body_invalid',
  'body_too_large',
  'logout_token_invalid',
  'sign_in_unavailable',
)
