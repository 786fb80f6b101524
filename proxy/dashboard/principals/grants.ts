import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import { formHandler } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import {
  button,
  dataTable,
  EMPTY_HTML,
  type HtmlFragment,
  html,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'

const { list, end } = { list: OPERATIONS.users.grants, end: OPERATIONS.grants.end }

/** Renders what a user has allowed programs that call without a certificate; nothing if that is none. */
export async function grantsCard(
  { context }: DashboardContext,
  id: string,
  facts: AdministrationFacts,
): Promise<HtmlFragment> {
  const { value } = await perform(list, context, { params: { id } }, facts)
  if (value.grants.length === 0) return EMPTY_HTML
  return html`<section class="card" id="grants"><h2>Programs that may call in their name</h2>${dataTable(
    ['Program', 'Its calls', 'It reaches', 'Since', 'Until', ''],
    value.grants.map(
      (one) =>
        html`<tr><td>${one.client.host} <span class="faint">${one.client.kind}</span></td><td>${one.bound === 'key' ? 'proven by its key' : 'by whoever has its token'}</td><td>${one.scope === null ? 'all that the user holds' : one.scope.join(', ')}</td><td>${relativeTime(one.issued_at, facts.at)}</td><td>${relativeTime(one.expires_at, facts.at)}</td><td>${button(facts, end.demands, `${pathOf('users', id)}/grants/${one.grant}/end`, 'End')}</td></tr>`,
    ),
    EMPTY_HTML,
  )}</section>`
}

export const endGrantForm = (dashboard: DashboardContext) =>
  formHandler(dashboard, end, {
    given: ({ params }) => ({ params: { id: params.grant ?? '' } }),
    to: ({ params }) => pathOf('users', params.id ?? ''),
    notice: 'grant_ended',
  })
