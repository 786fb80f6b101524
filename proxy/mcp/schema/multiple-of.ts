/** Tells whether a number is a multiple of another, both as they are written in JSON: 0.3 is one of 0.1. */
export function isMultiple(value: number, step: number): boolean {
  if (!Number.isFinite(value)) return false
  if (Number.isSafeInteger(value) && Number.isSafeInteger(step)) return value % step === 0
  const [one, other] = [decimalOf(value), decimalOf(step)]
  const exponent = Math.min(one.exponent, other.exponent)
  return scaled(one, exponent) % scaled(other, exponent) === 0n
}

interface DecimalNumber {
  readonly digits: bigint
  readonly exponent: number
}

function decimalOf(number: number): DecimalNumber {
  const [, whole = '', fraction = '', exponent = '0'] =
    /^-?(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(number)) ?? []
  return { digits: BigInt(whole + fraction), exponent: Number(exponent) - fraction.length }
}

const scaled = ({ digits, exponent }: DecimalNumber, to: number): bigint =>
  digits * 10n ** BigInt(exponent - to)
