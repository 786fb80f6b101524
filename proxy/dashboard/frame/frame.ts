import { hash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { listStops, type StopRecord } from '../../../db/stops/store.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { ledgerHead } from '../../admin/audit/audit.ts'
import type { AnchorStanding } from '../../admin/operation/shapes.ts'
import { stoppedText } from '../../admin/stops/words.ts'
import { challengeHeaders } from '../../http/refusal.ts'
import type { Reply } from '../../http/reply.ts'
import { isFromOtherOrigin } from '../../operators/pages/form.ts'
import { PAGE_HEADERS, redirectPage, seeOther, withNext } from '../../operators/pages/page.ts'
import type { DashboardContext } from './dashboard.ts'
import { csrf, EMPTY_HTML, type HtmlFragment, html, problemList, relativeTime } from './parts.ts'

export type DashboardPage = (
  dashboard: DashboardContext,
  facts: AdministrationFacts,
) => Promise<PageContent> | PageContent

export const pageHandler =
  (page: DashboardPage, dashboard: DashboardContext) =>
  async (facts: AdministrationFacts): Promise<Reply> =>
    frame(dashboard, facts, await page(dashboard, facts))

export interface PageContent {
  readonly title: string
  /** The entry of the navigation that it belongs to: a path of {@link SECTIONS}. */
  readonly section: string
  readonly body: HtmlFragment
  readonly status?: number
  /** The path of a script of its own, which runs after the one that all have. */
  readonly script?: string
}

/** The pages that are opened every day, in this order, and their subpages. */
export const SECTIONS: readonly (readonly [path: string, name: string])[] = [
  ['/proxy', 'Attention'],
  ['/proxy/activity', 'Activity'],
  ['/proxy/agents', 'Agents'],
  ['/proxy/users', 'Users'],
  ['/proxy/workloads', 'Workloads'],
  ['/proxy/operators', 'Operators'],
  ['/proxy/tools', 'Tools'],
  ['/proxy/providers', 'Providers'],
  ['/proxy/limits', 'Limits'],
  ['/proxy/costs', 'Costs'],
  ['/proxy/stops', 'Stops'],
  ['/proxy/capabilities', 'Capabilities'],
  ['/proxy/pki', 'PKI'],
  ['/proxy/proof', 'Proof'],
  ['/proxy/archive', 'Archive'],
  ['/proxy/exports', 'Exports'],
  ['/proxy/settings', 'Settings'],
]

/** Nothing inline, nothing from elsewhere, no script but ours. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "form-action 'self'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "require-trusted-types-for 'script'",
  'trusted-types sallyport',
].join('; ')

const HEADERS = { ...PAGE_HEADERS, 'content-security-policy': POLICY }

const VIA: Readonly<Record<string, string>> = {
  oidc: 'the identity provider',
  secret: 'the operator secret',
  certificate: 'a certificate',
}

const signInText = (via: string, amr: readonly string[]): string =>
  `${VIA[via] ?? via}${amr.length > 0 ? ` (${amr.join(', ')})` : ''}`

/** A form's result, by the word that its redirect carries: never by a text of the URL. */
const NOTICES: Readonly<Record<string, string>> = {
  updated: 'Updated. One row in the ledger says so.',
  unchanged: 'Nothing was changed: it was already so.',
  tried: 'This set is judged alongside the real one from now on, and decides nothing.',
  untried: 'The other set is removed, and no longer tried.',
  erased: 'Erased. Nobody can open what the ledger says about it any more.',
  proposed: 'This change is waiting for a second operator. See Attention.',
  deactivated: 'Deactivated. It is refused from its next call on.',
  reactivated: 'Reactivated.',
  ended: 'The session is over.',
  certificate_ended: 'The certificate has ended: calls by it are refused, and those under way are cut.',
  key_ended: 'The proof key has ended.',
  key_adopted: 'The key is registered: only calls that it has signed are allowed from now on.',
  rotated:
    'The operator secret has been changed. Everybody who was signed in with the old one is signed out.',
  disabled: 'The operator secret is disabled. Only the gateway’s own machine can enable it again.',
  approved: 'Approved. The tool can be called as it is described now.',
  rejected: 'Rejected. The tool stays in quarantine, and asks again only with another definition.',
  removed: 'Removed, with its tools and bindings.',
  server_approved: 'Approved. Models now get the instructions that you have read.',
  refreshed: 'The server was read.',
  registered:
    'Registered. Check that it could be read, read what its tools say, and bind those who may reach it.',
  enabled: 'The server is enabled: everybody who is bound to it can reach it again.',
  switched_off: 'The server is disabled: nobody can reach it.',
  bound: 'Bound.',
  revoked: 'Unbound.',
  attached: 'The CA is attached.',
  detached: 'The CA is detached.',
  trusted: 'The CA vouches from now on.',
  ca_prepared: 'The next CA is made. Both are trusted and exported from now on.',
  ca_issued: 'The next CA issues from now on. Old certificates are still accepted.',
  ca_finished: 'The old CA has ended, and every certificate of it.',
  ca_cancelled: 'The last step is taken back.',
  leaf_pinned: 'The agent is known by this certificate from now on.',
  bundle_replaced: 'The trust bundle is replaced.',
  bundle_ended: 'The bundles before have ended: an SVID of their CAs is refused.',
  distrusted: 'The CA no longer vouches for this agent.',
  confirmed: 'Confirmed: the change is made.',
  declined: 'Declined.',
  call_approved: 'Approved: the call passes once, if it is sent again in time.',
  grant_ended: 'The grant has ended: the next call by it is refused.',
  account_ended: 'The account has ended. The issuer is asked to revoke its tokens.',
  deferred: 'Done. One row in the ledger says so.',
  archive_asked: 'The gateway that leads looks after it. This page says what came of it.',
  stop_begun: 'Stopped. Calls under way are cut.',
  stop_ended: 'Ended: its calls are judged as before.',
  limit_made: 'The limit is made: it holds from the next call on.',
  limit_changed: 'Changed: it holds from the next call on.',
  limit_removed: 'Removed. What was counted stays in the ledger.',
  reviewed: 'Your review is recorded.',
}

export const navigation = (section: string, needing: number | null = null): HtmlFragment =>
  html`<nav aria-label="Pages">${SECTIONS.map(
    ([path, name]) =>
      html`<a href="${path}"${path === section ? html` aria-current="page"` : EMPTY_HTML}>${name}${path === '/proxy' && needing ? html` <b class="badge warn" id="attention-count" title="What needs a person">${needing.toLocaleString('en')}</b>` : EMPTY_HTML}</a>`,
  )}</nav>`

export const sectionOf = (path: string): string =>
  SECTIONS.findLast(([section]) => path === section || path.startsWith(`${section}/`))?.[0] ?? '/proxy'

type PageReply = Reply & { readonly body: string }

export async function frame(
  { context, countAttention }: DashboardContext,
  facts: AdministrationFacts,
  { title, section, body, status = 200, script }: PageContent,
): Promise<PageReply> {
  const { actor, session, at, query } = facts
  const [head, anchors, stops] = await Promise.all([
    ledgerHead(context),
    context.anchors(),
    listStops(context.database),
  ])
  const needing = (await countAttention?.(facts, head?.row_hash ?? '')) ?? null
  const notice = NOTICES[new URLSearchParams(query).get('notice') ?? '']
  return htmlDocument(
    title,
    html`<a class="skip" href="#main">Skip to the page</a>
<header><a class="brand" href="/proxy">Sallyport</a>
${navigation(section, needing)}
<div class="head"><a href="/proxy/proof" title="The last row of the ledger">${
      head
        ? html`ledger ${String(head.seq)} <code>${head.row_hash.slice(0, 8)}</code> ${relativeTime(head.recorded_at, at)}`
        : 'ledger empty'
    }${renderAnchorStanding(anchors, at)}</a>
<a class="who" href="/proxy/settings" title="Signed in by ${signInText(actor.via, session?.amr ?? [])}">${actor.id}</a><form method="post" action="/proxy/sign-out" class="inline">${csrf(session)}<button class="quiet">Sign out</button></form><a class="button danger" href="/proxy/stops">Stop</a></div></header>${stopBanner(stops)}
<main id="main" tabindex="-1">${notice === undefined ? EMPTY_HTML : html`<p class="notice" role="status">${notice}</p>`}<h1>${title}</h1>${body}</main>`,
    status,
    {},
    script,
  )
}

/** Says on every page that calls are stopped. */
const stopBanner = (stops: readonly StopRecord[]): HtmlFragment =>
  stops.length === 0
    ? EMPTY_HTML
    : html`<p class="stopped" role="alert"><a href="/proxy/stops">Stopped: ${stops
        .slice(0, 3)
        .map(({ scope }) => stoppedText(scope))
        .join('; ')}${stops.length > 3 && ` and ${stops.length - 3} more`}</a></p>`

function renderAnchorStanding(anchors: readonly AnchorStanding[], now: number): HtmlFragment {
  if (anchors.length === 0) return EMPTY_HTML
  const [newest = null] = anchors
    .flatMap(({ kept_at: at }) => at ?? [])
    .toSorted()
    .toReversed()
  const late = anchors.some((anchor) => anchor.late)
  return html` · anchored ${relativeTime(newest, now)}${late ? html` <span class="badge warn">late</span>` : EMPTY_HTML}`
}

export const htmlDocument = (
  title: string,
  body: HtmlFragment,
  status = 200,
  headers: Readonly<Record<string, string>> = {},
  script?: string,
): PageReply => ({
  status,
  headers: { ...HEADERS, ...headers },
  body: `<!doctype html>
${
  html`<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} · Sallyport</title><link rel="stylesheet" href="${ASSETS.style.path}"><link rel="icon" href="data:,">
<script src="${ASSETS.script.path}" defer></script>${script === undefined ? EMPTY_HTML : html`<script src="${script}" defer></script>`}</head><body>${body}</body></html>`
    .text
}
`,
})

