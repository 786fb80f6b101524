import type { z } from 'zod'
import type { ProofDemands } from '../../../db/ledger/authority/rule.ts'
import { REJECTED_FLAG } from '../../../db/mcp/tools.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import type { resourceDetail } from '../../admin/mcp/view.ts'
import { PRINCIPAL_KINDS } from '../../admin/operation/kinds.ts'
import { type OperationResult, perform } from '../../admin/operation/operation.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  button,
  capabilityTokens,
  copyableCode,
  countWithNoun,
  csrf,
  dataTable,
  EMPTY_HTML,
  factList as factsOf,
  type HtmlFragment,
  hasCapability,
  html,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'
import { approvalRuleForm, approverWords } from './approval-rule.ts'
import { leastProofForm } from './proof-form.ts'

type ServerView = OperationResult<z.output<typeof resourceDetail>>['value']

export const stateOf = ({
  enabled,
  last_error: error,
}: Pick<ServerView, 'enabled' | 'last_error'>): HtmlFragment => {
  if (!enabled) return html`<span class="badge off">disabled</span>`
  return error === null
    ? html`<span class="verdict allowed">ok</span>`
    : html`<span class="badge warn">cannot be read</span>`
}

/** Tells a tool that a version before 0.7 approved in part, and whose whole text is another one by now. */
const isListedInPart = (tool: { readonly state: string; readonly pending_digest: string | null }): boolean =>
  tool.state === 'approved' && tool.pending_digest !== null

const SHOWN = 100

/** GET /proxy/tools/{resource}: one server, its tools, the definitions that wait, and who is bound to it. */
export const toolPage: DashboardPage = async ({ context }, facts) => {
  const { resource = '' } = facts.params
  const { mcpResources, mcpBindings } = OPERATIONS
  const params = { resource_id: resource }
  const { value, revision = 0 } = await perform(mcpResources.get, context, { params }, facts)
  const query = { resource_id: value.resource_id }
  const { value: bindings } = await perform(mcpBindings.list, context, { query }, facts)
  const unbound = hasCapability(facts, 'admin.grant') ? await suggested(context, bindings, facts) : []
  const path = pathOf('tools', value.resource_id)
  const ifMatch = `"${revision}"`
  const waiting = value.tools.filter((tool) => tool.state === 'quarantined' || isListedInPart(tool))
  return {
    title: value.name,
    section: '/proxy/tools',
    body: html`${introductionWaits(value, { path, ifMatch }, facts)}${waiting.map((tool) => toolWaits(tool, { path, ifMatch }, facts))}
<section class="card"><h2>Server</h2>${factsOf([
      ['Id', copyableCode(value.resource_id)],
      ['Address', copyableCode(value.endpoint_url)],
      ['State', stateOf(value)],
      ['Error', value.last_error ?? 'none'],
      ['Protocol', value.protocol_version ?? 'not read yet'],
      [
        'Requires',
        value.required_capability === null ? 'only a binding' : capabilityTokens([value.required_capability]),
      ],
      ['Each call approved by', approverWords(value.approval)],
      ['Least proof', proofText(value)],
      ...accountFacts(value),
      ['Read', relativeTime(value.last_read_at, facts.at)],
      ['Says about itself', html`<pre>${textOf(introductionIn(value.server))}</pre>`],
    ])}<p>${button(facts, 'admin.tools', `${path}/refresh`, 'Read it now')} ${button(facts, 'admin.tools', `${path}/${value.enabled ? 'disable' : 'enable'}`, value.enabled ? 'Disable it' : 'Enable it', { if_match: ifMatch })} ${button(facts, 'admin.tools', `${path}/remove`, 'Remove it', { if_match: ifMatch })}</p>${hasCapability(facts, 'admin.tools') && html`<details><summary>Another address</summary><form method="post" action="${path}/address">${csrf(facts.session)}<input type="hidden" name="if_match" value="${ifMatch}"><label>Address <input name="endpoint_url" type="url" required maxlength="2048" value="${value.endpoint_url}"></label><p class="faint">It is read at once. What its tools say is judged by what was approved at the address before.</p><button>Use this address</button></form></details>${approvalRuleForm(value, { path, ifMatch }, facts)}${leastProofForm(value, { path, ifMatch }, facts)}`}</section>
<section class="card"><h2>Tools</h2>${dataTable(
      ['Tool', 'Called as', 'State', 'Requires', 'Approved by', 'Pinned', 'Look closely'],
      value.tools.map(
        (tool) =>
          html`<tr><td><details><summary>${tool.name}</summary><pre>${textOf(tool.definition)}</pre></details></td><td><code>${tool.exposed_as}</code></td><td><span class="verdict ${tool.state === 'approved' ? 'allowed' : 'denied'}">${isListedInPart(tool) ? 'approved, listed in part: approve it again' : tool.state}</span></td><td>${tool.required_capability === null ? '' : capabilityTokens([tool.required_capability])}</td><td>${tool.approval === null ? '' : approverWords(tool.approval)}</td><td>${relativeTime(tool.pinned_at, facts.at)}</td><td>${tool.flags.join(', ')}</td></tr>`,
      ),
      html`<p>It has none, or has not been read yet.</p>`,
    )}${skippedPart(value)}</section>
<section class="card"><h2>Bound principals</h2>${dataTable(
      ['Principal', 'Kind', 'Since', 'By', ''],
      bindings
        .slice(0, SHOWN)
        .map(
          (one) =>
            html`<tr><td><a href="${pathOf(PRINCIPAL_KINDS[one.principal_type].plural, one.agent_id)}">${one.agent_id}</a></td><td>${one.principal_type}</td><td>${relativeTime(one.created_at, facts.at)}</td><td>${one.created_by ?? ''}</td><td>${button(facts, 'admin.grant', `${path}/bindings/${one.binding_id}/revoke`, 'Unbind')}</td></tr>`,
        ),
      html`<p>Nobody can reach it.</p>`,
    )}${bindings.length > SHOWN && html`<p>${countWithNoun(bindings.length, 'principal is', 'principals are')} bound. <a href="/proxy/tools#bindings">Find one of them</a></p>`}${
      hasCapability(facts, 'admin.grant')
        ? html`<form method="post" action="${path}/bindings" class="search">${csrf(facts.session)}<label>Principal <input name="agent_id" required maxlength="256" placeholder="acme::daily-report" list="principals" autocomplete="off"></label><datalist id="principals">${unbound.map(({ id, name }) => html`<option value="${id}">${name}</option>`)}</datalist><button>Bind</button></form>`
        : html`<p class="needs">Binding needs <code>admin.grant</code>.</p>`
    }</section>`,
  }
}

