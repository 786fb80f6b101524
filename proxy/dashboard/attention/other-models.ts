import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { escapeHidden } from '../../visible.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import {
  type AttentionCard,
  attentionCard,
  countWithNoun,
  hasCapability,
  html,
  relativeTime,
} from '../frame/parts.ts'

const DAY_MS = 86_400_000
const SHOWN = 20

/** Providers that ran another model than they were asked for, within a day: the judged one did not run. */
export function otherModels(
  { modelMismatches }: DashboardContext,
  facts: AdministrationFacts,
): readonly AttentionCard[] {
  if (!hasCapability(facts, 'admin.audit')) return []
  const lately = modelMismatches.list().filter(({ at }) => facts.at - at < DAY_MS)
  if (lately.length === 0) return []
  const lines = lately
    .slice(0, SHOWN)
    .map(
      ({ provider, asked, answered, calls, at, requestId }) =>
        html`<li>${provider} was asked for <code>${escapeHidden(asked)}</code> and ran <code>${escapeHidden(answered)}</code>: ${countWithNoun(calls, 'call', 'calls')}, <a href="/proxy/activity/${requestId}">the last one</a> ${relativeTime(new Date(at).toISOString(), facts.at)}</li>`,
    )
  return [
    attentionCard(
      html`A different model answered than was asked for`,
      html`<ul>${lines}</ul><p>Rules about models were applied to the first name. If both are the same model, say so with <code>answered_by</code> in <code>50-llm.yaml</code>; if not, check the settings of the provider, and <code>refuse_members</code>.</p>`,
      ['other models', ...lately.map(({ provider, asked, answered }) => `${provider} ${asked} ${answered}`)]
        .toSorted()
        .join('\n'),
    ),
  ]
}