const NAVIGATION = html`<header><a class="brand" href="/proxy">Sallyport</a>${navigation('')}</header>`

/**
 * Renders a refusal as a page. One that comes from another site has sent no Strict cookie, so a page of ours
 * leads it on.
 */
export function refusedPage(refusal: Refusal, facts: Arrival | AdministrationFacts): Reply {
  const { reason, status, headers, detail } = refusal
  const { id, path, query, method } = facts
  const here = query === '' ? path : `${path}?${query}`
  if (reason === 'signed_out' && (method === 'GET' || method === 'HEAD'))
    return isFromOtherOrigin(facts) ? redirectPage(here) : seeOther(withNext('/proxy/sign-in', here))
  if (reason === 'signed_out') return seeOther('/proxy/sign-in')
  const needed = detail.required_capability
  return htmlDocument(
    'This did not work',
    html`${'session' in facts && facts.session ? NAVIGATION : EMPTY_HTML}<main class="alone"><h1>This did not work</h1>${problemList(refusal)}${
      typeof needed === 'string'
        ? html`<p>It needs <code>${needed}</code>. An operator with <code>admin.operators</code> can grant it.</p>`
        : EMPTY_HTML
    }<p><a href="${sectionOf(path)}">Back</a></p><p class="faint"><code>${id}</code></p></main>`,
    status,
    { ...challengeHeaders(refusal), ...headers },
  )
}

