import { perform } from '../../admin/operation.ts'
import { OPERATIONS } from '../../admin/operations.ts'
import { KINDS } from '../../admin/principals/kinds.ts'
import { visible } from '../../visible.ts'
import type { Page } from '../page.ts'
import {
  ago,
  all,
  button,
  copyable,
  counted,
  csrf,
  facts as factsOf,
  type Html,
  html,
  may,
  pathOf,
  table,
  tokens,
  when,
} from '../parts.ts'
import { stateOf } from './state.ts'

/** The bound principals that are shown; the grid finds the others. */
const SHOWN = 100

/** GET /proxy/tools/{resource}: one server, its tools and what waits for a reader, and who is bound to it. */
export const toolPage: Page = async ({ context }, facts) => {
  const { resource = '' } = facts.params
  const { value, revision = 0 } = await perform(
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
  const ifMatch = `"${revision}"`
  const waiting = value.tools.filter(({ state }) => state === 'quarantined')
  return {
    title: value.name,
    section: '/proxy/tools',
    body: html`${all(waiting.map((tool) => waits(tool, { path, ifMatch }, facts)))}
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
    ])}<p>${button(facts, 'admin.tools', `${path}/refresh`, 'Read it now')} ${button(facts, 'admin.tools', `${path}/${value.enabled ? 'disable' : 'enable'}`, value.enabled ? 'Disable it' : 'Enable it', { if_match: ifMatch })}</p></section>
<section class="card"><h2>Tools</h2>${table(
      ['Tool', 'Called as', 'State', 'Demands', 'Pinned', 'Look closely'],
      value.tools.map(
        (tool) =>
          html`<tr><td><details><summary>${visible(tool.name)}</summary><pre>${textOf(tool.definition)}</pre></details></td><td><code>${visible(tool.exposed_as)}</code></td><td><span class="verdict ${tool.state === 'approved' ? 'allowed' : 'denied'}">${tool.state}</span></td><td>${tool.required_capability === null ? '' : tokens([tool.required_capability])}</td><td>${ago(tool.pinned_at, facts.at)}</td><td>${tool.flags.join(', ')}</td></tr>`,
      ),
      html`<p>It has none, or was not read yet.</p>`,
    )}</section>
<section class="card"><h2>Bound principals</h2>${table(
      ['Principal', 'Kind', 'Since', 'By', ''],
      bindings
        .slice(0, SHOWN)
        .map(
          (one) =>
            html`<tr><td><a href="${pathOf(KINDS[one.principal_type].plural, one.agent_id)}">${one.agent_id}</a></td><td>${one.principal_type}</td><td>${ago(one.created_at, facts.at)}</td><td>${one.created_by ?? ''}</td><td>${button(facts, 'admin.grant', `${path}/bindings/${one.binding_id}/revoke`, 'Release')}</td></tr>`,
        ),
      html`<p>Nobody can reach it.</p>`,
    )}${when(bindings.length > SHOWN, () => html`<p>${counted(bindings.length, 'principal is', 'principals are')} bound. <a href="/proxy/tools#bindings">Find one of them</a></p>`)}${
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
function waits(
  tool: Waiting,
  { path, ifMatch }: { readonly path: string; readonly ifMatch: string },
  facts: Parameters<Page>[1],
): Html {
  const [before, now] = [textOf(tool.definition), textOf(tool.pending_definition)]
  return html`<section class="card needs-you"><h2>${visible(tool.name)} waits for a reader</h2>
<p>What differs:</p><ul>${all((tool.changes ?? []).map((line) => html`<li><code>${line}</code></li>`))}</ul>
${when(tool.flags.length > 0, () => html`<p><span class="badge warn">${tool.flags.join(', ')}</span></p>`)}
<div class="diff"><div><h3>Approved before</h3><pre>${marked(before, now)}</pre></div><div><h3>Now</h3><pre>${marked(now, before)}</pre></div></div>
<p>${button(facts, 'admin.tools', `${path}/tools/${encodeURIComponent(tool.name)}/approve`, 'Approve what I have read', { digest: tool.pending_digest ?? '', if_match: ifMatch })}</p></section>`
}

/** A definition as lines of JSON, what hides from readers written out. */
const textOf = (definition: unknown): string =>
  definition === null || definition === undefined
    ? 'none'
    : JSON.stringify(definition, null, 2).split('\n').map(visible).join('\n')

/** A text with those of its lines marked that the other one has not. */
function marked(text: string, other: string): Html {
  const known = new Set(other.split('\n'))
  return all(
    text.split('\n').map((line) => (known.has(line) ? html`${line}\n` : html`<mark>${line}</mark>\n`)),
  )
}
