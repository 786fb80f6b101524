import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { usdText } from '../../../plugins/prices/usd.ts'
import type { CostLine, CostReport } from '../../admin/costs/costs.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import { escapeHidden } from '../../visible.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  countWithNoun,
  dataTable,
  EMPTY_HTML,
  type HtmlFragment,
  html,
  ledgerPrincipal,
} from '../frame/parts.ts'

/** Lines that a table of the page has: the dearest. */
const SHOWN = '20'
const DAYS = '31'

type CostQuery = Readonly<Record<string, string>>

const costsOf = async ({ context }: DashboardContext, facts: AdministrationFacts, query: CostQuery) => {
  const given = { by: 'day', ...query }
  // Read by the schema of the operation.
  return (await perform(OPERATIONS.costs.list, context, { query: given as never }, facts)).value as CostReport
}

/** GET /proxy/costs: the month so far, of all or of `?principal=`, and what is not known for certain in it. */
export const costsPage: DashboardPage = async (dashboard, facts) => {
  const principal = new URLSearchParams(facts.query).get('principal')
  const own: CostQuery = principal === null ? {} : { principal }
  const days = await costsOf(dashboard, facts, { ...own, limit: DAYS })
  const top = (by: string) => costsOf(dashboard, facts, { ...own, by, order: 'cost', limit: SHOWN })
  const people = principal === null ? await top('principal') : null
  const models = await top('provider,model')
  const tools = await top('tool')
  return {
    title: 'Costs',
    section: '/proxy/costs',
    body: html`${principal === null ? EMPTY_HTML : html`<p class="lead">Of <code>${principal}</code> alone. <a href="/proxy/costs">Of all</a></p>`}
<section class="card" id="costs"><h2>Costs from ${days.from} to ${days.to}</h2>
<p>${usdText(days.total.microusd)} for ${countWithNoun(days.total.calls, 'call')}.</p>${uncertain(days.total)}
${days.uncounted > 10_000 && html`<p class="faint">About ${days.uncounted.toLocaleString('en')} rows of the ledger are not counted yet.</p>`}
${dataTable(['Day (UTC)', 'Cost', '', 'Calls'], barsOf(days), NOTHING)}</section>
${people ? tableOf('By principal', 'Principal', people, ledgerPrincipal) : EMPTY_HTML}
${tableOf('By model', 'Model', models, modelOf)}
${tableOf('By tool', 'Tool', { ...tools, rows: tools.rows.filter(({ tool }) => (tool ?? null) !== null) }, ({ tool }) => html`<code>${escapeHidden(tool ?? '')}</code>`)}
<p class="faint">Prices are those of <code>55-prices.yaml</code> and of the table that came with this version. <code>sallyport costs --csv</code> has all of it.</p>`,
  }
}

const NOTHING = html`<p>No call of this month has a cost yet.</p>`

/** Says how much of a sum is an estimate, and how many calls have no price. */
const uncertain = ({
  estimated_microusd: estimated,
  estimated_calls: calls,
  unpriced_calls: unpriced,
}: CostReport['total']): HtmlFragment =>
  html`${calls > 0 && html`<p>${usdText(estimated)} of it is estimated, for ${countWithNoun(calls, 'call')}: the provider did not state all that it bills.</p>`}${unpriced > 0 && html`<p><span class="badge warn">no price</span> ${countWithNoun(unpriced, 'call')} ${unpriced === 1 ? 'counts' : 'count'} as nothing: give their models a price.</p>`}`

function barsOf({ rows }: CostReport): readonly HtmlFragment[] {
  const most = Math.max(1, ...rows.map(({ microusd }) => microusd))
  return rows.map(
    ({ day, microusd, calls }) =>
      html`<tr><td>${day ?? ''}</td><td class="number">${usdText(microusd)}</td><td><meter min="0" max="${String(most)}" value="${String(microusd)}" aria-label="${usdText(microusd)}"></meter></td><td class="number">${calls.toLocaleString('en')}</td></tr>`,
  )
}

const tableOf = (
  title: string,
  head: string,
  { rows }: Pick<CostReport, 'rows'>,
  nameOf: (line: CostLine) => HtmlFragment,
): HtmlFragment =>
  rows.length === 0
    ? EMPTY_HTML
    : html`<section class="card"><h2>${title}</h2>${dataTable([head, 'Cost', 'Calls', 'Tokens in', 'Tokens out', ''], rows.map(lineOf(nameOf)), NOTHING)}${rows.length === Number(SHOWN) && html`<p class="faint">These are the dearest.</p>`}</section>`

const lineOf =
  (nameOf: (line: CostLine) => HtmlFragment) =>
  (line: CostLine): HtmlFragment => {
    const { microusd, calls, input_tokens: input, output_tokens: output } = line
    const { estimated_calls: estimated, unpriced_calls: unpriced } = line
    const counts = [calls, input, output].map(
      (count) => html`<td class="number">${count.toLocaleString('en')}</td>`,
    )
    return html`<tr><td>${nameOf(line)}</td><td class="number">${usdText(microusd)}</td>${counts}<td>${unpriced > 0 && html`<span class="badge warn">${countWithNoun(unpriced, 'call')} without a price</span> `}${estimated > 0 && html`<span class="faint">${countWithNoun(estimated, 'call')} estimated</span>`}</td></tr>`
  }

const modelOf = ({ provider, model }: CostLine): HtmlFragment =>
  html`<code>${escapeHidden(model ?? 'no model')}</code> <span class="faint">${provider ?? ''}</span>`
