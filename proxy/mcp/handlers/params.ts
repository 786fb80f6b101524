import { isObject } from '../../../db/json.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import { type Edits, edited, type JsonText, readObject } from '../protocol/json-text.ts'
import type { McpMessage } from '../protocol/message.ts'
import { type Era, modernMeta } from '../protocol/versions.ts'
import type { CallerSession } from '../state/sessions.ts'

interface CallerMessage extends Pick<JsonBody, 'body' | 'spans'> {
  readonly message: McpMessage
  readonly session: CallerSession | null
}

interface Rewriting {
  /** Of the upstream. */
  readonly era: Era
  /** The upstream's own name of the tool or prompt, where the caller's is another one. */
  readonly name: string | null
  /** The upstream's own state of a multi round-trip request, where the caller sent one. */
  readonly requestState: string | null
}

const EMPTY = readObject(Buffer.from('{}'))

/** Reads a message's parameters as they stand in the body. */
export function paramsText({ body, spans }: Pick<CallerMessage, 'body' | 'spans'>): JsonText {
  const span = spans.get('params')
  return span ? readObject(body.subarray(span.start, span.end)) : EMPTY
}

/**
 * Writes the parameters as the upstream must see them, JSON text: the caller's bytes but for the members that
 * are rewritten. Returns null where there is nothing to send.
 */
export function upstreamParams(call: CallerMessage, { era, name, requestState }: Rewriting): string | null {
  const params = paramsText(call)
  const text = edited(params, {
    ...judgedEdit(params),
    ...nameEdit(params, call.message.method, name),
    ...(requestState !== null && { requestState: JSON.stringify(requestState) }),
    ...metaEdit(call, era),
  })
  return text === '{}' && params === EMPTY ? null : text
}

function nameEdit({ value }: JsonText, method: string, name: string | null): Edits {
  if (name === null) return {}
  if (method !== 'completion/complete') return { name: JSON.stringify(name) }
  return { ref: JSON.stringify({ ...(isObject(value.ref) ? value.ref : {}), name }) }
}

// V8 may have read an escaped name as another one (nodejs/node#63785): the judged object is written then.
function judgedEdit({ escapedNames, value }: JsonText): Edits {
  const judged = escapedNames ? Object.entries(value) : []
  return Object.fromEntries(judged.map(([name, member]) => [name, JSON.stringify(member)]))
}

/**
 * Rewrites `_meta` for the upstream's era: a modern one demands its own, to a legacy one a modern client's
 * means nothing.
 */
function metaEdit({ message, session }: CallerMessage, era: Era): Edits {
  if (era === message.era) return {}
  if (era === 'modern') {
    const own = modernMeta({}, session?.clientInfo ?? undefined)
    return { _meta: JSON.stringify({ ...message.meta, ...own }) }
  }
  const kept = Object.entries(message.meta).filter(([key]) => !key.startsWith('io.modelcontextprotocol/'))
  return { _meta: kept.length === 0 ? null : JSON.stringify(Object.fromEntries(kept)) }
}
