import { REJECTED_FLAG } from '../../../db/mcp/tools.ts'
import { isObject } from '../../../db/support/json.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { PRINCIPAL_KINDS } from '../../admin/operation/kinds.ts'
import { perform } from '../../admin/operation/operation.ts'
import { endsSoon, listEndingCertificates } from '../../admin/principals/ending.ts'
import { countKeylessPrincipals } from '../../admin/principals/list.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import {
  button,
  countWithNoun,
  EMPTY_HTML,
  type HtmlFragment,
  html,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'
import { type AttentionCard, attentionCard } from './standing.ts'

export async function* endingCertificates(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): AsyncGenerator<AttentionCard> {
  const { value: soon } = await perform(listEndingCertificates, context, {}, facts)
  if (soon.length === 0) return
  const lines = soon.map(
    ({ principal_type: type, principal_id: id, name, svid, cert_not_after: end }) =>
      html`<li><a href="${pathOf(PRINCIPAL_KINDS[type].plural, id)}">${name}</a> ${relativeTime(end, facts.at)}${svid && html` <span class="faint">its SVID; it has not been seen with a newer one</span>`}</li>`,
  )
  const about = ['certificates', ...soon.map(({ principal_id: id, cert_not_after: end }) => `${id} ${end}`)]
  yield attentionCard(html`Certificates that end within 30 days`, html`<ul>${lines}</ul>`, about.join('\n'))
}

/** Half a year: the CA is replaced in steps, and nothing that it issues lives longer than it does. */
const REPLACE_MS = 180 * 86_400_000

/** The service's own CA, while it is being replaced, and from half a year before its end. */
export async function* ownCa(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): AsyncGenerator<AttentionCard> {
  const { rotation, notAfter } = context.authority
  if (rotation === null && notAfter - facts.at > REPLACE_MS) return
  if (rotation === null)
    return yield attentionCard(
      html`This organisation's CA ends ${relativeTime(new Date(notAfter).toISOString(), facts.at)}`,
      html`<p><a href="/proxy/pki">Replace it</a></p>`,
    )
  const { value } = await perform(OPERATIONS.caRotation.show, context, {}, facts)
  const next = value.phase === 'issuing' ? 'Finish it once nobody does.' : 'The next one is prepared.'
  yield attentionCard(
    html`This organisation's CA is being replaced`,
    html`<p>${String(value.holders?.active ?? 0)} active principals hold certificates of the old one. ${next} <a href="/proxy/pki">PKI</a></p>`,
  )
}

export async function* endingCas(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): AsyncGenerator<AttentionCard> {
  const { value: cas } = await perform(OPERATIONS.cas.list, context, {}, facts)
  // One that another of the same name and kind has followed needs nobody.
  const soon = cas.filter(
    ({ not_after: end, subject, kind }) =>
      endsSoon(end, facts.at) &&
      !cas.some(
        (next) => next.subject === subject && next.kind === kind && !endsSoon(next.not_after, facts.at),
      ),
  )
  if (soon.length === 0) return
  const lines = soon.map(
    ({ subject, kind, not_after: end }) =>
      html`<li>${subject} <span class="faint">${kind}</span> ${relativeTime(end, facts.at)}</li>`,
  )
  yield attentionCard(
    html`Attached CAs that end within 30 days`,
    html`<ul>${lines}</ul><p><a href="/proxy/pki">Attach the next ones</a></p>`,
    ['cas', ...soon.map(({ digest }) => digest)].join('\n'),
  )
}

const KINDS = [
  ['agents', 'agent'],
  ['users', 'user'],
  ['workloads', 'workload'],
] as const

/** Counts callers without a proof key, if proofs are optional: a stolen certificate speaks as one of them. */
export async function* keylessCallers(
  { context, inForce }: DashboardContext,
  facts: AdministrationFacts,
): AsyncGenerator<AttentionCard> {
  const mode = inForce.modes.find(({ name }) => name === 'egress_dpop_mode')?.value
  if (mode !== 'optional') return
  const { value } = await perform(countKeylessPrincipals, context, {}, facts)
  const some = KINDS.filter(([plural]) => value[plural] > 0)
  if (some.length === 0) return
  const q = new URLSearchParams({ q: 'is:keyless is:active' }).toString()
  yield attentionCard(
    html`No proof key, while proofs are optional`,
    html`<p>Whoever gets the private key of one of these can call as it.</p><ul>${some.map(([plural, one]) => html`<li><a href="/proxy/${plural}?${q}">${countWithNoun(value[plural], one)}</a></li>`)}</ul><p>Give them the sidecar, or a proof key (one whose calls are signed already has <i>Adopt it</i> on its page); then <a href="/proxy/settings#modes">rehearse <code>required</code></a>.</p>`,
    ['keyless', ...some.map(([plural]) => `${value[plural]} ${plural}`)].join('\n'),
  )
}

