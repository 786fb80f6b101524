import { amountText } from '../../../plugins/limits/amount-text.ts'
import { usdShort, usdText } from '../../../plugins/prices/usd.ts'
import type { NamedMeter, NamedUsage } from '../../admin/limits/usage.ts'
import { EMPTY_HTML, type HtmlFragment, html } from '../frame/parts.ts'

export type ShownLimit = NamedUsage['limit']

const patternList = (patterns: readonly string[] | undefined): HtmlFragment =>
  html`${(patterns ?? []).map((one, at) => html`${at > 0 && ', '}<code>${one}</code>`)}`

/** Says whose calls a scope is for: `agents among acme::* that hold team.red`; empty: everybody's. */
function callersText({ principals, holding, types }: ShownLimit['for']): HtmlFragment {
  const kinds = types ? types.map((type) => `${type}s`).join(' and ') : null
  const anybody = principals ? EMPTY_HTML : html`principals`
  const who = kinds === null ? anybody : html`${kinds}${principals !== undefined && ' among '}`
  if (!principals && kinds === null && holding === undefined) return EMPTY_HTML
  return html` of ${who}${patternList(principals)}${holding !== undefined && html` that hold <code>${holding}</code>`}`
}

/** Says in words which calls a limit is for: `calls of principals that hold team.red to openai/*`. */
export function scopeText({ for: scope, each }: ShownLimit): HtmlFragment {
  const { models, tools } = scope
  const isAll = Object.keys(scope).length === 0
  return html`${isAll ? 'every call' : 'calls'}${callersText(scope)}${models !== undefined && html` to ${patternList(models)}`}${tools !== undefined && html` of the tools ${patternList(tools)}`}${each && ', each principal by itself'}`
}

const WINDOWS = {
  hour: ' this hour',
  day: ' today',
  week: ' this week',
  month: ' this month',
  ever: ' in all',
} as const

/** Says how much of an amount is used: `12.40 of 25.00 USD this month`. */
export function usedText(limit: ShownLimit, { used, amount }: Pick<NamedMeter, 'used' | 'amount'>): string {
  const { measure, per } = limit
  const count = measure === 'cost' ? usdText(used).replace(' USD', '') : used.toLocaleString('en')
  const text = `${count} of ${amountText(measure, amount)}`
  if (per === undefined) return text
  if (per !== 'second' && per !== 'minute') return `${text}${WINDOWS[per]}`
  return `${text}; ${limit.amount.toLocaleString('en')} a ${per} come free`
}

/** The amount with its time: `25.00 USD a month`. */
export function rateText({ measure, amount, per }: ShownLimit): string {
  const text = amountText(measure, amount)
  if (per === undefined) return text
  return per === 'ever' ? `${text} in all` : `${text} ${per === 'hour' ? 'an' : 'a'} ${per}`
}

/** The amount as a form takes it. */
export const amountInput = ({ measure }: Pick<ShownLimit, 'measure'>, amount: number): string =>
  measure === 'cost' ? usdShort(amount) : String(amount)

/** A bar: green, from 80 % on yellow, red when there is nothing left. */
export function usedBar(limit: ShownLimit, meter: Pick<NamedMeter, 'used' | 'amount'>): HtmlFragment {
  const { used, amount } = meter
  const percent = amount === 0 ? 100 : Math.min(100, Math.floor((used / amount) * 100))
  return html`<meter min="0" low="80" high="99" max="100" optimum="0" value="${String(percent)}" aria-label="${usedText(limit, meter)}"></meter>`
}
