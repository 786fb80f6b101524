/** Values as OTLP has them in JSON (opentelemetry-proto: whole numbers of 64 bits are texts, ids are hex). */

export type AttributeValue = string | number | boolean | null | undefined
/** Names and values. Null and undefined ones are left out. */
export type AttributeMap = Readonly<Record<string, AttributeValue>>

/** The longest text of an attribute. Characters. */
export const MAX_ATTRIBUTE = 256

const anyValue = (value: string | number | boolean) => {
  if (typeof value === 'string') return { stringValue: boundedText(value) }
  if (typeof value === 'boolean') return { boolValue: value }
  return Number.isSafeInteger(value) ? { intValue: String(value) } : { doubleValue: value }
}

const boundedText = (text: string): string =>
  text.length > MAX_ATTRIBUTE ? text.slice(0, MAX_ATTRIBUTE).toWellFormed() : text.toWellFormed()

export function keyValues(attributes: AttributeMap): readonly object[] {
  const list: object[] = []
  for (const key in attributes) {
    const value = attributes[key]
    if (value !== null && value !== undefined) list.push({ key, value: anyValue(value) })
  }
  return list
}

/** Writes an instant, ms since the epoch, as ns: a text. */
export const nanoseconds = (ms: number): string => `${Math.round(ms * 1_000)}000`

/** The values of `Metric.aggregation_temporality`. */
export const CUMULATIVE = 2
