import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import type { OperationResult } from '../../admin/operation/operation.ts'
import { callLines, callsOf } from '../activity/calls.ts'
import { formHandler } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import {
  copyableCode,
  csrf,
  dataTable,
  EMPTY_HTML,
  factList as factsOf,
  type HtmlFragment,
  hasCapability,
  html,
  htmlIf,
  joinHtml,
  relativeTime,
} from '../frame/parts.ts'

type LogStatus =
  Awaited<ReturnType<(typeof OPERATIONS.audit.log)['run']>> extends OperationResult<infer Value>
    ? OperationResult<Value>['value']
    : never

/** Names the anchors that hold a checkpoint, and how many rows each has seen so. */
export function seenOutside(anchors: LogStatus['anchors']): HtmlFragment {
  const seen = anchors.filter(({ size }) => size > 0)
  if (seen.length === 0) return html`by nobody outside`
  const names = seen.map(({ anchor, size }) => `${anchor} (${size.toLocaleString('en')} rows)`)
  return html`by ${names.join(', ')}`
}

export function checkpointsCard(
  { log, unsealed, sealing_stopped: stopped, anchors }: LogStatus,
  now: number,
): HtmlFragment {
  if (!log)
    return html`<section class="card"><h2>Checkpoints</h2><p>Nothing is sealed yet${stopped ? ', and sealing has stopped' : ': this takes a second'}.</p></section>`
  const rows = anchors.map(
    ({ anchor, size, kept_at: kept, error, failed_at: failed, late }) =>
      html`<tr><td>${anchor}${htmlIf(late, () => html` <span class="badge warn">late</span>`)}</td><td class="number">${size.toLocaleString('en')}</td><td>${relativeTime(kept, now)}</td><td>${error === null ? EMPTY_HTML : html`${error}, ${relativeTime(failed, now)}`}</td></tr>`,
  )
  return html`<section class="card" id="checkpoints"><h2>Checkpoints</h2>${factsOf([
    ['Log', copyableCode(log.origin)],
    ['Verifier key', copyableCode(log.key)],
    ['Sealed rows', log.size.toLocaleString('en')],
    ['Not sealed yet', unsealed.toLocaleString('en')],
    ['Seen outside', seenOutside(anchors)],
    ['Signed', relativeTime(log.signed_at, now)],
    ['Root', copyableCode(log.root)],
  ])}${htmlIf(stopped, () => html`<p class="problem" role="alert">Sealing has stopped: no row after these can be proven.</p>`)}<p class="faint">Give the verifier key to auditors and owners of agents now, and not through this gateway: a key that comes later proves less.</p>
${dataTable(['Anchor', 'Rows', 'Kept', 'Failed'], rows, html`<p>Nobody keeps checkpoints elsewhere, so whoever owns the database could rewrite its history.</p><p>Name anchors in <code>45-proofs.yaml</code>: <code class="copy" tabindex="0">anchors: [{file: /mnt/other/sallyport.checkpoints}]</code></p>`)}</section>`
}

export const auditorCard = ({ log }: LogStatus, facts: AdministrationFacts): HtmlFragment =>
  hasCapability(facts, 'admin.audit')
    ? html`<section class="card"><h2>For an auditor</h2>
<p>An evidence pack is one zip file with rows, sets, grants, refusals, keys, checkpoints and verifiers. Download the pack for ${joinHtml(periods(facts.at))}</p>
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

export function reviewsCard({ log }: LogStatus, facts: AdministrationFacts): HtmlFragment {
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
    to: () => '/proxy/proof',
    notice: 'reviewed',
  })

const LATEST = 5

export async function signIns(
  dashboard: DashboardContext,
  facts: AdministrationFacts,
): Promise<HtmlFragment> {
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