export async function* openProposals(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): AsyncGenerator<AttentionCard> {
  const query = { status: 'open' as const, limit: '20' }
  const { value, next } = await perform(OPERATIONS.proposals.list, context, { query }, facts)
  for (const { id, at, by, action, rehearsal, change, expires_at: until } of value.proposals) {
    const isOwn = by === facts.actor.id
    const decide = (what: string, label: string): HtmlFragment =>
      button(facts, 'admin.read', `/proxy/proposals/${id}/${what}`, label)
    yield attentionCard(
      html`${by} asks for a second operator: ${action}`,
      html`<p>${relativeTime(at, facts.at)}, until ${relativeTime(until, facts.at)}. ${
        rehearsal === null ? 'It could not be rehearsed.' : html`It was rehearsed: <code>${rehearsal}</code>.`
      }</p><pre>${JSON.stringify(change, null, 2)}</pre>${readServer(change)}
<p>${isOwn ? html`<span class="faint">Another operator must confirm it.</span>` : decide('confirm', 'Confirm')} ${decide('decline', isOwn ? 'Withdraw' : 'Decline')}</p>`,
      `proposal ${id}`,
    )
  }
  // Nobody hides an older one by proposing twenty others.
  if (next)
    yield attentionCard(
      html`More changes are waiting for a second operator than are shown here`,
      html`<p>These are the newest. <code>sallyport operator proposals</code> lists all.</p>`,
    )
}

/** Calls that wait for an approval: each is news by itself. */
export async function* openApprovals(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): AsyncGenerator<AttentionCard> {
  const query = { status: 'open' as const, limit: '20' }
  const { value, next } = await perform(OPERATIONS.approvals.list, context, { query }, facts)
  for (const { id, status, approver, principal, resource, tool, expires_at: until } of value.approvals) {
    // A person is asked by their own program.
    if (status !== 'open' || approver === 'person') continue
    yield attentionCard(
      html`A call of ${resource}.${tool} waits for an approval`,
      html`<p>It is a call of ${principal}, and can be approved until ${relativeTime(until, facts.at)}. <a href="${pathOf('approvals', id)}">Read it</a></p>`,
      `approval ${id}`,
    )
  }
  if (next)
    yield attentionCard(
      html`More calls wait for an approval than are shown here`,
      html`<p><a href="/proxy/approvals">Show all</a></p>`,
    )
}

/** Links to the texts that an approval names by their digest alone. */
function readServer({ params }: Readonly<Record<string, unknown>>): HtmlFragment {
  const id = isObject(params) ? params.resource_id : undefined
  return typeof id === 'string'
    ? html`<p><a href="${pathOf('tools', id)}">Read what it is about before you confirm it</a></p>`
    : EMPTY_HTML
}

/** A definition that has been read and rejected waits for nobody. */
const isUnread = ({ state, flags }: { readonly state: string; readonly flags: readonly string[] }): boolean =>
  state === 'quarantined' && !flags.includes(REJECTED_FLAG)

/** Names the very texts: another change of the same tool is other news. */
const definitionsOf = (
  id: string,
  tools: readonly {
    readonly name: string
    readonly digest: string | null
    readonly pending_digest: string | null
  }[],
): string =>
  ['tools', id, ...tools.map((tool) => `${tool.name} ${tool.digest} ${tool.pending_digest}`)].join('\n')

export async function* servers(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): AsyncGenerator<AttentionCard> {
  const { value } = await perform(OPERATIONS.mcpResources.list, context, {}, facts)
  for (const { resource_id: id, name, tools, ...server } of value) {
    const path = pathOf('tools', id)
    const unread = tools.filter(isUnread)
    if (unread.length > 0)
      yield attentionCard(
        html`${name}: ${countWithNoun(unread.length, 'tool has', 'tools have')} changed`,
        html`<p>${unread.map((tool) => tool.name).join(', ')} cannot be called until somebody has read and approved the changes.</p><p><a href="${path}">Read and approve</a></p>`,
        definitionsOf(id, unread),
      )
    const inPart = tools.filter((tool) => tool.state === 'approved' && tool.pending_digest !== null)
    if (inPart.length > 0)
      yield attentionCard(
        html`${name}: ${countWithNoun(inPart.length, 'tool is', 'tools are')} listed in part`,
        html`<p>${inPart.map((tool) => tool.name).join(', ')}: an earlier version approved a part of each, and the rest is another by now. They can be called; callers see the approved part.</p><p><a href="${path}">Read and approve</a></p>`,
        definitionsOf(id, inPart),
      )
    const lost = new Set(
      tools.filter(({ state, digest }) => state === 'gone' && digest !== null).map((tool) => tool.name),
    )
    const odd = server.skipped_tools.filter((tool) => tool.name !== null && lost.has(tool.name))
    if (odd.length > 0)
      yield attentionCard(
        html`${name}: ${countWithNoun(odd.length, 'approved tool', 'approved tools')} cannot be used any more`,
        html`<ul>${odd.map((tool) => html`<li>${tool.name ?? ''}: ${tool.reason}</li>`)}</ul><p><a href="${path}">Look at it</a></p>`,
        ['odd', id, ...odd.map((tool) => `${tool.name} ${tool.reason}`)].join('\n'),
      )
    if (server.pending_server_digest !== null)
      yield attentionCard(
        html`${name} says something new about itself`,
        html`<p>Models still get the approved instructions until somebody has read and approved the changes.</p><p><a href="${path}">Read and approve</a></p>`,
        `words ${id} ${server.pending_server_digest}`,
      )
    if (server.last_error !== null)
      yield attentionCard(
        html`${name} cannot be read`,
        html`<p>${server.last_error}</p><p><a href="${path}">Look at it</a></p>`,
      )
  }
}
