import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { parseLedgerPage } from '../../admin/audit/audit.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { DashboardPage } from '../frame/page.ts'
import {
  factList as factsOf,
  type HtmlFragment,
  html,
  htmlIf,
  joinHtml,
  relativeTime,
  tokens,
} from '../frame/parts.ts'
import { rowReason, verdict } from './calls.ts'
import { gatesOf, rowAuthority, valueText } from './gates.ts'
import { findGrantingRow } from './granted-by.ts'
import { ledgerCard } from './in-ledger.ts'

/** GET /proxy/activity/{request_id}: why a call was let through or refused, gate by gate, and the rows that say so. */
export const whyPage: DashboardPage = async (dashboard, facts) => {
  const { request_id: id = '' } = facts.params
  const query = { request_id: id, order: 'asc' as const }
  const { rows } = await parseLedgerPage(
    (await perform(OPERATIONS.audit.list, dashboard.context, { query }, facts)).value,
  )
  const [decision, ...later] = rows
  if (!decision) throw new Refusal('not_found', { message: 'The ledger has no row of this request.' })
  const outcome = later.at(-1) ?? null
  const who = decision.principal_name ?? decision.principal_id ?? 'nobody'
  return {
    title: `Why: ${decision.action}`,
    section: '/proxy/activity',
    body: html`<p class="lead">${verdict(decision, outcome)} <b>${who}</b> ${decision.action} ${decision.tool ?? decision.model ?? ''} ${relativeTime(decision.recorded_at, facts.at)}${rowReason(decision) === null ? '' : `: ${rowReason(decision)}`}</p>
${isJudged(decision) ? judged(decision, await findGrantingRow(dashboard, facts, decision)) : html`<section class="card"><h2>A change, and no call</h2>${became(decision)}</section>`}
${htmlIf(outcome !== null, () => html`<section class="card"><h2>What became of it</h2>${became(outcome)}</section>`)}
${await ledgerCard(dashboard, id, rows)}`,
  }
}

/** A decision, and not a row of a change or of the service itself. */
const isJudged = ({ status }: AuditRow): boolean => status === 'allowed' || status === 'denied'

const judged = (
  decision: AuditRow,
  granted: AuditRow | null,
): HtmlFragment => html`<section class="card"><h2>The gates, in the order they were asked</h2><ol class="gates">${joinHtml(gatesOf(decision))}</ol></section>
<section class="card"><h2>What it rested on</h2>${restedOn(decision, granted)}</section>`

function restedOn(decision: AuditRow, granted: AuditRow | null): HtmlFragment {
  const held = granted?.detail.capabilities
  const shown = new Set(['demanded', 'checks'])
  return factsOf([
    [
      'Set held then',
      Array.isArray(held)
        ? tokens(held.map(valueText))
        : html`<span class="faint">not among the newest changes</span>`,
    ],
    [
      'By the row',
      granted === null
        ? ''
        : html`<a href="/proxy/activity/${granted.request_id ?? ''}">${granted.action}</a> of ${granted.principal_name ?? granted.principal_id ?? ''}, ${granted.recorded_at}`,
    ],
    ...Object.entries(rowAuthority(decision))
      .filter(([name]) => !shown.has(name))
      .map(([name, value]) => [name, valueText(value)] as const),
  ])
}

const became = (outcome: AuditRow | null): HtmlFragment =>
  factsOf(Object.entries(outcome?.detail ?? {}).map(([name, value]) => [name, valueText(value)] as const))
