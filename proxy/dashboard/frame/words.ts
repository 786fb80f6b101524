import { EMPTY_HTML, type HtmlFragment, html } from './parts.ts'

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
  mcp_not_bound: 'not bound to the server',
  mcp_tool_quarantined: 'the tool waits for approval',
  mcp_tool_unknown: 'no such tool',
  model_unknown: 'nobody serves the model',
  origin_not_allowed: 'page of another site',
  policy_denied: 'a policy refuses it',
  principal_deactivated: 'deactivated',
  proof_invalid: 'proof not valid',
  proof_required: 'no proof',
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
