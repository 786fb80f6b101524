import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { listBoundPrincipals } from '../../admin/mcp/bindings.ts'
import { PRINCIPAL_KINDS } from '../../admin/operation/kinds.ts'
import { perform } from '../../admin/operation/operation.ts'
import { type FormSubmission, formHandler } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  capabilityTokens,
  csrf,
  dataTable,
  EMPTY_HTML,
  type HtmlFragment,
  hasCapability,
  html,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'
import { rehearsedFormHandler } from '../rehearsed/acting-rehearsed.ts'
import { approvalRuleIn } from './approval-rule.ts'
import { leastProofIn } from './proof-form.ts'
import { stateOf } from './tool.ts'

const ofServer = ({ params, form }: FormSubmission) => ({
  params: { resource_id: params.resource ?? '' },
  ...(form.get('if_match') && { ifMatch: form.get('if_match') }),
})

/** Names only the shown definition: one that came meanwhile was read by nobody. */
const ofTool = (facts: FormSubmission) => {
  const { params, ...conditions } = ofServer(facts)
  const body = { digest: facts.form.get('digest') ?? '' }
  return { ...conditions, params: { ...params, tool: facts.params.tool ?? '' }, body }
}

export const toolForms = (dashboard: DashboardContext) => {
  const to = ({ params, form }: FormSubmission): string =>
    form.get('from') === 'grid' ? gridOf(form) : pathOf('tools', params.resource ?? '')
  const { mcpResources, mcpBindings } = OPERATIONS
  const switched = (enabled: boolean) =>
    rehearsedFormHandler(dashboard, mcpResources.update, {
      title: () => `The server is ${enabled ? 'enabled' : 'disabled'}`,
      label: enabled ? 'Enable it' : 'Disable it',
      given: (facts) => ({ ...ofServer(facts), body: { enabled } }),
      to,
      notice: enabled ? 'enabled' : 'switched_off',
    })
  return {
    register: formHandler(dashboard, mcpResources.create, {
      given: ({ form }) => ({
        body: {
          name: form.get('name') ?? '',
          endpoint_url: form.get('endpoint_url') ?? '',
          required_capability: form.get('required_capability') || null,
        },
      }),
      to: (_facts, made) => (made === null ? '/proxy/tools' : pathOf('tools', made.resource_id)),
      notice: 'registered',
    }),
    enable: switched(true),
    disable: switched(false),
    refresh: formHandler(dashboard, mcpResources.refresh, {
      given: ({ params }) => ({ params: { resource_id: params.resource ?? '' } }),
      to,
      notice: 'refreshed',
    }),
    address: formHandler(dashboard, mcpResources.update, {
      given: (facts) => ({
        ...ofServer(facts),
        body: { endpoint_url: facts.form.get('endpoint_url') ?? '' },
      }),
      to,
      notice: 'updated',
    }),
    approval: rehearsedFormHandler(dashboard, mcpResources.update, {
      title: () => 'Calls of this server will wait for approval otherwise',
      label: 'Set the rule',
      given: (facts) => ({ ...ofServer(facts), body: approvalRuleIn(facts.form) }),
      to,
      notice: 'updated',
    }),
    proof: rehearsedFormHandler(dashboard, mcpResources.update, {
      title: () => 'Calls of this server will be judged by another proof',
      label: 'Set the least proof',
      given: (facts) => ({ ...ofServer(facts), body: leastProofIn(facts.form) }),
      to,
      notice: 'updated',
    }),
    remove: rehearsedFormHandler(dashboard, mcpResources.delete, {
      title: () => 'Calls need this server',
      label: 'Remove it',
      given: ofServer,
      to: '/proxy/tools',
      notice: 'removed',
    }),
    approve: formHandler(dashboard, mcpResources.approveTool, { given: ofTool, to, notice: 'approved' }),
    reject: formHandler(dashboard, mcpResources.rejectTool, { given: ofTool, to, notice: 'rejected' }),
    approveIntroduction: formHandler(dashboard, mcpResources.approveIntroduction, {
      given: (facts) => ({ ...ofServer(facts), body: { digest: facts.form.get('digest') ?? '' } }),
      to,
      notice: 'server_approved',
    }),
    bind: formHandler(dashboard, mcpBindings.create, {
      given: ({ params, form }) => ({
        body: { agent_id: form.get('agent_id') ?? '', resource_id: params.resource ?? '' },
      }),
      to,
      notice: 'bound',
    }),
    revoke: rehearsedFormHandler(dashboard, mcpBindings.revoke, {
      title: () => 'Calls need this binding',
      label: 'Unbind',
      to,
      notice: 'revoked',
    }),
  }
}

function gridOf(form: FormSubmission['form']): string {
  const kept = ['q', 'cursor'].filter((name) => form.get(name)).map((name) => [name, form.get(name) ?? ''])
  return kept.length === 0
    ? '/proxy/tools'
    : `/proxy/tools?${new URLSearchParams(Object.fromEntries(kept)).toString()}`
}

interface GridServer {
  readonly resource_id: string
  readonly name: string
}

type GridRow = Awaited<ReturnType<typeof listBoundPrincipals.run>>['value']['principals'][number]

type GridQuery = Readonly<Record<string, string>>

/**
 * A row for each bound principal, a column for each server. Cells are plain to an operator who may not bind.
 */
