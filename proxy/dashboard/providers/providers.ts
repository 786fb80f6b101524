import { administerOnRecord } from '../../admin/http/administer.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { type OperationResult, perform } from '../../admin/operation/operation.ts'
import type { ProviderList } from '../../admin/operation/provider-shapes.ts'
import type { FormSubmission } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { type DashboardPage, frame } from '../frame/frame.ts'
import {
  button,
  countWithNoun,
  dataTable,
  factList as factsOf,
  type HtmlFragment,
  html,
  relativeTime,
} from '../frame/parts.ts'
import { lossesCard } from './losses.ts'

type ProviderView = OperationResult<ProviderList>['value']['providers'][number]

const KEYS = {
  set: 'set',
  missing: 'missing: it is not called',
  callers: "its callers' own",
} as const

const BREAKERS = {
  open: html`<span class="badge warn">left alone</span>: calls go to the next provider`,
  half_open: html`<span class="badge warn">tried again</span> by one call at a time`,
  closed: html`calls go to it`,
  off: html`<span class="faint">off: it is asked even while it fails</span>`,
} as const

/** GET /proxy/providers: each provider of models, its state, and what it did in the last hour and day. */
export const providersPage: DashboardPage = async (dashboard, facts) => {
  const { value } = await perform(OPERATIONS.providers.list, dashboard.context, {}, facts)
  const { since, providers, routes } = value
  const { at } = facts
  return {
    title: 'Providers',
    section: '/proxy/providers',
    body: html`<p class="lead">${countWithNoun(providers.length, 'provider')} of models, by the calls of this gateway since it started ${relativeTime(since, at)}.</p>
${providers.length === 0 && html`<div class="empty"><p>No provider is configured. Add one to <code>50-llm.yaml</code>.</p></div>`}
${providers.map(
  (one) =>
    html`<section class="card" id="provider-${one.name}"><h2>${one.name}</h2>${factsOf(factsAbout(one, at))}
${dataTable(['', 'Calls', 'Errors', 'Tokens in', 'Tokens out', 'Whole call', 'First byte'], [spanRow('Last hour', one.last_hour), spanRow('Last day', one.last_day)], html``)}
<p>${button(facts, OPERATIONS.providers.try.demands, `/proxy/providers/${one.name}/try`, 'Try it')} <span class="faint">Asks for its list of models, once. No prompt is sent.</span></p></section>`,
)}
<section class="card"><h2>Who serves a model</h2>${dataTable(
      ['Model', 'Providers, in the order in which they are tried'],
      routes.map(
        (route) => html`<tr><td><code>${route.model}</code></td><td>${route.providers.join(', ')}</td></tr>`,
      ),
      html`<p>No model is named. Calls reach a provider by its name: <code>provider/model</code>.</p>`,
    )}</section>${await lossesCard(dashboard, facts)}`,
  }
}

function factsAbout(one: ProviderView, at: number): readonly (readonly [string, HtmlFragment | string])[] {
  const { listed } = one
  const aliases = Object.entries(one.aliases).map(([alias, model]) => `${alias} → ${model}`)
  return [
    ['State', stateOf(one, at)],
    ['Breaker', BREAKERS[one.breaker]],
    ...(one.weight === null ? [] : [['Weight', String(one.weight)] as const]),
    ['Key', keyOf(one)],
    ['API', `${one.dialect} (${one.speaks.join(', ')}), ${one.base_url}`],
    [
      'Models',
      one.patterns.length === 0
        ? html`<span class="faint">none of its own${one.is_default ? '; all that nobody else serves' : ''}</span>`
        : one.patterns.join(', ') + (one.is_default ? ', and all that nobody else serves' : ''),
    ],
    ...(aliases.length === 0 ? [] : [['Aliases', aliases.join(', ')] as const]),
    [
      'It lists',
      listed === null
        ? html`<span class="faint">nothing that could be read</span>`
        : html`<details><summary>${countWithNoun(listed.count, 'model')}</summary>${listed.first.join(', ')}${listed.count > listed.first.length ? ' …' : ''}</details>`,
    ],
  ]
}

const keyOf = ({ key, key_variable: variable }: ProviderView): HtmlFragment =>
  html`${key === 'missing' ? html`<span class="badge warn">${KEYS.missing}</span>` : KEYS[key]}${variable !== null && html` (<code>${variable ?? ''}</code>)`}`

function stateOf(
  { answering_since: answering, failing_since: failing, problem }: ProviderView,
  at: number,
): HtmlFragment {
  if (failing !== null)
    return html`<span class="badge warn">failing</span> since ${relativeTime(failing, at)}: <code>${problem ?? ''}</code>`
  return answering === null
    ? html`<span class="faint">not called yet</span>`
    : html`answering since ${relativeTime(answering, at)}`
}

const spanRow = (name: string, span: ProviderView['last_hour']): HtmlFragment => {
  const { calls, errors, tokens } = span
  const counts = [calls, errors, tokens.input, tokens.output].map(
    (count) => html`<td class="number">${count.toLocaleString('en')}</td>`,
  )
  return html`<tr><td>${name}</td>${counts}<td>${timesOf(span.p50_ms, span.p99_ms)}</td><td>${timesOf(span.first_byte_p50_ms, span.first_byte_p99_ms)}</td></tr>`
}

const timesOf = (half: number | null, most: number | null): string =>
  half === null || most === null ? '' : `${half.toLocaleString('en')} ms; p99 ${most.toLocaleString('en')} ms`

/** POST /proxy/providers/{name}/try: shows what came of it. */
export const tryForm = (dashboard: DashboardContext) => async (facts: FormSubmission) => {
  const { name = '' } = facts.params
  const asked = { params: { name } }
  const done = await administerOnRecord(OPERATIONS.providers.try, dashboard.context, asked, facts)
  // It is harmless: nobody has to confirm it.
  if ('proposed' in done) throw new Error('a trial of a provider waits for a second operator')
  const { models, problem, ms } = done.value
  return frame(dashboard, facts, {
    title: `Tried ${name}`,
    section: '/proxy/providers',
    body: html`${
      problem === null
        ? html`<p class="notice" role="status">It answered within ${ms.toLocaleString('en')} ms, and lists ${countWithNoun(models ?? 0, 'model')}.</p>`
        : html`<p class="problem" role="alert">${problem}</p>`
    }<p><a href="/proxy/providers">Back</a></p>`,
  })
}
