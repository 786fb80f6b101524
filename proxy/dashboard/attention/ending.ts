import type { Administered } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { KINDS } from '../../admin/operation/kinds.ts'
import { perform } from '../../admin/operation/operation.ts'
import { endsSoon, listEnding } from '../../admin/principals/ending.ts'
import type { Dashboard } from '../frame/dashboard.ts'
import { ago, all, type Html, html, NOTHING, pathOf } from '../frame/parts.ts'
import { card } from './card.ts'

/** Those whose certificates end within 30 days. */
export async function ending({ context }: Dashboard, facts: Administered): Promise<readonly Html[]> {
  const { value: soon } = await perform(listEnding, context, {}, facts)
  if (soon.length === 0) return []
  const lines = soon.map(
    ({ principal_type: type, principal_id: id, name, svid, cert_not_after: end }) =>
      html`<li><a href="${pathOf(KINDS[type].plural, id)}">${name}</a> ${ago(end, facts.at)}${svid ? html` <span class="faint">its SVID, and it was not seen with a newer one</span>` : NOTHING}</li>`,
  )
  return [card(html`Certificates that end within 30 days`, html`<ul>${all(lines)}</ul>`)]
}

/** The attached CAs that end within 30 days: whatever they have issued is of no use then. */
export async function endingCas({ context }: Dashboard, facts: Administered): Promise<readonly Html[]> {
  const { value: cas } = await perform(OPERATIONS.cas.list, context, {}, facts)
  const soon = cas.filter(({ not_after: end }) => endsSoon(end, facts.at))
  if (soon.length === 0) return []
  const lines = soon.map(
    ({ subject, kind, not_after: end }) =>
      html`<li>${subject} <span class="faint">${kind}</span> ${ago(end, facts.at)}</li>`,
  )
  return [
    card(
      html`Attached CAs that end within 30 days`,
      html`<ul>${all(lines)}</ul><p><a href="/proxy/pki">Attach the next ones</a></p>`,
    ),
  ]
}
