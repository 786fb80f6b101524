const MICRO = 1_000_000

/** All of an amount in US dollars, with six places: `0.004200`. `microusd`: a whole number, not negative. */
export const usdExact = (microusd: number): string =>
  `${Math.floor(microusd / MICRO)}.${String(microusd % MICRO).padStart(6, '0')}`

/**
 * An amount for people: `12.35 USD`; below one dollar with all its places, `0.0042 USD`, so that nothing that
 * was spent reads as nothing.
 */
export function usdText(microusd: number): string {
  if (microusd === 0) return '0 USD'
  if (microusd >= MICRO) {
    const cents = Math.round(microusd / 10_000)
    const whole = Math.floor(cents / 100).toLocaleString('en')
    return `${whole}.${String(cents % 100).padStart(2, '0')} USD`
  }
  return `${usdExact(microusd).replace(/0{1,4}$/, '')} USD`
}
