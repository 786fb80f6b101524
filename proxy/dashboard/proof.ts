import { anchorStates } from '../../db/audit/tree/anchored.ts'
import { newestCheckpoint, treeInForce } from '../../db/audit/tree/store.ts'
import type { Administered } from '../../plugins/operators/operator.ts'
import { ledgerHead } from '../admin/audit.ts'
import { perform } from '../admin/operation.ts'
import { OPERATIONS } from '../admin/operations.ts'
import type { Reply } from '../http/reply.ts'
import { acting } from './acting.ts'
import type { Dashboard } from './dashboard.ts'
import { frame } from './frame.ts'
import type { Page } from './page.ts'
import { ago, all, button, copyable, csrf, facts as factsOf, type Html, html, may, table } from './parts.ts'

/** GET /proxy/proof: where the ledger stands, and how anybody verifies it. */
export const proofPage: Page = async (dashboard, facts) => ({
  title: 'Proof',
  section: '/proxy/proof',
  body: await bodyOf(dashboard, facts, html``),
})

/** POST /proxy/proof/verify: recomputes the whole chain, and says what came of it. */
export const verifyForm =
  (dashboard: Dashboard) =>
  async (facts: Administered): Promise<Reply> => {
    const { value } = await perform(OPERATIONS.audit.verify, dashboard.context, {}, facts)
    const verdict = value.ok
      ? html`<p class="notice" role="status">Whole: ${value.rows.toLocaleString('en')} rows were recomputed, and each is what its hash says.</p>`
      : html`<p class="problem" role="alert">Damaged: ${value.first_bad ? `row ${value.first_bad.seq} of ${value.first_bad.stream} ${value.first_bad.problem}` : 'see the export'}.</p>`
    return frame(dashboard, facts, {
      title: 'Proof',
      section: '/proxy/proof',
      body: await bodyOf(dashboard, facts, verdict),
    })
  }

async function bodyOf({ context }: Dashboard, facts: Administered, verdict: Html): Promise<Html> {
  const head = await ledgerHead(context)
  return html`${verdict}<section class="card"><h2>Where the ledger stands</h2>${
    head
      ? factsOf([
          ['Last row', `${head.seq} of ${head.stream}`],
          ['Recorded', ago(head.recorded_at, facts.at)],
          ['Hash', copyable(head.row_hash)],
        ])
      : html`<p>It is empty.</p>`
  }<p class="faint">Whoever keeps this hash elsewhere can tell later whether anything before it was rewritten.</p>
${button(facts, 'admin.audit', '/proxy/proof/verify', 'Verify the whole ledger')}</section>
<section class="card"><h2>For an auditor</h2><p><a href="/v1/admin/audit/export" download="ledger.ndjson">Export the ledger</a> (NDJSON), and verify it anywhere, without this service:</p>
<pre class="copy" tabindex="0">make sallyport ARGS="verify ledger.ndjson"</pre><pre class="copy" tabindex="0">python3 docs/verify.py ledger.ndjson --authority</pre>
${evidenceLinks(facts.at)}</section>${await sealedCard(context, facts.at)}${await reviews(context, facts)}`
}

/** A pack of evidence for the periods that auditors ask for. */
function evidenceLinks(now: number): Html {
  const [year, month] = [new Date(now).getUTCFullYear(), new Date(now).getUTCMonth()]
  const from = (y: number, m: number): string => new Date(Date.UTC(y, m)).toISOString()
  const quarter = month - (month % 3)
  const periods: readonly (readonly [name: string, since?: string, until?: string])[] = [
    ['all of it'],
    ['this month', from(year, month)],
    ['last month', from(year, month - 1), from(year, month)],
    ['last quarter', from(year, quarter - 3), from(year, quarter)],
    ['last year', from(year - 1, 0), from(year, 0)],
  ]
  const links = periods.map(([name, since, until]) => {
    const query = String(new URLSearchParams({ ...(since && { since }), ...(until && { until }) }))
    return html`<a href="/v1/admin/audit/evidence${query === '' ? '' : `?${query}`}" download="evidence.zip">${name}</a> `
  })
  return html`<p>Download the evidence, as one zip of rows, sets, grants, refusals, keys, checkpoints and verifiers: ${all(links)}</p>`
}

/** Who has reviewed what, and the form that says so. */
async function reviews({ database }: Dashboard['context'], facts: Administered): Promise<Html> {
  const { kysely } = database
  const tree = await treeInForce(kysely)
  const newest = tree && (await newestCheckpoint(kysely, tree.tree))
  if (!newest || !may(facts, 'admin.audit')) return html``
  return html`<section class="card"><h2>Reviewed</h2><p>That somebody has read a period is a row of its own: <a href="/proxy/activity?action=audit.reviewed">who, when, and under which checkpoint</a>.</p>
<form method="post" action="/proxy/proof/reviewed">${csrf(facts.session)}<label>From <input type="date" name="since" required></label><label>Until, exclusive <input type="date" name="until" required></label><label>Under the checkpoint of so many rows <input type="number" name="checkpoint" min="1" value="${String(newest.size)}" required></label><label>Note <input name="note" maxlength="1000"></label><button>I have reviewed it</button></form></section>`
}

/** POST /proxy/proof/reviewed: a review is on record. */
export const reviewedForm = (dashboard: Dashboard) =>
  acting(dashboard, OPERATIONS.audit.reviewed, {
    given: ({ form }) => ({
      body: {
        since: `${form.get('since') ?? ''}T00:00:00Z`,
        until: `${form.get('until') ?? ''}T00:00:00Z`,
        checkpoint: Number(form.get('checkpoint')),
        ...(form.get('note') && { note: form.get('note') ?? '' }),
      },
    }),
    to: () => '/proxy/proof',
    notice: 'reviewed',
  })

/** What is sealed, and who keeps its checkpoints elsewhere. */
async function sealedCard({ database: { kysely } }: Dashboard['context'], now: number): Promise<Html> {
  const tree = await treeInForce(kysely)
  const newest = tree && (await newestCheckpoint(kysely, tree.tree))
  if (!tree || !newest)
    return html`<section class="card"><h2>Checkpoints</h2><p>Nothing is sealed yet.</p></section>`
  const anchors = await anchorStates(kysely, tree.tree)
  const rows = anchors.map(
    ({ anchor, size, at, error, error_at: failed }) =>
      html`<tr><td>${anchor}</td><td>${size.toLocaleString('en')}</td><td>${at === null ? 'never' : ago(at, now)}</td><td>${error === null || failed === null ? '' : html`${error}, ${ago(failed, now)}`}</td></tr>`,
  )
  return html`<section class="card"><h2>Checkpoints</h2>${factsOf([
    ['Log', tree.origin],
    ['Sealed rows', newest.size.toLocaleString('en')],
    ['Signed', ago(newest.signed_at, now)],
    ['Root', copyable(newest.root)],
  ])}${table(['Anchor', 'Rows', 'Kept', 'Failed'], rows, html`Nobody keeps them elsewhere: name anchors in 45-proofs.yaml.`)}</section>`
}
