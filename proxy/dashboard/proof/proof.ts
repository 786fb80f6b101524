import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { ledgerHead } from '../../admin/audit/audit.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/page.ts'
import {
  button,
  copyableCode,
  EMPTY_HTML,
  factList as factsOf,
  type HtmlFragment,
  html,
  relativeTime,
} from '../frame/parts.ts'
import { auditorCard, reviewsCard, signIns } from './auditors.ts'
import { checkpointsCard } from './checkpoints.ts'

/** GET /proxy/proof: the state of the ledger, its anchors, and how anybody verifies it. */
export const proofPage: DashboardPage = async (dashboard, facts) => ({
  title: 'Proof',
  section: '/proxy/proof',
  body: await proofBody(dashboard, facts, EMPTY_HTML),
})

/** The page below `verdict`: the result of a verification. */
export async function proofBody(
  dashboard: DashboardContext,
  facts: AdministrationFacts,
  verdict: HtmlFragment,
): Promise<HtmlFragment> {
  const { context } = dashboard
  const head = await ledgerHead(context)
  const { value: standing } = await perform(OPERATIONS.audit.log, context, {}, facts)
  return html`${verdict}<section class="card"><h2>State of the ledger</h2>${
    head
      ? factsOf([
          ['Last row', `${head.seq} of ${head.stream}`],
          ['Recorded', relativeTime(head.recorded_at, facts.at)],
          ['Hash', copyableCode(head.row_hash)],
        ])
      : html`<p>It is empty.</p>`
  }<p class="faint">Whoever keeps this hash elsewhere can tell later whether anything before it was rewritten.</p>
${button(facts, 'admin.audit', '/proxy/proof/verify', 'Verify the whole ledger')}</section>
${checkpointsCard(standing, facts.at)}${auditorCard(standing, facts)}${reviewsCard(standing, facts)}${await signIns(dashboard, facts)}`
}
