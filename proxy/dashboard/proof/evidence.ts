import { Readable } from 'node:stream'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { Reply } from '../../http/reply.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { frame } from '../frame/frame.ts'
import { problemList } from '../frame/problems.ts'
import { proofBody } from './proof.ts'

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
