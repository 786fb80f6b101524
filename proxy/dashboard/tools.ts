import { perform } from '../admin/operation.ts'
import { OPERATIONS } from '../admin/operations.ts'
import { visible } from '../visible.ts'
import { acting, type Submitted } from './acting.ts'
import type { Dashboard } from './dashboard.ts'
import type { Page } from './page.ts'
import {
  ago,
  all,
  button,
  copyable,
  csrf,
  facts as factsOf,
  type Html,
  html,
  may,
  pathOf,
  table,
  tokens,
  when,
} from './parts.ts'

/** GET /proxy/tools: MCP servers, how they are, and who may reach them. */
export const toolsPage: Page = async ({ context }, facts) => {
  const { value: resources } = await perform(OPERATIONS.mcpResources.list, context, {}, facts)
  const { value: bindings } = await perform(OPERATIONS.mcpBindings.list, context, { query: {} }, facts)
  const bound = Map.groupBy(bindings, ({ resource_id: id }) => id)
  return {
    title: 'Tools',
    section: '/proxy/tools',
    body: html`${table(
      ['Server', 'State', 'Tools', 'Demands', 'Bound', 'Read'],
      resources.map((one) => {
        const waits = one.tools.filter(({ state }) => state === 'quarantined').length
        return html`<tr><td><a class="row" href="${pathOf('tools', one.resource_id)}">${one.name}</a></td><td>${stateOf(one)}</td><td class="number">${String(one.tools.length)}${when(waits > 0, () => html` <span class="badge warn">${String(waits)} waiting</span>`)}</td><td>${one.required_capability === null ? html`<span class="faint">a binding alone</span>` : tokens([one.required_capability])}</td><td class="number">${String(bound.get(one.resource_id)?.length ?? 0)}</td><td>${ago(one.last_read_at, facts.at)}</td></tr>`
      }),
      html`<p>No MCP server yet.</p><p>Register one: <code class="copy" tabindex="0">make mcp ARGS="add files https://files.example/mcp"</code></p>`,
    )}${registerForm(facts)}`,
  }
}

/** The form that registers a server, which is read at once. */
const registerForm = (facts: Parameters<Page>[1]): Html =>
  may(facts, 'admin.tools')
    ? html`<details class="enroll"><summary>Register a server</summary><form method="post" action="/proxy/tools">${csrf(facts.session)}
<label>Name <input name="name" required maxlength="64" autocomplete="off" placeholder="files"></label>
<label>Address <input name="endpoint_url" type="url" required maxlength="2048" placeholder="https://files.example/mcp"></label>
<label>Demanded of whoever calls its tools <input name="required_capability" maxlength="64" autocomplete="off" placeholder="files.use"></label>
<p class="faint">Empty: being bound to it is enough. Secrets, domains and demands of single tools: <code>make mcp ARGS=--help</code></p>
<button>Register a server</button></form></details>`
    : html`<p class="needs">Registering one needs <code>admin.tools</code>.</p>`

const stateOf = ({ enabled, last_error: error }: { enabled: boolean; last_error: string | null }): Html => {
  if (!enabled) return html`<span class="badge off">disabled</span>`
  return error === null
    ? html`<span class="verdict allowed">well</span>`
    : html`<span class="badge warn">cannot be read</span>`
}

/** GET /proxy/tools/{resource}: one server, its tools and what waits for a reader, and who is bound to it. */
export const toolPage: Page = async ({ context }, facts) => {
  const { resource = '' } = facts.params
  const { value } = await perform(
    OPERATIONS.mcpResources.get,
    context,
    { params: { resource_id: resource } },
    facts,
  )
  const { value: bindings } = await perform(
    OPERATIONS.mcpBindings.list,
    context,
    { query: { resource_id: value.resource_id } },
    facts,
  )
  const path = pathOf('tools', value.resource_id)
  const waiting = value.tools.filter(({ state }) => state === 'quarantined')
  return {
    title: value.name,
    section: '/proxy/tools',
    body: html`${all(waiting.map((tool) => waits(tool, path, facts)))}
<section class="card"><h2>Server</h2>${factsOf([
      ['Id', copyable(value.resource_id)],
      ['Address', copyable(value.endpoint_url)],
      ['State', stateOf(value)],
      ['Error', value.last_error ?? 'none'],
      ['Protocol', value.protocol_version ?? 'not read yet'],
      [
        'Demands',
        value.required_capability === null ? 'its binding alone' : tokens([value.required_capability]),
      ],
      ['Read', ago(value.last_read_at, facts.at)],
    ])}<p>${button(facts, 'admin.tools', `${path}/refresh`, 'Read it now')} ${button(facts, 'admin.tools', `${path}/${value.enabled ? 'disable' : 'enable'}`, value.enabled ? 'Disable it' : 'Enable it')}</p></section>
<section class="card"><h2>Tools</h2>${table(
      ['Tool', 'Called as', 'State', 'Demands', 'Pinned', 'Look closely'],
      value.tools.map(
        (tool) =>
          html`<tr><td>${visible(tool.name)}</td><td><code>${visible(tool.exposed_as)}</code></td><td><span class="verdict ${tool.state === 'approved' ? 'allowed' : 'denied'}">${tool.state}</span></td><td>${tool.required_capability === null ? '' : tokens([tool.required_capability])}</td><td>${ago(tool.pinned_at, facts.at)}</td><td>${tool.flags.join(', ')}</td></tr>`,
      ),
      html`<p>It has none, or was not read yet.</p>`,
    )}</section>
<section class="card"><h2>Bound principals</h2>${table(
      ['Principal', 'Kind', 'Since', 'By', ''],
      bindings.map(
        (one) =>
          html`<tr><td>${one.agent_id}</td><td>${one.principal_type}</td><td>${ago(one.created_at, facts.at)}</td><td>${one.created_by ?? ''}</td><td>${button(facts, 'admin.grant', `${path}/bindings/${one.binding_id}/revoke`, 'Release')}</td></tr>`,
      ),
      html`<p>Nobody can reach it.</p>`,
    )}${
      may(facts, 'admin.grant')
        ? html`<form method="post" action="${path}/bindings" class="search">${csrf(facts.session)}<label>Principal <input name="agent_id" required maxlength="256" placeholder="acme::daily-report"></label><button>Bind</button></form>`
        : html`<p class="needs">Binding needs <code>admin.grant</code>.</p>`
    }</section>`,
  }
}

