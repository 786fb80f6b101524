import { amountText } from '../../plugins/limits/amount-text.ts'
import { usdText } from '../../plugins/prices/usd.ts'
import type { CostLine, CostReport } from '../../proxy/admin/costs/costs.ts'
import type { FoundPrices } from '../../proxy/admin/operation/price-shapes.ts'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { JSON_OPTION } from '../command.ts'
import { alignColumns, jsonLines } from '../print.ts'

type FoundPrice = FoundPrices['prices'][number]

const COSTS = '/v1/admin/costs'
const DAY_MS = 86_400_000
const PAGE = '1000'

const pathOf = (query: Readonly<Record<string, string | undefined>>): string => {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as const],
  )
  return `${COSTS}?${new URLSearchParams(Object.fromEntries(given)).toString()}`
}

const show = subcommandOf({
  takes: '',
  about: 'the sums of a month, or of other days, the dearest first',
  options: {
    by: {
      type: 'string',
      value: 'A,B',
      default: 'provider,model',
      description: 'day, principal, provider, model, tool',
    },
    from: { type: 'string', value: 'DAY', description: 'the first day, UTC; default: of the month' },
    to: { type: 'string', value: 'DAY', description: 'the last day, inclusive; default: today' },
    principal: { type: 'string', value: 'ID', description: 'of one principal alone' },
    csv: { type: 'boolean', default: false, description: 'all of it, as a table for a spreadsheet' },
    ...JSON_OPTION,
  },
  run: async ({ call, say, values: { by, from, to, principal, csv, json } }) => {
    const query = { by, from, to, principal }
    if (csv) {
      const { status, body } = await call('GET', pathOf({ ...query, format: 'csv' }))
      if (status !== 200) expectStatus({ status, body }, 200)
      return say(...String(body).trimEnd().split('\r\n'))
    }
    const path = pathOf({ ...query, order: 'cost', limit: PAGE })
    const found = expectStatus<CostReport>(await call('GET', path), 200)
    if (json) return say(...jsonLines(found))
    const heads = [...found.by.map((name) => name.toUpperCase()), 'CALLS', 'IN', 'OUT', 'COST', '']
    say(...alignColumns([heads, ...found.rows.map((row) => lineOf(found, row))]))
    const { calls, microusd } = found.total
    say(
      `${found.from} to ${found.to}: ${amountText('calls', calls)}, ${usdText(microusd)}${noteOn(found.total)}`,
    )
    if (found.rows.length === Number(PAGE)) say('These are the dearest. --csv has all.')
  },
})

const lineOf = ({ by }: CostReport, row: CostLine): string[] => [
  ...by.map((name) => (name === 'principal' ? row.principal_name : null) ?? row[name] ?? '-'),
  ...[row.calls, row.input_tokens, row.output_tokens].map(String),
  usdText(row.microusd),
  noteOn(row).replace(/^; /, ''),
]

const noteOn = ({
  estimated_microusd: estimated,
  unpriced_calls: unpriced,
}: Pick<CostLine, 'estimated_microusd' | 'unpriced_calls'>): string =>
  (estimated > 0 ? `; ${usdText(estimated)} of it estimated` : '') +
  (unpriced > 0 ? `; ${amountText('calls', unpriced)} without a price` : '')

/** Exits with 1 if a model has no price. */
const check = subcommandOf({
  takes: '',
  about: 'the models of the last 30 days without a price, and their calls; exits with 1 if there are any',
  options: JSON_OPTION,
  run: async ({ call, say, values: { json } }) => {
    const lines = (await allOf(call)).filter(({ unpriced_calls: unpriced }) => unpriced > 0)
    const calls = lines.reduce((sum, { unpriced_calls: unpriced }) => sum + unpriced, 0)
    if (json) say(...jsonLines(lines))
    else if (lines.length === 0) say('every call of the last 30 days has a price')
    else {
      const rows = lines.map((one) => [one.provider ?? '-', one.model ?? '-', String(one.unpriced_calls)])
      say(...alignColumns([['PROVIDER', 'MODEL', 'CALLS'], ...rows]))
      say(`calls of the last 30 days without a price: ${calls}. Give their models one in 55-prices.yaml`)
    }
    return lines.length === 0 ? 0 : 1
  },
})

