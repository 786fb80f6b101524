import { Refusal, unprocessableBody } from '../../../plugins/refusal.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import type { RawInput } from '../../admin/operation/operation.ts'
import { perform } from '../../admin/operation/operation.ts'
import { MAX_STOP_REASON, type StopView } from '../../admin/stops/stops.ts'
import { stoppedText } from '../../admin/stops/words.ts'
import { type FormSubmission, formHandler } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  copyableCode,
  csrf,
  dataTable,
  exactTime,
  type HtmlFragment,
  hasCapability,
  html,
  type PageViewer,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'
import { rehearsedFormHandler } from '../rehearsed/acting-rehearsed.ts'

const PAGE = '/proxy/stops'
const { list, begin, end } = OPERATIONS.stops

/** The choices of the form, and the scope of each; the last two take a name. */
const CHOICES = [
  ['all', 'every call'],
  ['llm', 'calls to models'],
  ['mcp', 'calls to MCP servers'],
  ['agents', 'calls of all agents'],
  ['users', 'calls of all users'],
  ['workloads', 'calls of all workloads'],
  ['principal', 'calls of one principal'],
  ['resource', 'calls that reach one MCP server'],
] as const

/** GET /proxy/stops: the stops that have not ended, and the form that begins one. */
export const stopsPage: DashboardPage = async ({ context }, facts) => {
  const { stops } = (await perform(list, context, {}, facts)).value
  return {
    title: 'Stops',
    section: PAGE,
    body: html`<div class="stacked">${dataTable(
      ['Refused', 'Since', 'Until', 'Why', ''],
      stops.map((stop) => lineOf(stop, facts)),
      html`<p>Nothing is stopped.</p>`,
    )}</div>${beginForm(facts)}`,
  }
}

function lineOf(stop: StopView, facts: PageViewer & { readonly at: number }): HtmlFragment {
  const { stop_id: id, scope, begun_at: since, begun_by: by, until, reason } = stop
  const ending = hasCapability(facts, end.demands)
    ? html`<form method="post" action="${pathOf('stops', id)}/end" class="search">${csrf(facts.session)}<label>Why it may go on <input name="reason" required maxlength="${String(MAX_STOP_REASON)}" autocomplete="off"></label><button>End it</button></form>`
    : html`<span class="needs">Ending it needs <code>${end.demands}</code>.</span>`
  return html`<tr><td>${stoppedText(scope)}<br><span class="faint">${copyableCode(id)}</span></td><td>${relativeTime(since, facts.at)} by ${by ?? 'nobody known'}</td><td>${until === null ? 'it is ended' : exactTime(until, facts.at)}</td><td>${reason}</td><td>${ending}</td></tr>`
}

const beginForm = (facts: PageViewer): HtmlFragment =>
  hasCapability(facts, begin.demands)
    ? html`<section class="card"><h2>Stop calls</h2><p>From the next call on, on every gateway. Calls under way are cut. Reading, proofs and these pages go on.</p>
<form method="post" action="${PAGE}">${csrf(facts.session)}
<label>Stop <select name="what">${CHOICES.map(([value, label]) => html`<option value="${value}">${label}</option>`)}</select></label>
<label>Its id, for one principal or server <input name="name" maxlength="512" autocomplete="off" placeholder="acme::daily-report"></label>
<label>Why: its callers are told <input name="reason" required maxlength="${String(MAX_STOP_REASON)}" autocomplete="off"></label>
<button class="danger">Stop</button></form></section>`
    : html`<p class="needs">Stopping needs <code>${begin.demands}</code>.</p>`

type Scope = RawInput<typeof begin.takes>['body']['scope']

function scopeIn({ form }: FormSubmission): Scope {
  const what = form.get('what') ?? ''
  const name = (form.get('name') ?? '').trim()
  if (what === 'all' || what === 'llm' || what === 'mcp') return what
  if (what === 'agents' || what === 'users' || what === 'workloads') return { kind: what }
  if (name === '') throw unprocessableBody([{ field: 'name', message: 'must say whom' }])
  if (what === 'principal') return { principal: name }
  if (what === 'resource') return { resource: name }
  throw new Refusal('body_unprocessable')
}

const given = (facts: FormSubmission) => ({
  body: { scope: scopeIn(facts), reason: facts.form.get('reason') ?? '' },
})

/** The forms of stops. Beginning one is asked twice. */
export function stopForms(dashboard: DashboardContext) {
  return {
    begin: rehearsedFormHandler(dashboard, begin, {
      ...{ given, to: PAGE, notice: 'stop_begun', label: 'Stop now', alwaysAsks: true },
      title: () => 'Stop calls?',
      warning: async (facts) =>
        html`<p><b>${stoppedText(scopeIn(facts))}</b>: from the next one on each is refused, and those under way are cut, until somebody with <code>${end.demands}</code> ends the stop.</p>`,
    }),
    end: formHandler(dashboard, end, {
      given: ({ params, form }) => ({
        params: { id: params.id ?? '' },
        body: { reason: form.get('reason') ?? '' },
      }),
      to: PAGE,
      notice: 'stop_ended',
    }),
  }
}
