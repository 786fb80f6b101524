const MICRO = 1_000_000

/** All of an amount in US dollars, with six places: `0.004200`. `microusd`: a whole number, not negative. */
export const usdExact = (microusd: number): string =>
  `${Math.floor(microusd / MICRO)}.${String(microusd % MICRO).padStart(6, '0')}`

/** The same with two places or as many as it needs: `25.00`, `0.0042`. */
export const usdShort = (microusd: number): string => usdExact(microusd).replace(/0{1,4}$/, '')

const TYPED_USD = /^(\d{1,10})(?:\.(\d{1,6}))?$/

/** Reads an amount that somebody typed, such as `25` or `25.50`, in micro-USD; null: it is none. */
export function parseUsd(typed: string): number | null {
  const [, whole, places = ''] = TYPED_USD.exec(typed.trim()) ?? []
  // Digits side by side: no fraction is ever a float.
  return whole === undefined ? null : Number(`${whole}${places.padEnd(6, '0')}`)
}

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
  return `${usdShort(microusd)} USD`
}
