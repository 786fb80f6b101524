import { Readable } from 'node:stream'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { type AuditVerdict, ledgerHead } from '../../admin/audit/audit.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { Reply } from '../../http/reply.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import { frame } from '../frame/frame.ts'
import {
  button,
  copyableCode,
  EMPTY_HTML,
  factList as factsOf,
  type HtmlFragment,
  html,
  problemList,
  relativeTime,
} from '../frame/parts.ts'
import { auditorCard, checkpointsCard, reviewsCard, seenOutside, signIns } from './auditors.ts'

/** The point at which the page waits for the verdict. */
const VERDICT_PLACEHOLDER = html`<div id="verdict" role="status" aria-live="polite"></div>`

/** POST /proxy/proof/verify: recomputes the whole chain. The page streams progress, then the result. */
export const verifyForm =
  (dashboard: DashboardContext) =>
  async (facts: AdministrationFacts): Promise<Reply> => {
    const { value } = await perform(OPERATIONS.audit.verifyInLines, dashboard.context, {}, facts)
    const { value: log } = await perform(OPERATIONS.audit.log, dashboard.context, {}, facts)
    const reply = await frame(dashboard, facts, {
      title: 'Proof',
      section: '/proxy/proof',
      body: await proofBody(dashboard, facts, VERDICT_PLACEHOLDER),
    })
    const [above = '', below = ''] = reply.body.split(VERDICT_PLACEHOLDER.text)
    return {
      ...reply,
      body: {
        source: Readable.from(
          verificationHtml(above, value as AsyncIterable<Uint8Array>, [below, seenOutside(log.anchors)]),
        ),
      },
    }
  }

/** A line of the verification: its progress, or its result. Proven by the operation. */
type VerificationLine = AuditVerdict | { readonly progress: { readonly rows: number; readonly of: number } }

async function* verificationHtml(
  above: string,
  pieces: AsyncIterable<Uint8Array>,
  [below, seen]: readonly [string, HtmlFragment],
): AsyncGenerator<string> {
  yield above
  let next = 0
  for await (const piece of pieces) {
    const said = JSON.parse(Buffer.from(piece).toString()) as VerificationLine
    if (!('progress' in said)) yield verdictOf(said, seen).text
    else if (said.progress.rows >= next) {
      yield html`<p class="faint">${number(said.progress.rows)} of ${number(said.progress.of)} rows…</p>`.text
      // Twenty lines at most, however long it takes.
      next = said.progress.rows + said.progress.of / 20
    }
  }
  yield below
}

const verdictOf = ({ ok, rows, first_bad: bad }: AuditVerdict, seen: HtmlFragment): HtmlFragment =>
  ok
    ? html`<p class="notice" role="status">Whole: ${number(rows)} rows were recomputed, and each row matches its hash. Seen ${seen}.</p>`
    : html`<p class="problem" role="alert">Damaged: ${bad ? `row ${bad.seq} of ${bad.stream} ${bad.problem}` : 'see the export'}.</p>`

const number = (count: number): string => count.toLocaleString('en')

const HEADERS = {
  'content-type': 'application/zip',
  'content-disposition': 'attachment; filename="evidence.zip"',
}

/** GET /proxy/proof/evidence: the pack of a period, or the page with the fault of that period. */
export const evidenceForm =
  (dashboard: DashboardContext) =>
  async (facts: AdministrationFacts): Promise<Reply> => {
    const query = Object.fromEntries(
      [...new URLSearchParams(facts.query)].filter(([, value]) => value !== ''),
    )
    try {
      const { value } = await perform(OPERATIONS.audit.evidence, dashboard.context, { query }, facts)
      const pieces = value as AsyncIterable<Uint8Array>
      return { status: 200, headers: HEADERS, body: { source: Readable.from(pieces, { objectMode: false }) } }
    } catch (error) {
      if (!(error instanceof Refusal) || error.status >= 500) throw error
      return frame(dashboard, facts, {
        title: 'Proof',
        section: '/proxy/proof',
        status: error.status,
        body: await proofBody(dashboard, facts, problemList(error)),
      })
    }
  }

/** GET /proxy/proof: the state of the ledger, its anchors, and how anybody verifies it. */
export const proofPage: DashboardPage = async (dashboard, facts) => ({
  title: 'Proof',
  section: '/proxy/proof',
  body: await proofBody(dashboard, facts, EMPTY_HTML),
})

const EXPLANATION = html`<section class="card"><h2>What this proves, and to whom</h2><ul>
<li><b>To an auditor</b>: an evidence pack shows who was allowed or refused what in a period, who had granted it, and that no row was changed, left out or added since. It is verified without this service.</li>
<li><b>To the owner of an agent</b>: a receipt shows that one call was decided as the ledger says, under a checkpoint that the service has signed.</li>
<li><b>Against whoever owns the database</b>: only checkpoints that are kept elsewhere prove that history was not written again. Below stands who has seen them.</li></ul>
<p class="faint">It does not prove that what a caller asked for was right, nor what it did with the answer.</p></section>`

export async function proofBody(
  dashboard: DashboardContext,
  facts: AdministrationFacts,
  verdict: HtmlFragment,
): Promise<HtmlFragment> {
  const { context } = dashboard
  const head = await ledgerHead(context)
  const { value: standing } = await perform(OPERATIONS.audit.log, context, {}, facts)
  return html`${verdict}${EXPLANATION}<section class="card"><h2>State of the ledger</h2>${
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
