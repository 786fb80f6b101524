import type { z } from 'zod'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { approvalSummary, approvalView } from '../../admin/approvals/operations.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { PRINCIPAL_KINDS } from '../../admin/operation/kinds.ts'
import { type OperationResult, perform } from '../../admin/operation/operation.ts'
import { renderArguments } from '../../operators/pages/call-arguments.ts'
import { type FormSubmission, formHandler } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  copyableCode,
  csrf,
  dataTable,
  factList,
  type HtmlFragment,
  hasCapability,
  html,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'

type ShownApproval = OperationResult<z.output<typeof approvalView>>['value']
type ListedApproval = OperationResult<z.output<typeof approvalSummary>>['value']

const NEEDS = OPERATIONS.approvals.approve.demands
const SECTION = '/proxy'

const stateBadge = ({ status }: Pick<ListedApproval, 'status'>): HtmlFragment =>
  status === 'open'
    ? html`<span class="badge warn">waits</span>`
    : html`<span class="verdict ${status === 'approved' || status === 'used' ? 'allowed' : 'denied'}">${status}</span>`

const principalLink = ({ principal, principal_type: type }: ListedApproval): HtmlFragment =>
  html`<a href="${pathOf(PRINCIPAL_KINDS[type].plural, principal)}">${principal}</a>`

/** GET /proxy/approvals: the calls that wait, and those of the last day. */
export const approvalsPage: DashboardPage = async ({ context }, facts) => {
  const query = { limit: '200' }
  const { value } = await perform(OPERATIONS.approvals.list, context, { query }, facts)
  return {
    title: 'Calls to approve',
    section: SECTION,
    body: dataTable(
      ['Tool', 'Whose call', 'State', 'Asked', 'Until', 'Decided by'],
      value.approvals.map(
        (one) =>
          html`<tr><td><a class="row" href="${pathOf('approvals', one.id)}">${one.resource}.${one.tool}</a></td><td>${principalLink(one)}</td><td>${stateBadge(one)}</td><td>${relativeTime(one.created_at, facts.at)}</td><td>${relativeTime(one.expires_at, facts.at)}</td><td>${one.decided_by ?? ''}</td></tr>`,
      ),
      html`<p>No call waits for an approval, and none did in the last day.</p>`,
    ),
  }
}

/** GET /proxy/approvals/{id}: one call with all of its arguments, and the buttons that decide about it. */
export const approvalPage: DashboardPage = async ({ context }, facts) => {
  const params = { id: facts.params.id ?? '' }
  const { value: one } = await perform(OPERATIONS.approvals.get, context, { params }, facts)
  const { arguments: args, definition } = one
  return {
    title: `${one.resource}.${one.tool}`,
    section: SECTION,
    body: html`<section class="card ${one.status === 'open' && 'needs-you'}"><h2>The call</h2>${factList([
      ['State', stateBadge(one)],
      ['Whose call', html`${principalLink(one)} <span class="faint">${one.principal_type}</span>`],
      ['Client, in its own words', one.client ?? 'nothing'],
      ['Server', html`<a href="${pathOf('tools', one.resource_id)}">${one.resource}</a>`],
      ['Tool', one.tool],
      ['Asked', html`${relativeTime(one.created_at, facts.at)} by ${copyableCode(one.request_id)}`],
      ['Until', relativeTime(one.expires_at, facts.at)],
      [
        'Decided',
        one.decided_by === null
          ? 'not yet'
          : html`${relativeTime(one.decided_at, facts.at)} by ${one.decided_by}`,
      ],
      ['Reason', one.reason ?? 'none'],
    ])}</section>
${args !== null && html`<section class="card"><h2>All of its arguments</h2>${renderArguments(args)}<p class="faint">${String(one.arguments_bytes)} bytes, in canonical form. An approval is for these, byte by byte, once.</p></section>`}
${decisionCard(one, facts)}
<section class="card"><h2>What the tool says of itself</h2>${definition === null ? html`<p>The definition is another one now: an approval of this call lets nothing pass.</p>` : html`<pre class="whole">${JSON.stringify(definition, null, 2)}</pre>`}</section>`,
  }
}

function decisionCard({ id, status, approver }: ShownApproval, facts: AdministrationFacts): HtmlFragment {
  if (status !== 'open') return html``
  if (!hasCapability(facts, NEEDS)) return html`<p class="needs">Deciding needs <code>${NEEDS}</code>.</p>`
  const path = pathOf('approvals', id)
  const approve =
    approver === 'person'
      ? html`<p>Only the person whose call it is can approve it, on their own page.</p>`
      : html`<form method="post" action="${path}/approve">${csrf(facts.session)}<button>Let exactly this call pass, once</button></form>`
  return html`<section class="card"><h2>Decide</h2>${approve}
<form method="post" action="${path}/decline" class="search">${csrf(facts.session)}<label>Why not: the caller reads it <input name="reason" maxlength="500" autocomplete="off"></label><button class="danger">Decline it</button></form></section>`
}

export function approvalForms(dashboard: DashboardContext) {
  const { approve, decline } = OPERATIONS.approvals
  const given = ({ params, form }: FormSubmission) => ({
    params: { id: params.id ?? '' },
    body: { reason: form.get('reason') || null },
  })
  const to = ({ params }: FormSubmission): string => pathOf('approvals', params.id ?? '')
  return {
    approve: formHandler(dashboard, approve, { given, to, notice: 'call_approved' }),
    decline: formHandler(dashboard, decline, { given, to, notice: 'declined' }),
  }
}
