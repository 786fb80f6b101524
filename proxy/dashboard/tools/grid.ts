import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { PRINCIPAL_KINDS } from '../../admin/operation/kinds.ts'
import {
  csrf,
  EMPTY_HTML,
  type HtmlFragment,
  hasCapability,
  html,
  htmlIf,
  joinHtml,
  pathOf,
} from '../frame/parts.ts'

interface GridServer {
  readonly resource_id: string
  readonly name: string
}

interface GridRow {
  readonly principal_type: 'agent' | 'user' | 'workload'
  readonly principal_id: string
  readonly name: string
  readonly bindings: Readonly<Record<string, string>>
}

type GridQuery = Readonly<Record<string, string>>

/**
 * A grid: a row for each bound principal, a column for each server. A cell binds or releases;
 * it is a plain mark to an operator who may not.
 */
export function bindingGrid(
  servers: readonly GridServer[],
  rows: readonly GridRow[],
  { query, next }: { readonly query: GridQuery; readonly next: GridQuery | null },
  facts: AdministrationFacts,
): HtmlFragment {
  const grants = hasCapability(facts, 'admin.grant')
  const table = html`<div class="wide" role="region" tabindex="0" aria-label="Who may reach which server"><table class="grid"><thead><tr><th scope="col">Principal</th>${joinHtml(servers.map(({ resource_id: id, name }) => html`<th scope="col"><a href="${pathOf('tools', id)}">${name}</a></th>`))}</tr></thead>
<tbody>${joinHtml(rows.map((row) => lineOf(row, servers, grants)))}</tbody></table></div>`
  const kept = html`${csrf(facts.session)}<input type="hidden" name="from" value="grid">${joinHtml(Object.entries(query).map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`))}`
  const shown = grants ? html`<form method="post" action="/proxy/tools">${kept}${table}</form>` : table
  return html`<section class="card" id="bindings"><h2>Who may reach what</h2>
<form class="search" role="search" action="/proxy/tools"><input type="search" name="q" value="${query.q ?? ''}" aria-label="Search bound principals" placeholder="name of a bound principal" data-key="/"><button>Search</button></form>
${rows.length === 0 ? html`<div class="empty"><p>${query.q === undefined ? 'Nobody is bound to a server yet: open a server, and bind a principal.' : html`Nobody with that name is bound. <a href="/proxy/tools">Show all</a>`}</p></div>` : shown}
${htmlIf(!grants, () => html`<p class="needs">Binding and unbinding need <code>admin.grant</code>.</p>`)}
${htmlIf(next !== null, () => html`<p><a rel="next" href="?${new URLSearchParams(next ?? {}).toString()}">More</a></p>`)}</section>`
}

const lineOf = (row: GridRow, servers: readonly GridServer[], grants: boolean): HtmlFragment =>
  html`<tr><th scope="row"><a class="row" href="${pathOf(PRINCIPAL_KINDS[row.principal_type].plural, row.principal_id)}">${row.name}</a> ${row.name === row.principal_id ? EMPTY_HTML : html`<span class="faint">${row.principal_id}</span>`}</th>${joinHtml(servers.map((server) => html`<td>${cellOf(row, server, grants)}</td>`))}</tr>`

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
