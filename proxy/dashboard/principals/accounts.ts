import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { notFound, Refusal } from '../../../plugins/refusal.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { type ConnectableAccount, connectableFor, resourcesOfAccounts } from '../../admin/mcp/connectable.ts'
import { PRINCIPAL_KINDS } from '../../admin/operation/kinds.ts'
import { perform } from '../../admin/operation/operation.ts'
import { principalOf } from '../../admin/principals/view.ts'
import type { Reply } from '../../http/reply.ts'
import { redirectPage } from '../../operators/pages/page.ts'
import { type FormSubmission, formHandler } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  button,
  csrf,
  dataTable,
  EMPTY_HTML,
  factList,
  type HtmlFragment,
  hasCapability,
  html,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'
import { type CallerPlural, PRINCIPAL_PAGES } from './kinds.ts'

const NEEDS = OPERATIONS.accounts.end.demands

/** Renders the accounts of a principal at MCP servers, and where one may be connected. */
export async function accountsCard(
  { context }: DashboardContext,
  plural: CallerPlural,
  id: string,
  facts: AdministrationFacts,
): Promise<HtmlFragment> {
  if (!context.accounts) return EMPTY_HTML
  const { kind } = PRINCIPAL_PAGES[plural]
  const { value } = await perform(OPERATIONS.accounts.list, context, { query: { principal: id } }, facts)
  const servers = await resourcesOfAccounts(context, await principalOf(context, kind, id))
  if (value.accounts.length === 0 && servers.length === 0) return EMPTY_HTML
  const { links } = context.accounts
  const principal = { type: kind.type, id }
  const linkTo = (resourceId: string): string =>
    `/proxy/connect/${links.seal({ principal, resourceId, scopes: [] }, facts.at)}`
  const connected = value.accounts.map(
    (one) =>
      html`<tr><td><a href="${pathOf('tools', one.resource_id)}">${one.resource ?? one.resource_id}</a></td><td>${one.issuer}</td><td>${one.scopes.join(', ')}</td><td>${relativeTime(one.connected_at, facts.at)}</td><td>${button(facts, NEEDS, `${pathOf(plural, id)}/accounts/${one.account}/end`, 'End')}</td></tr>`,
  )
  const connects = kind.type !== 'user' && hasCapability(facts, NEEDS)
  const toConnect = servers.map(
    (one) =>
      html`<tr><td>${one.name}</td><td></td><td></td><td></td><td><a href="${linkTo(one.resource_id)}">Connect an account</a></td></tr>`,
  )
  return html`<section class="card" id="accounts"><h2>Accounts at servers</h2>${dataTable(
    ['Server', 'Issuer', 'Scopes', 'Since', ''],
    connects ? [...connected, ...toConnect] : connected,
    html`<p>None is connected.</p>`,
  )}${kind.type === 'user' && html`<p class="faint">A user connects accounts at the page <code>/account</code> of the listener for people.</p>`}</section>`
}

export const endAccountForm = (plural: CallerPlural, dashboard: DashboardContext) =>
  formHandler(dashboard, OPERATIONS.accounts.end, {
    given: ({ params }) => ({ params: { id: params.account ?? '' } }),
    to: ({ params }) => pathOf(plural, params.id ?? ''),
    notice: 'account_ended',
  })

async function requested(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): Promise<ConnectableAccount> {
  const request = context.accounts?.links.open(facts.params.id ?? '', facts.at)
  // A user's account is connected by that user alone.
  const to = request && request.principal.type !== 'user' ? await connectableFor(context, request) : null
  if (!to) throw notFound('This link is over, or is not for operators. Call the tool again for a new one.')
  return to
}

/** GET /proxy/connect/{id}: says for which agent or workload an account is to be connected, and asks. */
export const connectForPrincipalPage: DashboardPage = async (dashboard, facts) => {
  const { holder, resource, scopes } = await requested(dashboard, facts)
  const { plural } = PRINCIPAL_KINDS[holder.type]
  const asked = scopes.length > 0 ? scopes : (resource.oauth?.scopes ?? [])
  return {
    title: 'Connect an account?',
    section: `/proxy/${plural}`,
    body: html`<section class="card"><h2>The account</h2>${factList([
      ['Whose calls will use it', html`<a href="${pathOf(plural, holder.id)}">${holder.id}</a>`],
      ['Server', html`<a href="${pathOf('tools', resource.resource_id)}">${resource.name}</a>`],
      ['Address', new URL(resource.endpoint_url).origin],
      ['Issuer', resource.oauth?.issuer ?? 'the one that the server names'],
      ['Scopes', asked.join(', ') || 'what it gives by itself'],
    ])}<form method="post" action="/proxy/connect/${facts.params.id ?? ''}">${csrf(facts.session)}<p>You go on at the listener for people, which asks once more, and sign in at the issuer with the account that it is to be.</p><button>Go on</button></form></section>`,
  }
}

/** POST /proxy/connect/{id}: sends the operator's browser to the listener for people. */
export const connectForm =
  (dashboard: DashboardContext) =>
  async (facts: FormSubmission): Promise<Reply> => {
    const { holder, resource, scopes } = await requested(dashboard, facts)
    const { accounts: desk } = dashboard.context
    if (!desk) throw new Refusal('not_found')
    const request = { principal: holder, resourceId: resource.resource_id, scopes }
    return redirectPage(desk.links.handOver(request, { ref: facts.actor.id }, facts.at))
  }
