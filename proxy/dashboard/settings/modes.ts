import type { Administered } from '../../../plugins/operators/operator.ts'
import { Refusal, unprocessable } from '../../../plugins/refusal.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import type { Reply } from '../../http/reply.ts'
import type { Submitted } from '../frame/acting.ts'
import type { Dashboard } from '../frame/dashboard.ts'
import { frame } from '../frame/frame.ts'
import { all, copyable, csrf, type Html, html, may, NOTHING, table } from '../frame/parts.ts'
import { problems } from '../frame/problems.ts'
import type { Changes } from '../rehearsed/recorded.ts'
import { rehearsalOf } from '../rehearsed/rehearsal.ts'
import type { ModeInForce } from './in-force.ts'

type Chosen = Readonly<Record<string, string>>

/** The modes by which everybody is judged, where each comes from, and the form that tries another one. */
export function modesCard(modes: readonly ModeInForce[], facts: Administered, chosen: Chosen = {}): Html {
  const rows = modes.map(
    (mode) =>
      html`<tr><td><code>${mode.name}</code></td><td>${mode.value}</td><td>${placeOf(mode)}</td></tr>`,
  )
  return html`<section class="card" id="modes"><h2>How everybody is judged</h2>${table(['Mode', 'In force', 'Comes from'], rows, NOTHING)}
${
  may(facts, 'admin.grant')
    ? html`<form method="post" action="/proxy/settings/modes" class="search">${csrf(facts.session)}${all(modes.map((mode) => choice(mode, chosen[mode.name])))}<button>Rehearse</button></form>
<p class="faint">Says which calls of the last 30 days that would have refused, and which line to change. It changes nothing itself, and leaves a row that it was asked.</p>`
    : html`<p class="needs">Rehearsing another one needs <code>admin.grant</code>.</p>`
}</section>`
}

/** Where a mode comes from. */
function placeOf({ path, line, variable }: ModeInForce): Html {
  if (variable !== null)
    return html`<code>${variable}</code>, which counts in place of ${path === null ? 'the file' : line === null ? copyable(path) : copyable(`${path}:${line}`)}`
  if (path === null) return html`<span class="faint">the default: no file is of its plugin</span>`
  return line === null
    ? html`<span class="faint">the default: no line of</span> ${copyable(path)}`
    : copyable(`${path}:${line}`)
}

const choice = ({ name, value, values }: ModeInForce, chosen = value): Html =>
  html`<label>${name} <select name="${name}">${all(values.map((one) => html`<option${one === chosen ? html` selected` : NOTHING}>${one}</option>`))}</select></label> `

/** POST /proxy/settings/modes: rehearses other modes over the last 30 days, with one row. Files decide what is in force. */
export const modesForm =
  (dashboard: Dashboard) =>
  async (facts: Submitted): Promise<Reply> => {
    const { modes } = dashboard.inForce
    const chosen = Object.fromEntries(modes.map(({ name }) => [name, facts.form.get(name) ?? '']))
    const others = modes.filter(({ name, value }) => chosen[name] !== '' && chosen[name] !== value)
    const shown = (body: Html, status = 200): Promise<Reply> =>
      frame(dashboard, facts, {
        title: 'Other modes, rehearsed',
        section: '/proxy/settings',
        status,
        body: html`${body}${modesCard(modes, facts, chosen)}<p><a href="/proxy/settings">Back</a></p>`,
      })
    try {
      if (others.length === 0)
        throw unprocessable([{ field: 'modes', message: 'are all in force already: choose another one' }])
      const settings = Object.fromEntries(others.map((mode) => [mode.name, readAs(mode, chosen)]))
      // What a mode may be, its schema says once more.
      const changes = [{ settings }] as Changes
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
<section class="card"><h2>To make it so</h2><ul>${all(others.map((mode) => html`<li>${toDo(mode, chosen[mode.name] ?? '')}</li>`))}</ul><p class="faint">It is on record as <code>${value.id}</code>.</p></section>`)
    } catch (error) {
      if (!(error instanceof Refusal) || !AGAIN.has(error.reason)) throw error
      return shown(problems(error), error.status)
    }
  }

const AGAIN: ReadonlySet<string> = new Set(['body_unprocessable', 'overloaded'])

const readAs = ({ name, values }: ModeInForce, chosen: Chosen): string | boolean => {
  const text = chosen[name] ?? ''
  return values.includes('true') && values.includes(text) ? text === 'true' : text
}

/** The line to change, since files and the environment decide. */
function toDo({ name, path, line, variable }: ModeInForce, wanted: string): Html {
  const text = html`<code class="copy" tabindex="0">${name}: ${wanted}</code>`
  if (variable !== null)
    return html`Set <code class="copy" tabindex="0">${variable}=${wanted}</code> and start anew: while it is set, the file does not count.`
  if (path === null) return html`Write ${text} into a file of its plugin, and reload.`
  return line === null
    ? html`Add the line ${text} to ${copyable(path)}, and reload.`
    : html`Write ${text} at ${copyable(`${path}:${line}`)}, and reload.`
}
