import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import type { ExportStanding } from '../../admin/operation/archive-shapes.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { DashboardPage } from '../frame/frame.ts'
import { dataTable, type HtmlFragment, html, relativeTime } from '../frame/parts.ts'

function stateOf(sink: ExportStanding, { at }: AdministrationFacts): HtmlFragment {
  const { failing_since: since, error, late, lag_rows: lag } = sink
  if (since !== null)
    return html`<span class="problem">Failing, since ${relativeTime(since, at)}: ${error ?? ''}</span>`
  if (late) return html`<span class="problem">Behind for 5 minutes</span>`
  return lag === 0 ? html`Up to date` : html`On its way`
}

const sinkRow = (sink: ExportStanding, facts: AdministrationFacts): HtmlFragment =>
  html`<tr><td>${sink.name}</td><td>${sink.kind}, ${sink.format}</td><td><code>${sink.target}</code></td><td>${sink.lag_rows.toLocaleString('en')}</td><td>${stateOf(sink, facts)}</td></tr>`

const HEADS = ['Sink', 'Kind', 'To', 'Rows behind', 'State']

/** GET /proxy/exports: the sinks that rows go to, and how far each is (docs/exports.md). */
export const exportsPage: DashboardPage = async ({ context }, facts) => {
  const { value } = await perform(OPERATIONS.exports.list, context, {}, facts)
  const rows = value.sinks.map((sink) => sinkRow(sink, facts))
  const none = html`<p>Rows are sent nowhere. With <code>85-export.yaml</code> they go to a SIEM while they are written.</p>`
  return {
    title: 'Exports',
    section: '/proxy/exports',
    body: html`<section class="card"><h2>Sinks</h2>${dataTable(HEADS, rows, none)}${rows.length > 0 && html`<p class="faint">To send rows again: <code>sallyport export rewind SINK STREAM:SEQ</code></p>`}</section>`,
  }
}
