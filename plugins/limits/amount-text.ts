import type { LimitMeasure } from '../../db/limits/limit.ts'
import { usdText } from '../prices/usd.ts'

const UNITS = { tokens: 'token', calls: 'call', concurrent: 'call' } as const

/** Writes an amount of a limit with its unit: `25.00 USD`, `1,000 tokens`, `1 call`, `10 calls at once`. */
export function amountText(measure: LimitMeasure, amount: number): string {
  if (measure === 'cost') return usdText(amount)
  const unit = `${UNITS[measure]}${amount === 1 ? '' : 's'}`
  return `${amount.toLocaleString('en')} ${unit}${measure === 'concurrent' ? ' at once' : ''}`
}
