import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { Refusal, unprocessableBody } from '../../../plugins/refusal.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import type { Reply } from '../../http/reply.ts'
import type { FormSubmission } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { frame } from '../frame/frame.ts'
import {
  copyableCode,
  csrf,
  dataTable,
  EMPTY_HTML,
  type HtmlFragment,
  hasCapability,
  html,
  joinHtml,
  problemList,
} from '../frame/parts.ts'
import type { RehearsalChangesInput } from '../rehearsed/acting-rehearsed.ts'
import { rehearsalOf } from '../rehearsed/rehearsal.ts'
import type { ModeInForce } from './in-force.ts'

type ChosenModes = Readonly<Record<string, string>>

export function modesCard(
  modes: readonly ModeInForce[],
  facts: AdministrationFacts,
  chosen: ChosenModes = {},
): HtmlFragment {
  const rows = modes.map(
    (mode) =>
      html`<tr><td><code>${mode.name}</code></td><td>${mode.value}</td><td>${placeOf(mode)}</td></tr>`,
  )
  return html`<section class="card" id="modes"><h2>How every call is judged</h2>${dataTable(['Mode', 'In force', 'Comes from'], rows, EMPTY_HTML)}
${
  hasCapability(facts, 'admin.grant')
    ? html`<form method="post" action="/proxy/settings/modes" class="search">${csrf(facts.session)}${joinHtml(modes.map((mode) => choice(mode, chosen[mode.name])))}<button>Rehearse</button></form>
<p class="faint">Shows which calls of the last 30 days this would have refused, and which line to change. It changes nothing, but leaves a row in the ledger.</p>`
    : html`<p class="needs">Rehearsing another mode needs <code>admin.grant</code>.</p>`
}</section>`
}

function placeOf({ path, line, variable }: ModeInForce): HtmlFragment {
  if (variable !== null)
    return html`<code>${variable}</code>, which overrides ${path === null ? 'the file' : line === null ? copyableCode(path) : copyableCode(`${path}:${line}`)}`
  if (path === null) return html`<span class="faint">the default: its plugin has no file</span>`
  return line === null
    ? html`<span class="faint">the default: it is not set in</span> ${copyableCode(path)}`
    : copyableCode(`${path}:${line}`)
}

const choice = ({ name, value, values }: ModeInForce, chosen = value): HtmlFragment =>
  html`<label>${name} <select name="${name}">${joinHtml(values.map((one) => html`<option${one === chosen ? html` selected` : EMPTY_HTML}>${one}</option>`))}</select></label> `

/**
 * POST /proxy/settings/modes: rehearses other modes over 30 days, with one row. Files decide what is in
 * force.
 */
export const modesForm =
  (dashboard: DashboardContext) =>
  async (facts: FormSubmission): Promise<Reply> => {
    const { modes } = dashboard.inForce
    const chosen = Object.fromEntries(modes.map(({ name }) => [name, facts.form.get(name) ?? '']))
    const others = modes.filter(({ name, value }) => chosen[name] !== '' && chosen[name] !== value)
    const shown = (body: HtmlFragment, status = 200): Promise<Reply> =>
      frame(dashboard, facts, {
        title: 'Other modes, rehearsed',
        section: '/proxy/settings',
        status,
        body: html`${body}${modesCard(modes, facts, chosen)}<p><a href="/proxy/settings">Back</a></p>`,
      })
    try {
      if (others.length === 0)
        throw unprocessableBody([{ field: 'modes', message: 'are all already in force: choose another one' }])
      const settings = Object.fromEntries(others.map((mode) => [mode.name, readAs(mode, chosen)]))
      // Its schema says once more what a mode may be.
      const changes = [{ settings }] as RehearsalChangesInput
      const done = await administerOnRecord(
        OPERATIONS.rehearsals.create,
        dashboard.context,
        { body: { changes } },
        facts,
      )
      // Proven by the operation, which is harmless: nothing waits.
      if ('proposed' in done) throw new Error('a rehearsal waits for nobody')
      const { value } = done
      return await shown(html`${rehearsalOf(value, facts.at)}
<section class="card"><h2>How to make this change</h2><ul>${joinHtml(others.map((mode) => html`<li>${renderInstruction(mode, chosen[mode.name] ?? '')}</li>`))}</ul><p class="faint">It is recorded as <code>${value.id}</code>.</p></section>`)
    } catch (error) {
      if (!(error instanceof Refusal) || !AGAIN.has(error.reason)) throw error
      return shown(problemList(error), error.status)
    }
  }

const AGAIN: ReadonlySet<string> = new Set(['body_unprocessable', 'overloaded'])

const readAs = ({ name, values }: ModeInForce, chosen: ChosenModes): string | boolean => {
  const text = chosen[name] ?? ''
  return values.includes('true') && values.includes(text) ? text === 'true' : text
}

function renderInstruction({ name, path, line, variable }: ModeInForce, wanted: string): HtmlFragment {
  const text = html`<code class="copy" tabindex="0">${name}: ${wanted}</code>`
  if (variable !== null)
    return html`Set <code class="copy" tabindex="0">${variable}=${wanted}</code> and restart: while it is set, the file is ignored.`
  if (path === null) return html`Write ${text} into a file of its plugin, and reload.`
  return line === null
    ? html`Add the line ${text} to ${copyableCode(path)}, and reload.`
    : html`Write ${text} at ${copyableCode(`${path}:${line}`)}, and reload.`
}
