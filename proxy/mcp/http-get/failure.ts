import type { JsonObject } from '../../../db/support/json.ts'

/** A fetch that failed. The message is for the caller, the rest for the outcome row. */
export class FetchFailure extends Error {
  readonly reason: string
  readonly detail: JsonObject

  constructor(reason: string, message: string, detail: JsonObject = {}) {
    super(message)
    this.name = 'FetchFailure'
    this.reason = reason
    this.detail = detail
  }
}