/** Principals that may be bound, the newest of each kind: a name that is not among them can be typed. */
async function suggested(
  context: DashboardContext['context'],
  bindings: readonly { readonly agent_id: string }[],
  facts: AdministrationFacts,
): Promise<readonly { readonly id: string; readonly name: string }[]> {
  const query = { limit: '100' }
  const { value: agents } = await perform(OPERATIONS.agents.list, context, { query }, facts)
  const { value: users } = await perform(OPERATIONS.users.list, context, { query }, facts)
  const { value: workloads } = await perform(OPERATIONS.workloads.list, context, { query }, facts)
  const bound = new Set(bindings.map(({ agent_id: id }) => id))
  return [...agents, ...(users.users ?? []), ...(workloads.workloads ?? [])]
    .map((one) => ({ id: one.agent_id ?? one.principal_id ?? '', name: one.display_name || one.name }))
    .filter(({ id }) => !bound.has(id))
}

const skippedPart = ({
  skipped_count: count,
  skipped_tools: tools,
}: Pick<ServerView, 'skipped_count' | 'skipped_tools'>): HtmlFragment =>
  count > 0
    ? html`<h3>Skipped</h3><p>${countWithNoun(count, 'item', 'items')} of its list cannot be used, and nobody can call them:</p><ul>${tools.map(({ name, reason }) => html`<li>${name === null ? html`<span class="faint">no name</span>` : html`<code>${name}</code>`} ${reason}</li>`)}</ul>${count > tools.length && html`<p>These are the first.</p>`}`
    : EMPTY_HTML

