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

/** The beginnings of attributes, by name: the same few for every span. */
const BEGINNINGS = new Map<string, string>()

function beginningOf(key: string): string {
  const known = BEGINNINGS.get(key)
  if (known !== undefined) return known
  const made = `{"key":${JSON.stringify(key)},"value":{`
  BEGINNINGS.set(key, made)
  return made
}

/** Writes the same as {@link keyValues}, JSON text, for records that each call makes. Names are of this folder. */
export function attributesText(...maps: readonly AttributeMap[]): string {
  let text = ''
  for (const attributes of maps)
    for (const key in attributes) {
      const value = attributes[key]
      if (value === null || value === undefined) continue
      text += `${text === '' ? '' : ','}${beginningOf(key)}${valueText(value)}}}`
    }
  return `[${text}]`
}

function valueText(value: string | number | boolean): string {
  if (typeof value === 'string') return `"stringValue":${JSON.stringify(boundedText(value))}`
  if (typeof value === 'boolean') return `"boolValue":${value}`
  return Number.isSafeInteger(value) ? `"intValue":"${value}"` : `"doubleValue":${value}`
}

/** Writes an instant, ms since the epoch, as ns: a text. */
export const nanoseconds = (ms: number): string => `${Math.round(ms * 1_000)}000`

/** The values of `Metric.aggregation_temporality`. */
export const CUMULATIVE = 2
