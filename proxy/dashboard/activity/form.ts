import { EMPTY_HTML, type HtmlFragment, html, htmlIf, joinHtml } from '../frame/parts.ts'
import type { ActivityParams } from './asked.ts'

/** The form, and what is chosen: each can be taken away. */
export function activityForm({
  chosen,
  noise,
  times: { typed, problems },
  here,
}: ActivityParams): HtmlFragment {
  const hidden = Object.entries(chosen).filter(
    ([name]) => !['since', 'until', 'window', 'cursor'].includes(name),
  )
  const field = (name: 'since' | 'until', label: string): HtmlFragment =>
    html`<label>${label} <input name="${name}" value="${typed[name]}" placeholder="2026-11-22 14:30"${problems[name] === null ? EMPTY_HTML : html` aria-invalid="true" aria-describedby="${name}-problem"`}></label>`
  const problem = (name: 'since' | 'until', label: string): HtmlFragment =>
    htmlIf(
      problems[name] !== null,
      () =>
        html`<p class="problem" role="alert" id="${name}-problem">${label}: “${typed[name]}” ${problems[name] ?? ''}.</p>`,
    )
  return html`<form class="search" action="/proxy/activity">${field('since', 'From')}${field('until', 'to')}${joinHtml(
    hidden.map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`),
  )}${htmlIf(noise, () => html`<input type="hidden" name="noise" value="yes">`)}<button>Show</button> <a href="${here({ noise: noise ? null : 'yes', cursor: null })}">${noise ? 'Hide' : 'Show'} lists of tools</a></form>
${problem('since', 'From')}${problem('until', 'To')}
<p class="chips">${joinHtml(
    Object.entries(chosen)
      .filter(([name]) => name !== 'cursor')
      .map(
        ([name, value]) =>
          html`<a class="chip" href="${here({ [name]: null, cursor: null })}" title="Take this away">${name}: ${value} ×</a> `,
      ),
  )}</p>`
}
