/**
 * JSON as the ledger stores it. Integers within ±2^53: a float has several canonical renderings in the wild.
 */
export type JsonValue = null | boolean | number | string | readonly JsonValue[] | JsonObject
export interface JsonObject {
  readonly [name: string]: JsonValue
}

/** A JSON object whose members are not known. */
export type UnknownRecord = Readonly<Record<string, unknown>>

export const isObject = (value: unknown): value is UnknownRecord =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
