import type { Administered } from '../../../plugins/operators/operator.ts'
import { KINDS } from '../../admin/operation/kinds.ts'
import { all, csrf, type Html, html, may, NOTHING, pathOf, when } from '../frame/parts.ts'

interface Server {
  readonly resource_id: string
  readonly name: string
}

interface Row {
  readonly principal_type: 'agent' | 'user' | 'workload'
  readonly principal_id: string
  readonly name: string
  readonly bindings: Readonly<Record<string, string>>
}

type Query = Readonly<Record<string, string>>

/**
 * Who may reach what: a row for each bound principal, a column for each server. A cell binds or releases; it is a plain
 * mark to who may not.
 */
export function grid(
  servers: readonly Server[],
  rows: readonly Row[],
  { query, next }: { readonly query: Query; readonly next: Query | null },
  facts: Administered,
): Html {
  const grants = may(facts, 'admin.grant')
  const table = html`<div class="wide" role="region" tabindex="0" aria-label="Who may reach which server"><table class="grid"><thead><tr><th scope="col">Principal</th>${all(servers.map(({ resource_id: id, name }) => html`<th scope="col"><a href="${pathOf('tools', id)}">${name}</a></th>`))}</tr></thead>
<tbody>${all(rows.map((row) => lineOf(row, servers, grants)))}</tbody></table></div>`
  const kept = html`${csrf(facts.session)}<input type="hidden" name="from" value="grid">${all(Object.entries(query).map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`))}`
  const shown = grants ? html`<form method="post" action="/proxy/tools">${kept}${table}</form>` : table
  return html`<section class="card" id="bindings"><h2>Who may reach what</h2>
<form class="search" role="search" action="/proxy/tools"><input type="search" name="q" value="${query.q ?? ''}" aria-label="Search among who is bound" placeholder="name of who is bound" data-key="/"><button>Search</button></form>
${rows.length === 0 ? html`<div class="empty"><p>${query.q === undefined ? 'Nobody is bound to anything yet: open a server, and bind somebody.' : html`Nobody of that name is bound. <a href="/proxy/tools">All who are</a>`}</p></div>` : shown}
${when(!grants, () => html`<p class="needs">Binding and releasing need <code>admin.grant</code>.</p>`)}
${when(next !== null, () => html`<p><a rel="next" href="?${new URLSearchParams(next ?? {}).toString()}">More</a></p>`)}</section>`
}

const lineOf = (row: Row, servers: readonly Server[], grants: boolean): Html =>
  html`<tr><th scope="row"><a class="row" href="${pathOf(KINDS[row.principal_type].plural, row.principal_id)}">${row.name}</a> ${row.name === row.principal_id ? NOTHING : html`<span class="faint">${row.principal_id}</span>`}</th>${all(servers.map((server) => html`<td>${cellOf(row, server, grants)}</td>`))}</tr>`

function cellOf({ principal_id: id, bindings }: Row, { resource_id, name }: Server, grants: boolean): Html {
  const binding = bindings[resource_id]
  const server = pathOf('tools', resource_id)
  if (!grants)
    return binding === undefined
      ? html`<span class="faint">–</span>`
      : html`<span role="img" aria-label="bound">✓</span>`
  return binding === undefined
    ? html`<button class="quiet" formaction="${server}/bindings" name="agent_id" value="${id}" aria-label="Bind ${id} to ${name}" title="Bind ${id} to ${name}">–</button>`
    : html`<button class="quiet bound" formaction="${server}/bindings/${binding}/revoke" aria-label="Release ${id} from ${name}" title="Release ${id} from ${name}">✓</button>`
}
