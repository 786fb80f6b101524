import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { perform } from '../../admin/operation/operation.ts'
import { countKeylessPrincipals } from '../../admin/principals/list.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { type AttentionCard, attentionCard, countWithNoun, html } from '../frame/parts.ts'

const KINDS = [
  ['agents', 'agent'],
  ['users', 'user'],
  ['workloads', 'workload'],
] as const

/** Counts callers without a proof key, if proofs are optional: a stolen certificate speaks as one of them. */
export async function keylessCallers(
  { context, inForce }: DashboardContext,
  facts: AdministrationFacts,
): Promise<readonly AttentionCard[]> {
  const mode = inForce.modes.find(({ name }) => name === 'egress_dpop_mode')?.value
  if (mode !== 'optional') return []
  const { value } = await perform(countKeylessPrincipals, context, {}, facts)
  const some = KINDS.filter(([plural]) => value[plural] > 0)
  if (some.length === 0) return []
  const q = new URLSearchParams({ q: 'is:keyless is:active' }).toString()
  return [
    attentionCard(
      html`No proof key, while proofs are optional`,
      html`<p>Whoever gets the private key of one of these can call as it.</p><ul>${some.map(([plural, one]) => html`<li><a href="/proxy/${plural}?${q}">${countWithNoun(value[plural], one)}</a></li>`)}</ul><p>Give them the sidecar, or a proof key (one whose calls are signed already has <i>Adopt it</i> on its page); then <a href="/proxy/settings#modes">rehearse <code>required</code></a>.</p>`,
      ['keyless', ...some.map(([plural]) => `${value[plural]} ${plural}`)].join('\n'),
    ),
  ]
}
