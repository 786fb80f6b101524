/** JSON as the ledger stores it. Numbers are integers within ±2^53: a float has more than one canonical rendering in the wild. */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject
export interface JsonObject {
  readonly [name: string]: Json
}
