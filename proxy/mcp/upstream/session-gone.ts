import { isObject } from '../../../db/support/json.ts'
import { HEADER_MISMATCH, UNSUPPORTED_VERSION } from '../protocol/json-text.ts'
import { errorCodeOf, responseResult, type UpstreamMessage } from './message.ts'

/** The amount that is looked at of a body that is no message. Bytes. */
const GLANCE = 4_096
/** The words of servers that do not know a session, or have forgotten the handshake. */
const WORDS = /session|not initialized/i

/** An HTTP error to a request of the legacy era that was sent in a session. */
export interface SessionRefusal {
  readonly status: number
  /** True if the request named a session; a server need not give sessions names. */
  readonly named: boolean
  readonly requestId: number
  readonly bytes: Buffer
  /** The body if it is a JSON-RPC message. */
  readonly message: UpstreamMessage | null
}

/**
 * Tells whether the upstream says that it does not know the session, so that it cannot have acted: 404 to a
 * request that named one (2025-11-25, transports: session management), or 400 with words to that effect, or
 * with an error of the newer era. A result never says so; nor does, with 400, an error that answers this very
 * request.
 */
export function sessionIsGone({ status, named, requestId, bytes, message }: SessionRefusal): boolean {
  if (message !== null && responseResult(message) !== null) return false
  if (status === 404) return named
  if (status !== 400 || message?.value.id === requestId) return false
  return (message !== null && isOfNewerEra(message)) || WORDS.test(bytes.toString('latin1', 0, GLANCE))
}

/** Tells an error that only a server of the newer era answers, before it does anything. */
export const isOfNewerEra = (message: UpstreamMessage): boolean => {
  const code = errorCodeOf(message)
  return code === UNSUPPORTED_VERSION || code === HEADER_MISMATCH
}

/** Tells whether an HTTP error speaks of an unknown session: the next request begins a new one. */
export function sessionMayBeGone(status: number, { value }: UpstreamMessage): boolean {
  if (status !== 400 && status !== 404) return false
  return isObject(value.error) && typeof value.error.message === 'string' && WORDS.test(value.error.message)
}
