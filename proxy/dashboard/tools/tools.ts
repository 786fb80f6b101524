import { OPERATIONS } from '../../admin/http/operations.ts'
import { listBoundPrincipals } from '../../admin/mcp/grid.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { DashboardPage } from '../frame/page.ts'
import {
  capabilityTokens,
  csrf,
  dataTable,
  type HtmlFragment,
  hasCapability,
  html,
  htmlIf,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'
import { bindingGrid } from './grid.ts'
import { stateOf } from './state.ts'

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
        return html`<tr><td><a class="row" href="${pathOf('tools', one.resource_id)}">${one.name}</a></td><td>${stateOf(one)}</td><td class="number">${String(one.tools.length)}${htmlIf(waits > 0, () => html` <span class="badge warn">${String(waits)} waiting</span>`)}</td><td>${one.required_capability === null ? html`<span class="faint">only a binding</span>` : capabilityTokens([one.required_capability])}</td><td class="number">${String(value.bound[one.resource_id] ?? 0)}</td><td>${relativeTime(one.last_read_at, facts.at)}</td></tr>`
      }),
      html`<p>No MCP server yet.</p><p>Register one: <code class="copy" tabindex="0">make mcp ARGS="add files https://files.example/mcp"</code></p>`,
    )}
${htmlIf(resources.length > 0, () => bindingGrid(resources, value.principals, { query, next: next ?? null }, facts))}${registerForm(facts)}`,
  }
}

/** The form that registers a server, which is read at once. */
const registerForm = (facts: Parameters<DashboardPage>[1]): HtmlFragment =>
  hasCapability(facts, 'admin.tools')
    ? html`<details class="enroll"><summary>Register a server</summary><form method="post" action="/proxy/tools">${csrf(facts.session)}
<label>Name <input name="name" required maxlength="64" autocomplete="off" placeholder="files"></label>
<label>Address <input name="endpoint_url" type="url" required maxlength="2048" placeholder="https://files.example/mcp"></label>
<label>Capability required to call its tools <input name="required_capability" maxlength="64" autocomplete="off" placeholder="files.use"></label>
<p class="faint">If empty, a binding is enough. For secrets, domains and capabilities of single tools: <code>make mcp ARGS=--help</code></p>
<button>Register a server</button></form></details>`
    : html`<p class="needs">Registering a server needs <code>admin.tools</code>.</p>`
