import type { Administered } from '../../plugins/operators/operator.ts'
import { perform } from '../admin/operation.ts'
import { OPERATIONS } from '../admin/operations.ts'
import { listEnding } from '../admin/principals/ending.ts'
import { acting, named } from './acting.ts'
import { callsOf, linesOf } from './activity/calls.ts'
import type { Dashboard } from './dashboard.ts'
import type { Page } from './page.ts'
import { ago, all, button, type Html, html, may, pathOf, when } from './parts.ts'

const DAY_MS = 86_400_000

/** GET /proxy: what needs a person, and nothing else. Empty means that all is well. */
export const attentionPage: Page = async (dashboard, facts) => {
  const { at } = facts
  const { context } = dashboard
  const { value: resources } = await perform(OPERATIONS.mcpResources.list, context, {}, facts)
  const { value: secret } = await perform(OPERATIONS.secret.show, context, {}, facts)
  const { value: waiting } = await perform(
    OPERATIONS.proposals.list,
    context,
    { query: { status: 'open', limit: '20' } },
    facts,
  )
  const cards: Html[] = [
    ...waiting.proposals.map(
      ({
        id,
        by,
        action,
        at: since,
        expires_at: end,
        rehearsal,
        change,
      }) => html`<section class="card needs-you"><h2>${by} asks for a second person: ${action}</h2>
<p>${ago(since, at)}, until ${ago(end, at)}. ${rehearsal === null ? 'Nobody can say what it would do.' : html`It was rehearsed: <code>${rehearsal}</code>.`}</p><pre>${JSON.stringify(change, null, 2)}</pre>
<p>${by === facts.actor.id ? html`<span class="faint">Somebody else confirms it.</span> ` : html`${button(facts, 'admin.read', `/proxy/proposals/${id}/confirm`, 'Confirm')} `}${button(facts, 'admin.read', `/proxy/proposals/${id}/decline`, by === facts.actor.id ? 'Withdraw' : 'Decline')}</p></section>`,
    ),
    ...resources.flatMap((resource) => {
      const waits = resource.tools.filter(({ state }) => state === 'quarantined')
      return [
        ...(waits.length > 0
          ? [
              html`<section class="card needs-you"><h2>${resource.name}: ${String(waits.length)} ${waits.length === 1 ? 'tool has' : 'tools have'} changed</h2><p>${waits.map(({ name }) => name).join(', ')} cannot be called until somebody has read what is different.</p><p><a href="/proxy/tools/${encodeURIComponent(resource.resource_id)}">Read and approve</a></p></section>`,
            ]
          : []),
        ...(resource.last_error === null
          ? []
          : [
              html`<section class="card needs-you"><h2>${resource.name} cannot be read</h2><p>${resource.last_error}</p><p><a href="/proxy/tools/${encodeURIComponent(resource.resource_id)}">Look at it</a></p></section>`,
            ]),
      ]
    }),
    ...(secret.last_used_at !== null &&
    at - Date.parse(secret.last_used_at) < DAY_MS &&
    facts.actor.via !== 'secret'
      ? [
          html`<section class="card needs-you"><h2>The operator secret was used ${ago(secret.last_used_at, at)}</h2><p>It is for when nothing else opens. <a href="/proxy/activity?principal=admin">What it did</a></p></section>`,
        ]
      : []),
    ...(await ending(dashboard, facts)),
  ]
  const denied = may(facts, 'admin.audit')
    ? await callsOf(dashboard, facts, {
        status: 'denied',
        since: new Date(at - DAY_MS).toISOString(),
        most: 20,
        noise: true,
      })
    : null
  const isQuiet = cards.length === 0 && (denied === null || denied.calls.length === 0)
  return {
    title: 'Attention',
    section: '/proxy',
    body: html`${when(isQuiet, () => html`<p class="lead well">All is well, as of <time datetime="${new Date(at).toISOString()}">${new Date(at).toISOString().slice(11, 19)} UTC</time>. Nothing waits for a person.</p>`)}
${all(cards)}
${when(denied !== null && denied.calls.length > 0, () => html`<section class="card"><h2>Refused lately</h2>${linesOf(denied?.calls ?? [], at, html``)}<p><a href="/proxy/activity?status=denied">All refusals</a></p></section>`)}
${when(denied === null, () => html`<p class="needs">Seeing refused calls needs <code>admin.audit</code>.</p>`)}`,
  }
}

/** Those whose certificates end within 30 days. */
async function ending({ context }: Dashboard, facts: Administered): Promise<readonly Html[]> {
  const { value: soon } = await perform(listEnding, context, {}, facts)
  if (soon.length === 0) return []
  return [
    html`<section class="card needs-you"><h2>Certificates that end within 30 days</h2><ul>${all(
      soon.map(
        ({ principal_type: type, principal_id: id, name, cert_not_after: end }) =>
          html`<li><a href="${pathOf(`${type}s`, id)}">${name}</a> ${ago(end, facts.at)}</li>`,
      ),
    )}</ul></section>`,
  ]
}

/** The forms by which a second operator decides. */
export const proposalForms = (dashboard: Dashboard) => {
  const { confirm, decline } = OPERATIONS.proposals
  const back = { given: named, to: (): string => '/proxy' }
  return {
    confirm: acting(dashboard, confirm, { ...back, notice: 'confirmed' }),
    decline: acting(dashboard, decline, { ...back, notice: 'declined' }),
  }
}
