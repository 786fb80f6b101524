import { Readable } from 'node:stream'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { AuditVerdict } from '../../admin/audit/audit.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { Reply } from '../../http/reply.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { frame } from '../frame/frame.ts'
import { type HtmlFragment, html } from '../frame/parts.ts'
import { seenOutside } from './checkpoints.ts'
import { proofBody } from './proof.ts'

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