const PICO_PER_MILLION_USD = 1e6

/** Writes rates of tokens as price lists do: USD for a million. */
const rateText = ({ tokens = {} }: NonNullable<FoundPrice['rates']>): string =>
  Object.entries(tokens)
    .map(([kind, rate]) => `${kind} ${rate / PICO_PER_MILLION_USD}`)
    .join(', ')

const priceText = ({ free, rates, window }: FoundPrice): string => {
  if (free) return 'free'
  if (rates === null) return 'no price'
  const { above = [], uses = {}, call } = rates
  return [
    ...(rates.tokens ? [rateText(rates)] : []),
    ...above.map((tier) => `over ${tier.input_over} of input: ${rateText({ tokens: withoutStart(tier) })}`),
    ...Object.entries(uses).map(([tool, rate]) => `${tool} ${rate / PICO_OF_USD} a use`),
    ...(call === undefined ? [] : [`${call / PICO_OF_USD} a call`]),
    ...(typeof window === 'number' ? [`takes ${window} tokens`] : []),
  ].join('; ')
}

const PICO_OF_USD = 1e12

const withoutStart = ({ input_over: _, ...tier }: Readonly<Record<string, number>>) => tier

/** Exits with 1 if a provider of the model has no price for it. */
const showPrices = subcommandOf({
  takes: 'MODEL',
  about: 'which entry prices a model, at each provider that would be tried; exits with 1 if one has no price',
  misuse: 'name one model, as callers do: sallyport prices show gpt-5',
  options: JSON_OPTION,
  run: async ({ call, say, args: [model], values: { json } }) => {
    const query = new URLSearchParams({ model }).toString()
    const found = expectStatus<FoundPrices>(await call('GET', `/v1/admin/prices?${query}`), 200)
    const isPriced = found.prices.length > 0 && found.prices.every(({ price }) => price !== null)
    if (json) say(...jsonLines(found))
    else if (!found.configured) say('nothing is priced: there is no 55-prices.yaml')
    else if (found.prices.length === 0) say(`no provider has ${model}`)
    else {
      const rows = found.prices.map((one) => [
        ...[one.provider, one.model ?? '-', one.entry ?? '-', one.source ?? '-', priceText(one)],
      ])
      say(...alignColumns([['PROVIDER', 'MODEL', 'ENTRY', 'FROM', 'USD FOR A MILLION TOKENS'], ...rows]))
      if (found.table !== null) say(`table ${found.table}`)
    }
    return isPriced ? 0 : 1
  },
})

async function allOf(call: AdminCall): Promise<readonly CostLine[]> {
  const from = new Date(Date.now() - 29 * DAY_MS).toISOString().slice(0, 10)
  const lines: CostLine[] = []
  for (let cursor: string | undefined; ; ) {
    const path = pathOf({ by: 'provider,model', from, limit: PAGE, cursor })
    const page = expectStatus<CostReport>(await call('GET', path), 200)
    lines.push(...page.rows)
    if (page.next_cursor === null) return lines
    cursor = page.next_cursor
  }
}

export const verbs = {
  costs: verbGroup({
    name: 'costs',
    about: `Shows what calls have cost, by who made them and what for. ${DOOR_NOTES}`,
    verbs: { show },
    usual: 'show',
    notes: 'It demands admin.audit. Amounts are list prices or your own, in US dollars.',
  }),
  prices: verbGroup({
    name: 'prices',
    about: `Looks after the prices of models. ${DOOR_NOTES}`,
    verbs: { check, show: showPrices },
    notes: 'check demands admin.audit, show admin.read. Prices are configured in 55-prices.yaml.',
  }),
}
