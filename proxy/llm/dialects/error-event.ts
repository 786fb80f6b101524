import type { IncomingMessage } from 'node:http'
import { UpstreamError } from '../upstream/error.ts'
import type { Api } from './endpoints.ts'

/**
 * The error event of the API's own vocabulary that tells a client's loop that its stream was cut off (ECOSYSTEM §1.5).
 * `tail`: the last bytes that were sent. An event that was cut in half is closed first, or ours would become part of it.
 */
export function brokenOffEvent(api: Api, stream: IncomingMessage, tail: Buffer, requestId: string): string {
  const late = stream.errored instanceof UpstreamError && stream.errored.kind === 'timeout'
  const code = late ? 'provider_timeout' : 'provider_failed'
  const message = late
    ? 'The provider stalled in the middle of its answer. What came so far is not the whole answer.'
    : 'The provider broke off in the middle of its answer. What came so far is not the whole answer.'
  const separator = tail.length === 0 || tail.toString('latin1').endsWith('\n\n') ? '' : '\n\n'
  return separator + eventOf(api, { type: 'api_error', code, message, param: null }, requestId)
}

interface Fault {
  readonly type: string
  readonly code: string
  readonly message: string
  readonly param: null
}

function eventOf(api: Api, error: Fault, requestId: string): string {
  switch (api) {
    case 'messages':
    case 'count_tokens':
      return `event: error\ndata: ${JSON.stringify({ type: 'error', error, request_id: requestId })}\n\n`
    case 'responses':
      return `event: error\ndata: ${JSON.stringify({ ...error, type: 'error', sequence_number: 0, request_id: requestId })}\n\n`
    case 'chat_completions':
    case 'completions':
    case 'embeddings':
      return `data: ${JSON.stringify({ error: { ...error, request_id: requestId } })}\n\n`
  }
}
