import { Readable } from 'node:stream'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { type AuditVerdict, ledgerHead } from '../../admin/audit/audit.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { type OperationResult, perform } from '../../admin/operation/operation.ts'
import type { Reply } from '../../http/reply.ts'
import { callLines, callsOf } from '../activity/calls.ts'
import { formHandler } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { type DashboardPage, frame } from '../frame/frame.ts'
import {
  button,
  copyableCode,
  csrf,
  dataTable,
  EMPTY_HTML,
  factList as factsOf,
  type HtmlFragment,
  hasCapability,
  html,
  problemList,
  relativeTime,
} from '../frame/parts.ts'

type LogStatus =
  Awaited<ReturnType<(typeof OPERATIONS.audit.log)['run']>> extends OperationResult<infer Value>
    ? OperationResult<Value>['value']
    : never

/** Names the anchors that hold a checkpoint, and how many rows each has seen so. */
function seenOutside(anchors: LogStatus['anchors']): HtmlFragment {
  const seen = anchors.filter(({ size }) => size > 0)
  if (seen.length === 0) return html`by nobody outside`
  const names = seen.map(({ anchor, size }) => `${anchor} (${size.toLocaleString('en')} rows)`)
  return html`by ${names.join(', ')}`
}

function checkpointsCard(
  { log, unsealed, sealing_stopped: stopped, anchors }: LogStatus,
  now: number,
): HtmlFragment {
  if (!log)
    return html`<section class="card"><h2>Checkpoints</h2><p>Nothing is sealed yet${stopped ? ', and sealing has stopped' : ': this takes a second'}.</p></section>`
  const rows = anchors.map(
    ({ anchor, size, kept_at: kept, error, failed_at: failed, late }) =>
      html`<tr><td>${anchor}${late && html` <span class="badge warn">late</span>`}</td><td class="number">${size.toLocaleString('en')}</td><td>${relativeTime(kept, now)}</td><td>${error === null ? EMPTY_HTML : html`${error}, ${relativeTime(failed, now)}`}</td></tr>`,
  )
  return html`<section class="card" id="checkpoints"><h2>Checkpoints</h2>${factsOf([
    ['Log', copyableCode(log.origin)],
    ['Verifier key', copyableCode(log.key)],
    ['Sealed rows', log.size.toLocaleString('en')],
    ['Not sealed yet', unsealed.toLocaleString('en')],
    ['Seen outside', seenOutside(anchors)],
    ['Signed', relativeTime(log.signed_at, now)],
    ['Root', copyableCode(log.root)],
  ])}${stopped && html`<p class="problem" role="alert">Sealing has stopped: no row after these can be proven.</p>`}<p class="faint">Give the verifier key to auditors and owners of agents now, and not through this gateway: a key that comes later proves less.</p>
${dataTable(['Anchor', 'Rows', 'Kept', 'Failed'], rows, html`<p>Nobody keeps checkpoints elsewhere, so whoever owns the database could rewrite its history.</p><p>Name anchors in <code>45-proofs.yaml</code>: <code class="copy" tabindex="0">anchors: [{file: /mnt/other/sallyport.checkpoints}]</code></p>`)}</section>`
}

const auditorCard = ({ log }: LogStatus, facts: AdministrationFacts): HtmlFragment =>
  hasCapability(facts, 'admin.audit')
    ? html`<section class="card"><h2>For an auditor</h2>
<p>An evidence pack is one zip file with rows, sets, grants, refusals, keys, checkpoints and verifiers. Download the pack for ${periods(facts.at)}</p>
<form class="search" action="/proxy/proof/evidence"><label>From <input type="date" name="since" required></label><label>until, exclusive <input type="date" name="until" required></label><button>Download</button></form>
<p>Anybody can verify it without this service, with the verifier key, preferably a copy that was kept elsewhere:</p>
<pre class="copy" tabindex="0">python3 verify.py evidence.zip --key '${log?.key ?? 'VKEY'}'</pre><pre class="copy" tabindex="0">node verify.mjs evidence.zip --key '${log?.key ?? 'VKEY'}'</pre>
<p><a href="/v1/admin/audit/export" download="ledger.ndjson">The whole ledger</a> as NDJSON. The receipt of one call is on its page in <a href="/proxy/activity">Activity</a>, and <code>sallyport receipt</code> fetches it for whoever made the call.</p></section>`
    : html`<section class="card"><h2>For an auditor</h2><p class="needs">Evidence, exports and receipts need <code>admin.audit</code>.</p></section>`

function periods(now: number): readonly HtmlFragment[] {
  const [year, month] = [new Date(now).getUTCFullYear(), new Date(now).getUTCMonth()]
  const from = (y: number, m: number): string => new Date(Date.UTC(y, m)).toISOString()
  const quarter = month - (month % 3)
  const known: readonly (readonly [name: string, query: Readonly<Record<string, string>>])[] = [
    ['everything', {}],
    ['this month', { since: from(year, month) }],
    ['last month', { since: from(year, month - 1), until: from(year, month) }],
    ['last quarter', { since: from(year, quarter - 3), until: from(year, quarter) }],
    ['last year', { since: from(year - 1, 0), until: from(year, 0) }],
  ]
  return known.map(([name, query], index) => {
    const asked = new URLSearchParams(query).toString()
    return html`${index === 0 ? '' : ' · '}<a href="/v1/admin/audit/evidence${asked === '' ? '' : `?${asked}`}" download="evidence.zip">${name}</a>`
  })
}

function reviewsCard({ log }: LogStatus, facts: AdministrationFacts): HtmlFragment {
  if (!log || !hasCapability(facts, 'admin.audit')) return EMPTY_HTML
  return html`<section class="card"><h2>Reviewed</h2><p>Each review of a period has a row of its own: <a href="/proxy/activity?action=audit.reviewed">who, when, and under which checkpoint</a>.</p>
<form method="post" action="/proxy/proof/reviewed">${csrf(facts.session)}<label>From <input type="date" name="since" required></label><label>Until, exclusive <input type="date" name="until" required></label><label>Under the checkpoint with this many rows <input type="number" name="checkpoint" min="1" value="${String(log.size)}" required></label><label>Note <input name="note" maxlength="1000"></label><button>I have reviewed it</button></form></section>`
}

export const reviewedForm = (dashboard: DashboardContext) =>
  formHandler(dashboard, OPERATIONS.audit.reviewed, {
    given: ({ form }) => ({
      body: {
        since: form.get('since') ?? '',
        until: form.get('until') ?? '',
        checkpoint: Number(form.get('checkpoint')),
        ...(form.get('note') && { note: form.get('note') ?? '' }),
      },
    }),
    ...{ to: '/proxy/proof', notice: 'reviewed' },
  })

const LATEST = 5

async function signIns(dashboard: DashboardContext, facts: AdministrationFacts): Promise<HtmlFragment> {
  if (!hasCapability(facts, 'admin.audit')) return EMPTY_HTML
  const found = await Promise.all(
    ['admin.sign_in', 'admin.sign_in_refused'].map((action) =>
      callsOf(dashboard, facts, { action, most: LATEST, noise: false }),
    ),
  )
  const calls = found
    .flatMap((one) => one.calls)
    .toSorted((one, other) => (one.decision.recorded_at < other.decision.recorded_at ? 1 : -1))
  return html`<section class="card"><h2>Operators’ sign-ins</h2>${callLines(calls.slice(0, LATEST), facts.at, html`<p>Nobody has signed in yet.</p>`)}<p><a href="/proxy/activity?action=admin.sign_in">All</a> · <a href="/proxy/activity?action=admin.sign_in_refused">refused</a></p></section>`
}

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
