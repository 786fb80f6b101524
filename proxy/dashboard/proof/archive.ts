import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { type OperationResult, perform } from '../../admin/operation/operation.ts'
import { formHandler } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  button,
  copyableCode,
  countWithNoun,
  csrf,
  dataTable,
  EMPTY_HTML,
  factList,
  type HtmlFragment,
  hasCapability,
  html,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'

type ShownArchive =
  Awaited<ReturnType<(typeof OPERATIONS.archive.show)['run']>> extends OperationResult<infer Value>
    ? OperationResult<Value>['value']
    : never
type ShownSegment = ShownArchive['segments'][number]

const NEEDS = 'admin.settings'
const PAGE = '/proxy/archive'

const number = (count: number): string => count.toLocaleString('en')

const sizeText = (bytes: number): string =>
  bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(1)} GB`

const inDays = (days: number | null): string =>
  days === null ? 'not known' : `in ${countWithNoun(days, 'day')}`

function* problems({ folder, last, overdue, options }: ShownArchive): Generator<HtmlFragment> {
  if (typeof last?.problem === 'string') yield html`The last work failed: ${last.problem}`
  if (typeof folder?.problem === 'string') yield html`This gateway cannot read the folder: ${folder.problem}`
  if (overdue) yield html`Rows that are a day older than ${options?.keep ?? ''} are in the database.`
  for (const file of folder?.unknown ?? [])
    yield html`<code>${file}</code> is in the folder, and the database does not know it, because it is older: restore it.`
}

function standingCard(archive: ShownArchive, facts: AdministrationFacts): HtmlFragment {
  const { options, here, archived, forecast, working, waiting } = archive
  if (!options)
    return html`<section class="card"><h2>Nothing is archived</h2><p>The ledger only grows. With <code>90-archive.yaml</code> old rows move to files with all their proofs: <code class="copy" tabindex="0">plugin: archive</code>, <code>keep: 90d</code> and <code>to:</code> with a folder.</p>${forecastFacts(archive)}</section>`
  return html`<section class="card"><h2>What is where</h2>${[...problems(archive)].map((text) => html`<p class="problem" role="alert">${text}</p>`)}${
    working !== null &&
    html`<p class="notice">Under way: ${working.what}${working.file === null ? '' : html` of <code>${working.file}</code>`}, asked for by ${working.by ?? 'nobody known'} ${relativeTime(working.at, facts.at)}.</p>`
  }${factList([
    [
      'In the database',
      html`${number(here.rows)} rows, about ${sizeText(here.bytes)}, the oldest ${relativeTime(here.since, facts.at)}`,
    ],
    [
      'In files',
      `${number(archived.rows)} rows in ${countWithNoun(archived.segments, 'segment')}, ${sizeText(archived.bytes)}`,
    ],
    ...(waiting > 0 ? [['To be confirmed', countWithNoun(waiting, 'segment')] as const] : []),
    ['Folder', copyableCode(options.to)],
    ['Moved', `what is older than ${options.keep}, from ${options.at} UTC on`],
    ['Rows go', options.confirm ? 'when a copy elsewhere is confirmed' : 'when the file is verified'],
    ['A day', `${number(forecast.rows_a_day)} rows`],
  ])}${forecastFacts(archive)}${nowForm(archive, facts)}</section>`
}

const forecastFacts = ({ forecast, folder }: ShownArchive): HtmlFragment =>
  factList([
    ['A year in files takes', `about ${sizeText(forecast.year_bytes)}`],
    ['The database is full', inDays(forecast.database_full_in_days)],
    ...(folder ? [['The folder is full', inDays(forecast.folder_full_in_days)] as const] : []),
  ])

function nowForm({ next, options }: ShownArchive, facts: AdministrationFacts): HtmlFragment {
  if (!hasCapability(facts, NEEDS)) return html`<p class="needs">Moving rows needs <code>${NEEDS}</code>.</p>`
  const what =
    next?.nothing === null
      ? `Next: ${number(next.rows)} rows of ${countWithNoun(next.days, 'day')}, about ${sizeText(next.bytes)}.`
      : `Nothing would move now: ${next?.nothing ?? ''}.`
  return html`<p>${what}</p><form method="post" action="${PAGE}">${csrf(facts.session)}<label>Older than <input name="older_than" value="${options?.keep ?? ''}" pattern="[1-9][0-9]{0,4}[dwy]" size="6"></label><button>Move now</button></form>`
}

const STATES: Readonly<Record<ShownSegment['state'], string>> = {
  waiting: 'waits for a confirmed copy',
  removing: 'rows are about to go',
  removed: 'in the file alone',
  forgotten: 'forgotten',
}

function segmentRow(segment: ShownSegment, facts: AdministrationFacts): HtmlFragment {
  const { file, rows, since, until, bytes, sha256, state, removed_at: removed, in_folder: there } = segment
  const path = pathOf('archive', file)
  const isMissing = there === false && state !== 'forgotten'
  return html`<tr><td><code>${file}</code>${isMissing && html` <span class="badge warn">not in the folder</span>`}</td><td>${since.slice(0, 10)} to ${until.slice(0, 10)}</td><td class="number">${number(rows)}</td><td class="number">${sizeText(bytes)}</td><td>${STATES[state]}${removed !== null && html` ${relativeTime(removed, facts.at)}`}</td><td><details><summary>More</summary><p>SHA-256 ${copyableCode(sha256)}</p>${
    state === 'waiting' || state === 'removing' ? confirmForm(path, facts) : EMPTY_HTML
  }${state === 'removed' && forgetForm(path, facts)}${button(facts, NEEDS, `${path}/restore`, 'Check the file, or put it back')}</details></td></tr>`
}

const confirmForm = (path: string, facts: AdministrationFacts): HtmlFragment =>
  hasCapability(facts, NEEDS)
    ? html`<form method="post" action="${path}/confirm">${csrf(facts.session)}<label>SHA-256 of the copy elsewhere <input name="sha256" pattern="[0-9a-f]{64}" required></label><button>Confirm</button></form>`
    : EMPTY_HTML

const forgetForm = (path: string, facts: AdministrationFacts): HtmlFragment =>
  hasCapability(facts, NEEDS)
    ? html`<form method="post" action="${path}/forget">${csrf(facts.session)}<label>Why it may go <input name="reason" maxlength="500"></label><button class="danger">Forget it</button></form>`
    : EMPTY_HTML

/** GET /proxy/archive: what is where, and what it takes. */
export const archivePage: DashboardPage = async ({ context }, facts) => {
  const before = new URLSearchParams(facts.query).get('before')
  const query = before !== null && /^\d{1,15}$/.test(before) ? { before } : {}
  const { value: archive, next } = await perform(OPERATIONS.archive.show, context, { query }, facts)
  const rows = archive.segments.map((segment) => segmentRow(segment, facts))
  const heads = ['File', 'Recorded', 'Rows', 'Size', 'Where', '']
  return {
    title: 'Archive',
    section: PAGE,
    body: html`${standingCard(archive, facts)}<section class="card"><h2>Segments</h2>${dataTable(heads, rows, html`<p>There are none yet.</p>`)}${Boolean(next) && html`<p><a href="${PAGE}?before=${next?.before ?? ''}">Older</a></p>`}<p class="faint">Each file verifies by itself: <code>sallyport archive verify</code> verifies all of them, and <a href="/proxy/proof">Proof</a> says what that proves.</p></section>`,
  }
}

export const archiveForms = (dashboard: DashboardContext) => {
  const { run, confirm, forget, restore } = OPERATIONS.archive
  const params = ({ params: { file = '' } }: { readonly params: Readonly<Record<string, string>> }) => ({
    file,
  })
  return {
    run: formHandler(dashboard, run, {
      given: ({ form }) => {
        const span = form.get('older_than')
        return { query: {}, body: span ? { older_than: span } : {} }
      },
      ...{ to: PAGE, notice: 'archive_asked' },
    }),
    confirm: formHandler(dashboard, confirm, { fields: ['sha256'], to: PAGE, notice: 'updated' }),
    forget: formHandler(dashboard, forget, {
      given: (facts) => {
        const reason = facts.form.get('reason')
        return { params: params(facts), body: reason ? { reason } : {} }
      },
      ...{ to: PAGE, notice: 'updated' },
    }),
    restore: formHandler(dashboard, restore, { to: PAGE, notice: 'archive_asked' }),
  }
}
