import { isObject, type UnknownRecord } from '../../db/support/json.ts'
import { UnfinishedChange, WrongUsage } from '../command.ts'

/** `body` is parsed JSON, text if it is none, null if there was none. `etag`: of the object that it shows. */
export interface AdminAnswer {
  readonly status: number
  readonly body: unknown
  readonly etag?: string | undefined
}

export type AnswerSink = (pieces: AsyncIterable<Uint8Array>) => Promise<void>

export interface CallOptions {
  /** The sink of the body of a 200; `body` in the answer is then null. */
  readonly into?: AnswerSink
  /** The `etag` that was read: an object changed since is left as it is, and answered 412. */
  readonly ifMatch?: string | undefined
}

/** Calls the admin API. `path` as on the network, e.g. `/v1/admin/agents`. */
export type AdminCall = (
  method: string,
  path: string,
  body?: unknown,
  options?: CallOptions,
) => Promise<AdminAnswer>

export const adminAnswer = (
  status: number,
  { 'content-type': type, etag }: { readonly [name: string]: unknown },
  text: string,
): AdminAnswer => ({
  status,
  body: type === 'application/json' ? JSON.parse(text) : text || null,
  ...(typeof etag === 'string' && { etag }),
})

const WAITS = 202
const UNUSABLE: readonly number[] = [400, 422]

/**
 * Returns the body of an expected status, `T` by the version that runs. Throws the service's own sentence; an {@link UnfinishedChange} if
 * the change waits for a second operator, a {@link WrongUsage} if the gateway cannot use the input.
 */
export function expectStatus<T = Record<string, unknown>>(
  { status, body: whole }: AdminAnswer,
  expected: number,
): T {
  // Every body of the admin API is an object or an array.
  const body = (whole ?? {}) as Record<string, unknown>
  if (status === expected) return body as T
  if (status === WAITS && isObject(whole)) throw new UnfinishedChange(waitingText(whole))
  const sentence = typeof body.message === 'string' ? body.message : `the gateway answered ${status}`
  throw UNUSABLE.includes(status) ? new WrongUsage(sentence) : new Error(sentence)
}

const waitingText = ({ proposal_id: id, expires_at: until }: UnknownRecord): string =>
  `the change is waiting for a second operator, until ${String(until)}: sallyport operator confirm ${String(id)}`