interface UnreviewedText {
  readonly title: HtmlFragment
  readonly changes: readonly string[] | undefined
  readonly flags: readonly string[]
  readonly before: unknown
  readonly now: unknown
  readonly action: string
  /** Absent: it cannot be rejected, or is so already. */
  readonly reject?: string | undefined
  readonly digest: string | null
}

interface PageFacts {
  readonly path: string
  readonly ifMatch: string
}

type WaitingTool = ServerView['tools'][number]

const toolWaits = (tool: WaitingTool, page: PageFacts, facts: Parameters<DashboardPage>[1]): HtmlFragment =>
  reviewCard(
    {
      title: tool.flags.includes(REJECTED_FLAG)
        ? html`${tool.name} was rejected`
        : html`${tool.name} is waiting for review`,
      changes: tool.changes,
      flags: tool.flags,
      before: tool.definition,
      now: tool.pending_definition,
      action: `${page.path}/tools/${encodeURIComponent(tool.name)}/approve`,
      reject: tool.flags.includes(REJECTED_FLAG)
        ? undefined
        : `${page.path}/tools/${encodeURIComponent(tool.name)}/reject`,
      digest: tool.pending_digest,
    },
    page,
    facts,
  )

const introductionWaits = (
  resource: ServerView,
  page: PageFacts,
  facts: Parameters<DashboardPage>[1],
): HtmlFragment =>
  resource.pending_server_digest !== null
    ? reviewCard(
        {
          title: html`What the server says about itself is waiting for review`,
          changes: resource.server_changes,
          flags: resource.server_flags,
          before: introductionIn(resource.server),
          now: resource.pending_server,
          action: `${page.path}/approve`,
          digest: resource.pending_server_digest,
        },
        page,
        facts,
      )
    : EMPTY_HTML

function introductionIn(server: ServerView['server']): unknown {
  if (server === null) return null
  const { serverInfo, instructions } = server
  return { serverInfo, instructions }
}

/** Shows a text that waits next to the approved text. Characters that hide from readers are written out. */
function reviewCard(
  text: UnreviewedText,
  { ifMatch }: PageFacts,
  facts: Parameters<DashboardPage>[1],
): HtmlFragment {
  const [before, now] = [textOf(text.before), textOf(text.now)]
  const read = { digest: text.digest ?? '', if_match: ifMatch }
  return html`<section class="card needs-you"><h2>${text.title}</h2>
<p>What differs:</p><ul>${(text.changes ?? []).map((line) => html`<li><code>${line}</code></li>`)}</ul>
${text.flags.length > 0 && html`<p><span class="badge warn">${text.flags.join(', ')}</span></p>`}
<div class="diff"><div><h3>Approved before</h3><pre>${markNewLines(before, now)}</pre></div><div><h3>Now</h3><pre>${markNewLines(now, before)}</pre></div></div>
<p>${button(facts, 'admin.tools', text.action, 'Approve what I have read', read)} ${text.reject === undefined ? html`` : button(facts, 'admin.tools', text.reject, 'Reject it', read)}</p></section>`
}

const textOf = (definition: unknown): string =>
  definition === null || definition === undefined ? 'none' : JSON.stringify(definition, null, 2)

function markNewLines(text: string, other: string): HtmlFragment {
  const known = new Set(other.split('\n'))
  return html`${text.split('\n').map((line) => (known.has(line) ? html`${line}\n` : html`<mark>${line}</mark>\n`))}`
}

/** Says of a server of accounts where they are, and who reads it. Nothing of any other. */
const accountFacts = ({ oauth }: Pick<ServerView, 'oauth'>): readonly (readonly [string, string])[] =>
  oauth === null
    ? []
    : [
        ['Called by', 'the account of each caller'],
        ['Issuer', oauth.issuer ?? 'the one that it names'],
        ['Scopes', oauth.scopes.join(', ') || 'what the issuer gives by itself'],
        ['Read by the account of', oauth.reader ?? 'nobody: its reader was erased'],
      ]

/** The least proof that a server takes of callers, and that single tools take instead. */
const proofText = ({ min_proof: all, tool_min_proof: own }: ProofDemands): string =>
  [all, ...Object.entries(own).map(([tool, proof]) => `${tool}: ${proof}`)].join(', ')
