import type { Refusal } from '../../../plugins/refusal.ts'
import { PRINCIPAL_KINDS } from '../../admin/operation/kinds.ts'
import { EMPTY_HTML, type HtmlFragment, html } from '../../operators/pages/html.ts'

/** The actions of most rows, in words. */
const ACTIONS: Readonly<Record<string, string>> = {
  egress_llm_chat: 'model call',
  mcp_tools_call: 'tool call',
  mcp_tools_list: 'list of tools',
  mcp_resources_list: 'list of resources',
  mcp_resources_read: 'reading of a resource',
  mcp_prompts_list: 'list of prompts',
  mcp_prompts_get: 'prompt',
  'auth.refused': 'unknown caller',
  'admin.read': 'look at administration',
}

const REASONS: Readonly<Record<string, string>> = {
  authority_revoked: 'the permission was revoked meanwhile',
  admin_secret_invalid: 'wrong operator secret',
  capability_missing: 'lacks a capability',
  certificate_not_pinned: 'certificate of nobody',
  certificate_not_valid_now: 'certificate has ended, or is not valid yet',
  certificate_required: 'no certificate',
  content_refused: 'holds a secret, or what a service refuses',
  mcp_not_bound: 'not bound to the server',
  mcp_tool_quarantined: 'the tool waits for approval',
  mcp_tool_unknown: 'no such tool',
  model_unknown: 'nobody serves the model',
  origin_not_allowed: 'page of another site',
  policy_denied: 'a policy refuses it',
  principal_deactivated: 'deactivated',
  proof_invalid: 'proof not valid',
  proof_required: 'no proof',
  proof_too_weak: 'too weak a proof',
  token_invalid: 'token not valid',
}

/** The checks of a call, in words. */
const GATES: Readonly<Record<string, string>> = {
  origin: 'website',
  pin: 'certificate',
  dpop: 'proof of possession',
  api_key: 'API key',
  json_body: 'body',
  mcp_peek: 'message',
  mcp_message: 'message',
  mcp_door: 'session',
  mcp_resource_path: 'server',
  llm_call: 'model',
  llm_members: 'members of the call',
  provider_state: 'what the provider keeps',
  mcp_target: 'tool and binding',
  mcp_tool: 'approved definition',
  mcp_state: 'session',
}

const spelledOut = (word: string): string => word.replace('.', ': ').replaceAll('_', ' ')

export const actionText = (action: string): string =>
  ACTIONS[action] ??
  spelledOut(action)
    .replace(/^mcp resource/, 'MCP server')
    .replace(/^(mcp|ca)\b/, (name) => name.toUpperCase())

/** The line of a check that was passed or not, and what it found. */
export const gateLine = (name: string, passed: boolean, found: HtmlFragment | string): HtmlFragment =>
  html`<li class="${passed ? 'passed' : 'failed'}"><b>${passed ? '✓' : '✗'} ${GATES[name] ?? spelledOut(name)}</b> ${name in GATES ? ledgerWord(name) : ''} ${found}</li>`

/** Says why, with the ledger's word beside it. `token`: the capability that it is about. */
export function reasonWords(reason: string | null, token: unknown): HtmlFragment {
  if (reason === null) return EMPTY_HTML
  const isLack = reason === 'capability_missing' && typeof token === 'string'
  return html`${isLack ? `lacks ${token}` : (REASONS[reason] ?? spelledOut(reason))} ${ledgerWord(reason)}`
}

/** A word as rows, filters and the API have it. */
export const ledgerWord = (word: string): HtmlFragment => html`<code class="faint">${word}</code>`

/** Why something was not done, each field by name: by its own, or as `nameOf` calls it. */
export function problemList(
  { reason, message, detail }: Refusal,
  nameOf: (field: string) => string = (field) => field,
): HtmlFragment {
  const { errors, expectations } = detail as Detail
  // The refusal's message speaks of additions to the URL by callers of the API.
  if (reason === 'expectation_broken' && expectations)
    return html`<div class="problem" role="alert"><p>This would break an expectation:</p><ul>${expectations.map(({ line, sentence }) => html`<li>${sentence} (line ${String(line)})</li>`)}</ul></div>`
  if (!errors) return html`<p class="problem" role="alert">${message}</p>`
  return html`<ul class="problem" role="alert">${errors.map(({ field, message: why }) => html`<li><code>${nameOf(field)}</code> ${why}</li>`)}</ul>`
}

interface Detail {
  readonly errors?: readonly { readonly field: string; readonly message: string }[]
  readonly expectations?: readonly { readonly line: number; readonly sentence: string }[]
}