function bindingGrid(
  servers: readonly GridServer[],
  rows: readonly GridRow[],
  { query, next }: { readonly query: GridQuery; readonly next: GridQuery | null },
  facts: AdministrationFacts,
): HtmlFragment {
  const grants = hasCapability(facts, 'admin.grant')
  const table = html`<div class="wide" role="region" tabindex="0" aria-label="Who may reach which server"><table class="grid"><thead><tr><th scope="col">Principal</th>${servers.map(({ resource_id: id, name }) => html`<th scope="col"><a href="${pathOf('tools', id)}">${name}</a></th>`)}</tr></thead>
<tbody>${rows.map((row) => lineOf(row, servers, grants))}</tbody></table></div>`
  const kept = html`${csrf(facts.session)}<input type="hidden" name="from" value="grid">${Object.entries(query).map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}`
  const shown = grants ? html`<form method="post" action="/proxy/tools">${kept}${table}</form>` : table
  return html`<section class="card" id="bindings"><h2>Who may reach what</h2>
<form class="search" role="search" action="/proxy/tools"><input type="search" name="q" value="${query.q ?? ''}" aria-label="Search bound principals" placeholder="name of a bound principal" data-key="/"><button>Search</button></form>
${rows.length === 0 ? html`<div class="empty"><p>${query.q === undefined ? 'Nobody is bound to a server yet: open a server, and bind a principal.' : html`Nobody with that name is bound. <a href="/proxy/tools">Show all</a>`}</p></div>` : shown}
${!grants && html`<p class="needs">Binding and unbinding need <code>admin.grant</code>.</p>`}
${next !== null && html`<p><a rel="next" href="?${new URLSearchParams(next ?? {}).toString()}">More</a></p>`}</section>`
}

const lineOf = (row: GridRow, servers: readonly GridServer[], grants: boolean): HtmlFragment =>
  html`<tr><th scope="row"><a class="row" href="${pathOf(PRINCIPAL_KINDS[row.principal_type].plural, row.principal_id)}">${row.name}</a> ${row.name === row.principal_id ? EMPTY_HTML : html`<span class="faint">${row.principal_id}</span>`}</th>${servers.map((server) => html`<td>${cellOf(row, server, grants)}</td>`)}</tr>`

function cellOf(
  { principal_id: id, bindings }: GridRow,
  { resource_id, name }: GridServer,
  grants: boolean,
): HtmlFragment {
  const binding = bindings[resource_id]
  const server = pathOf('tools', resource_id)
  if (!grants)
    return binding === undefined
      ? html`<span class="faint">–</span>`
      : html`<span role="img" aria-label="bound">✓</span>`
  return binding === undefined
    ? html`<button class="quiet" formaction="${server}/bindings" name="agent_id" value="${id}" aria-label="Bind ${id} to ${name}" title="Bind ${id} to ${name}">–</button>`
    : html`<button class="quiet bound" formaction="${server}/bindings/${binding}/revoke" aria-label="Unbind ${id} from ${name}" title="Unbind ${id} from ${name}">✓</button>`
}

/** GET /proxy/tools: MCP servers, how they are, and who may reach them. */
export const toolsPage: DashboardPage = async ({ context }, facts) => {
  const { value: resources } = await perform(OPERATIONS.mcpResources.list, context, {}, facts)
  const asked = new URLSearchParams(facts.query)
  const query = Object.fromEntries(
    ['q', 'cursor'].flatMap((name) => (asked.get(name) ? [[name, asked.get(name) ?? '']] : [])),
  )
  const { value, next } = await perform(listBoundPrincipals, context, { query }, facts)
  return {
    title: 'Tools',
    section: '/proxy/tools',
    body: html`${dataTable(
      ['Server', 'State', 'Tools', 'Requires', 'Bound', 'Read'],
      resources.map((one) => {
        const waits = one.tools.filter(({ state }) => state === 'quarantined').length
        return html`<tr><td><a class="row" href="${pathOf('tools', one.resource_id)}">${one.name}</a></td><td>${stateOf(one)}</td><td class="number">${String(one.tools.length)}${waits > 0 && html` <span class="badge warn">${String(waits)} waiting</span>`}</td><td>${one.required_capability === null ? html`<span class="faint">only a binding</span>` : capabilityTokens([one.required_capability])}</td><td class="number">${String(value.bound[one.resource_id] ?? 0)}</td><td>${relativeTime(one.last_read_at, facts.at)}</td></tr>`
      }),
      html`<p>No MCP server yet.</p><p>Register one: <code class="copy" tabindex="0">make mcp ARGS="add files https://files.example/mcp"</code></p>`,
    )}
${resources.length > 0 && bindingGrid(resources, value.principals, { query, next: next ?? null }, facts)}${registerForm(facts)}`,
  }
}

const registerForm = (facts: Parameters<DashboardPage>[1]): HtmlFragment =>
  hasCapability(facts, 'admin.tools')
    ? html`<details class="enroll"><summary>Register a server</summary><form method="post" action="/proxy/tools">${csrf(facts.session)}
<label>Name <input name="name" required maxlength="64" autocomplete="off" placeholder="files"></label>
<label>Address <input name="endpoint_url" type="url" required maxlength="2048" placeholder="https://files.example/mcp"></label>
<label>Capability required to call its tools <input name="required_capability" maxlength="64" autocomplete="off" placeholder="files.use"></label>
<p class="faint">If empty, a binding is enough. For secrets, domains and capabilities of single tools: <code>make mcp ARGS=--help</code></p>
<button>Register a server</button></form></details>`
    : html`<p class="needs">Registering a server needs <code>admin.tools</code>.</p>`