interface Waiting {
  readonly name: string
  readonly pending_digest: string | null
  readonly changes?: readonly string[] | undefined
  readonly flags: readonly string[]
  readonly definition: unknown
  readonly pending_definition?: unknown
}

/** A definition that waits, beside the one that was approved; what hides from readers is written out. */
function waits(tool: Waiting, path: string, facts: Parameters<Page>[1]): Html {
  const text = (definition: unknown): string =>
    definition === null || definition === undefined
      ? 'none'
      : JSON.stringify(definition, null, 2).split('\n').map(visible).join('\n')
  return html`<section class="card needs-you"><h2>${visible(tool.name)} waits for a reader</h2>
<p>What differs:</p><ul>${all((tool.changes ?? []).map((line) => html`<li><code>${line}</code></li>`))}</ul>
${when(tool.flags.length > 0, () => html`<p><span class="badge warn">${tool.flags.join(', ')}</span></p>`)}
<div class="diff"><div><h3>Approved before</h3><pre>${text(tool.definition)}</pre></div><div><h3>Now</h3><pre>${text(tool.pending_definition)}</pre></div></div>
<p>${button(facts, 'admin.tools', `${path}/tools/${encodeURIComponent(tool.name)}/approve`, 'Approve what I have read', { digest: tool.pending_digest ?? '' })}</p></section>`
}

/** The forms of a server's page. */
export const toolForms = (dashboard: Dashboard) => {
  const to = ({ params }: Submitted): string => pathOf('tools', params.resource ?? '')
  const { mcpResources, mcpBindings } = OPERATIONS
  const switched = (enabled: boolean) =>
    acting(dashboard, mcpResources.update, {
      given: ({ params }) => ({ params: { resource_id: params.resource ?? '' }, body: { enabled } }),
      to,
      notice: enabled ? 'enabled' : 'switched_off',
    })
  return {
    register: acting(dashboard, mcpResources.create, {
      given: ({ form }) => ({
        body: {
          name: form.get('name') ?? '',
          endpoint_url: form.get('endpoint_url') ?? '',
          required_capability: form.get('required_capability') || null,
        },
      }),
      to: () => '/proxy/tools',
      notice: 'registered',
    }),
    enable: switched(true),
    disable: switched(false),
    refresh: acting(dashboard, mcpResources.refresh, {
      given: ({ params }) => ({ params: { resource_id: params.resource ?? '' } }),
      to,
      notice: 'refreshed',
    }),
    approve: acting(dashboard, mcpResources.approveTool, {
      given: ({ params, form }) => ({
        params: { resource_id: params.resource ?? '', tool: params.tool ?? '' },
        // Only what was on the page: a definition that came meanwhile was read by nobody.
        body: { digest: form.get('digest') ?? '' },
      }),
      to,
      notice: 'approved',
    }),
    bind: acting(dashboard, mcpBindings.create, {
      given: ({ params, form }) => ({
        body: { agent_id: form.get('agent_id') ?? '', resource_id: params.resource ?? '' },
      }),
      to,
      notice: 'bound',
    }),
    revoke: acting(dashboard, mcpBindings.revoke, {
      given: ({ params }) => ({ params: { binding_id: params.binding_id ?? '' } }),
      to,
      notice: 'revoked',
    }),
  }
}
