import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { PRINCIPAL_KINDS } from '../../admin/operation/kinds.ts'
import { perform } from '../../admin/operation/operation.ts'
import { endsSoon, listEndingCertificates } from '../../admin/principals/ending.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { EMPTY_HTML, type HtmlFragment, html, joinHtml, pathOf, relativeTime } from '../frame/parts.ts'
import { card } from './card.ts'

/** Those whose certificates end within 30 days. */
export async function endingCertificates(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): Promise<readonly HtmlFragment[]> {
  const { value: soon } = await perform(listEndingCertificates, context, {}, facts)
  if (soon.length === 0) return []
  const lines = soon.map(
    ({ principal_type: type, principal_id: id, name, svid, cert_not_after: end }) =>
      html`<li><a href="${pathOf(PRINCIPAL_KINDS[type].plural, id)}">${name}</a> ${relativeTime(end, facts.at)}${svid ? html` <span class="faint">its SVID, and it was not seen with a newer one</span>` : EMPTY_HTML}</li>`,
  )
  return [card(html`Certificates that end within 30 days`, html`<ul>${joinHtml(lines)}</ul>`)]
}

/** The attached CAs that end within 30 days: whatever they have issued is of no use then. */
export async function endingCas(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): Promise<readonly HtmlFragment[]> {
  const { value: cas } = await perform(OPERATIONS.cas.list, context, {}, facts)
  const soon = cas.filter(({ not_after: end }) => endsSoon(end, facts.at))
  if (soon.length === 0) return []
  const lines = soon.map(
    ({ subject, kind, not_after: end }) =>
      html`<li>${subject} <span class="faint">${kind}</span> ${relativeTime(end, facts.at)}</li>`,
  )
  return [
    card(
      html`Attached CAs that end within 30 days`,
      html`<ul>${joinHtml(lines)}</ul><p><a href="/proxy/pki">Attach the next ones</a></p>`,
    ),
  ]
}