interface Asset {
  /** Holds a digest of the content: a new version has a new path. */
  readonly path: string
  readonly reply: Reply
}

function asset(file: string, type: string): Asset {
  const body = readFileSync(new URL(`./assets/${file}`, import.meta.url), 'utf8')
  const [name = '', ending = ''] = file.split('.')
  const headers = {
    'content-type': `${type}; charset=utf-8`,
    'cache-control': 'public, max-age=31536000, immutable',
    'cross-origin-resource-policy': 'same-origin',
  }
  return {
    path: `/proxy/assets/${name}-${hash('sha256', body).slice(0, 12)}.${ending}`,
    reply: { status: 200, headers, body },
  }
}

/** Files of pages, from nowhere else. The same for everybody: they say nothing of this service's state. */
export const ASSETS = {
  style: asset('dashboard.css', 'text/css'),
  script: asset('dashboard.js', 'text/javascript'),
  /** For the page Activity alone, after the script of all. */
  activity: asset('activity.js', 'text/javascript'),
} as const

const REPLIES = new Map(Object.values(ASSETS).map(({ path, reply }) => [path, reply]))

/** One route for all: their digests are no part of a route's path, which is a label of `/metrics`. */
export const ASSET_ROUTE = '/proxy/assets/{file}'

export function serveAsset({ path }: Arrival): Reply {
  const reply = REPLIES.get(path)
  if (!reply) throw new Refusal('not_found')
  return reply
}
