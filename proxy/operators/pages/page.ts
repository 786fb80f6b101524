import { hash } from 'node:crypto'
import type { Arrival } from '../../../plugins/plugin.ts'
import type { Refusal } from '../../../plugins/refusal.ts'
import { challengeHeaders } from '../../http/refusal.ts'
import type { Reply } from '../../http/reply.ts'
import { EMPTY_HTML, type HtmlFragment, html } from './html.ts'

const HOME_PAGE = '/proxy'

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

const STYLE = `
:root{color-scheme:light dark;font:1rem/1.5 system-ui,sans-serif}
body{max-width:34rem;margin:12vh auto 0;padding:0 1rem;background:light-dark(#fff,#14171a);color:light-dark(#1a1d21,#e7eaee);overflow-wrap:break-word}
h1{font-size:1.25rem}
dt{opacity:.7}dd{margin:0 0 .5rem;overflow-wrap:anywhere}
form{margin:1.5rem 0}
input,button,a.button{font:inherit;padding:.5rem .75rem}
input{display:block;width:100%;box-sizing:border-box;margin:.25rem 0 .75rem}
input,button,a.button{border:1px solid light-dark(#5a636e,#a3adb8);border-radius:.375rem}
button,a.button{display:inline-block;background:light-dark(#0b5cad,#7db8f7);border-color:transparent;color:light-dark(#fff,#14171a);text-decoration:none}
:focus-visible{outline:3px solid light-dark(#0b5cad,#7db8f7);outline-offset:2px}
small{opacity:.7}
pre{white-space:pre-wrap;overflow-wrap:anywhere}
`

const POLICY = [
  "default-src 'none'",
  "form-action 'self'",
  `style-src 'sha256-${hash('sha256', STYLE, 'base64')}'`,
  "frame-ancestors 'none'",
  "base-uri 'none'",
].join('; ')

export const PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  // Not `no-referrer`: browsers then send `Origin: null` with a form.
  'referrer-policy': 'same-origin',
  'x-frame-options': 'DENY',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
}

const HEADERS = { ...PAGE_HEADERS, 'content-security-policy': POLICY }

interface PlainPage {
  readonly title: string
  readonly body: HtmlFragment
  readonly head?: HtmlFragment
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
}

/** Makes a page, which works without a script and loads nothing. */
export const plainPage = ({
  title,
  body,
  head = EMPTY_HTML,
  status = 200,
  headers = {},
}: PlainPage): Reply => ({
  status,
  headers: { ...HEADERS, ...headers },
  body: `<!doctype html>
${
  html`<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${title} · Sallyport</title>${head}<style>`.text
}${STYLE}</style></head>
<body><h1>${title}</h1>${body.text}</body></html>
`,
})

/** Makes a page that leads on by itself: Strict cookies go only with requests of our own pages. */
export const redirectPage = (to: string, headers: Readonly<Record<string, string>> = {}): Reply =>
  plainPage({
    title: 'One moment',
    head: html`<meta http-equiv="refresh" content="0;url=${to}">`,
    body: html`<p><a class="button" href="${to}">Continue</a></p>`,
    headers,
  })

export const refusalPage = (
  refusal: Refusal,
  { id }: Pick<Arrival, 'id'>,
  more: Readonly<Record<string, string>> = {},
): Reply =>
  plainPage({
    status: refusal.status,
    title: 'This did not work',
    body: html`<p>${refusal.message}</p><p><a href="/proxy/sign-in">Sign in</a></p><p><small>${id}</small></p>`,
    headers: { ...challengeHeaders(refusal), ...refusal.headers, ...more },
  })

export const seeOther = (location: string, headers: Readonly<Record<string, string>> = {}): Reply => ({
  status: 303,
  headers: { location, ...headers },
})
