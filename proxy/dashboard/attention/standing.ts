import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { type AttentionCard, attentionCard, countWithNoun, html, relativeTime } from '../frame/parts.ts'

const DAY_MS = 86_400_000
const SHOWN = 20

const since = (at: number, now: number) => relativeTime(new Date(at).toISOString(), now)

/** The faults of this process and of what it depends on, as it knows them now. */
export function standingCards(
  { standing }: Pick<DashboardContext, 'standing'>,
  { at }: Pick<AdministrationFacts, 'at'>,
): readonly AttentionCard[] {
  const { diskLow, clockOffS, ledgerFailing, rejected, providers, unserved } = standing()
  const asked = unserved.filter((one) => at - one.at < DAY_MS)
  return [
    ...(ledgerFailing
      ? [
          attentionCard(
            html`The ledger cannot be written`,
            html`<p>No call is served until it can: no row, no work. Look at the disk and the database of the gateway; it tries again each second.</p>`,
          ),
        ]
      : []),
    ...(diskLow
      ? [
          attentionCard(
            html`The disk is low`,
            html`<p>Refusals have no rows of their own any more, so that calls have theirs. Make room, or move the database.</p>`,
          ),
        ]
      : []),
    ...(clockOffS === 0
      ? []
      : [
          attentionCard(
            html`The clock is wrong`,
            html`<p>It is ${countWithNoun(Math.abs(clockOffS), 'second')} ${clockOffS > 0 ? 'ahead of' : 'behind'} the database's. Proofs and certificates that are good are refused here, and others are believed too long. Set the clocks of all machines by a time service.</p>`,
            'clock',
          ),
        ]),
    ...(rejected
      ? [
          attentionCard(
            html`The configuration did not load`,
            html`<p>The one before stays in force. ${since(rejected.at, at)}:</p><pre>${rejected.message}</pre><p>Mend the file, and reload.</p>`,
            `rejected ${rejected.message}`,
          ),
        ]
      : []),
    ...providers.flatMap(({ name, keyMissing, keyVariable, failingSince, problem }) => [
      ...(keyMissing
        ? [
            attentionCard(
              html`The provider ${name} has no key`,
              html`<p>Its calls are refused with <code>provider_not_configured</code>. ${keyVariable === null ? html`Set <code>api_key</code> in <code>50-llm.yaml</code>.` : html`Set <code>${keyVariable}</code>, and start again.`}</p>`,
            ),
          ]
        : []),
      ...(failingSince === null
        ? []
        : [
            attentionCard(
              html`The provider ${name} fails`,
              html`<p>Since ${since(failingSince, at)}: ${problem ?? 'it did not answer'}.</p>`,
            ),
          ]),
    ]),
    ...(asked.length === 0
      ? []
      : [
          attentionCard(
            html`${countWithNoun(asked.length, 'model')} that nobody serves`,
            html`<ul>${asked.slice(0, SHOWN).map(({ asked: model, calls, first, at: last, requestId }) => html`<li><code>${model}</code>: ${countWithNoun(calls, 'call')}, the first ${since(first, at)}, <a href="/proxy/activity/${requestId}">the last</a> ${since(last, at)}</li>`)}</ul><p>Name it under <code>models</code> or <code>aliases</code> of a provider in <code>50-llm.yaml</code>, or tell the callers which models there are.</p>`,
            ['unserved', ...asked.map(({ asked: model }) => model).toSorted()].join('\n'),
          ),
        ]),
  ]
}
