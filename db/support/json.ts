/**
 * JSON as the ledger stores it. Numbers are integers within ±2^53: a float has more than one canonical
 * rendering in the wild.
 */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject
export interface JsonObject {
  readonly [name: string]: Json
}

/** A JSON object of which nothing is known but that it is one. */
export type Members = Readonly<Record<string, unknown>>

export const isObject = (value: unknown): value is Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