export { EMPTY_HTML, exactHtml, HtmlFragment, html } from '../../operators/pages/html.ts'

const UNITS: readonly (readonly [name: string, ms: number])[] = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1_000],
]

/** An instant relative to `now`, the exact one on hover. `at`: RFC 3339, or null: never. */
export function relativeTime(at: string | null, now: number): HtmlFragment {
  if (at === null) return html`<span class="faint">never</span>`
  return html`<time datetime="${at}" title="${at}">${relativeText(Date.parse(at) - now)}</time>`
}

/** An instant to the second, and relative to `now`. `at`: RFC 3339, or null: never. */
export const exactTime = (at: string | null, now: number): HtmlFragment =>
  at === null
    ? relativeTime(at, now)
    : html`${relativeTime(at, now)} <span class="faint">${at.slice(0, 19).replace('T', ' ')}</span>`

function relativeText(ms: number): string {
  const [name, unit] = UNITS.find(([, least]) => Math.abs(ms) >= least) ?? ['s', 1_000]
  const count = Math.floor(Math.abs(ms) / unit)
  if (count === 0) return 'now'
  return ms < 0 ? `${count} ${name} ago` : `in ${count} ${name}`
}

export const countWithNoun = (count: number, one: string, many = `${one}s`): string =>
  `${count.toLocaleString('en')} ${count === 1 ? one : many}`

/** A value that somebody may want elsewhere: selected by a click, copied by a script. */
export const copyableCode = (value: string): HtmlFragment =>
  html`<code class="copy" tabindex="0">${value}</code>`

/** Lines that somebody takes along, under what they are for. A script puts a button beside that. */
export const copyableCommand = (title: string, text: HtmlFragment): HtmlFragment =>
  html`<figure class="command"><figcaption>${title}</figcaption><pre class="copy" tabindex="0">${text}</pre></figure>`

export const capabilityTokens = (capabilities: readonly string[]): HtmlFragment =>
  capabilities.length === 0
    ? html`<span class="faint">nothing</span>`
    : html`${capabilities.map((one) => html`<span class="token">${one}</span> `)}`

export const factList = (
  rows: readonly (readonly [name: string, value: HtmlFragment | string])[],
): HtmlFragment =>
  html`<dl class="facts">${rows.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`

/** A table; if there are no rows, what to do about that. */
export const dataTable = (
  heads: readonly string[],
  rows: readonly HtmlFragment[],
  empty: HtmlFragment,
): HtmlFragment =>
  rows.length === 0
    ? html`<div class="empty">${empty}</div>`
    : html`<div class="wide" role="region" tabindex="0" aria-label="${heads.filter((head) => head !== '').join(', ')}"><table><thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
<tbody>${rows}</tbody></table></div>`

export const csrf = (session: { readonly csrf: string } | undefined): HtmlFragment =>
  html`<input type="hidden" name="csrf" value="${session?.csrf ?? ''}">`

/** A button that posts to `action`; if its operator may not, the capability it needs instead. */
export const button = (
  facts: PageViewer,
  needs: string,
  action: string,
  label: string,
  fields: Readonly<Record<string, string>> = {},
): HtmlFragment =>
  hasCapability(facts, needs)
    ? html`<form method="post" action="${action}" class="inline">${csrf(facts.session)}${Object.entries(
        fields,
      ).map(
        ([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`,
      )}<button>${label}</button></form>`
    : html`<span class="needs">${label} needs <code>${needs}</code></span>`

export interface PageViewer {
  readonly actor: { readonly capabilities: readonly string[] }
  readonly session?: { readonly csrf: string }
}

export const hasCapability = ({ actor }: PageViewer, capability: string): boolean =>
  actor.capabilities.includes(capability)

export const pathOf = (plural: string, id: string): string => `/proxy/${plural}/${encodeURIComponent(id)}`

const KINDS: Readonly<Record<string, { readonly plural: string }>> = PRINCIPAL_KINDS

/** Links to a principal that the ledger names, if it is still there. */
export function ledgerPrincipal(known: {
  readonly principal?: string | null
  readonly principal_type?: string | null
  readonly principal_name?: string | null
}): HtmlFragment {
  const kind = KINDS[known.principal_type ?? '']
  const id = known.principal_name ?? known.principal ?? ''
  return kind
    ? html`<a href="${pathOf(kind.plural, id)}">${id}</a>`
    : html`<code>${id}</code> <span class="faint">erased</span>`
}
