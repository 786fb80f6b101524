import { isObject } from '../../../db/json.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import { type Edits, edited, type JsonText, readObject } from '../protocol/json-text.ts'
import type { McpMessage } from '../protocol/message.ts'
import { type Era, modernMeta } from '../protocol/versions.ts'
import type { CallerSession } from '../state/sessions.ts'

interface Sent extends Pick<JsonBody, 'body' | 'spans'> {
  readonly message: McpMessage
  readonly session: CallerSession | null
}

interface Rewriting {
  /** Of the upstream. */
  readonly era: Era
  /** What the upstream calls the tool or prompt, where that is not what the caller called it. */
  readonly name: string | null
  /** The upstream's own state of a multi round-trip request, where the caller sent one. */
  readonly requestState: string | null
}

const EMPTY = readObject(Buffer.from('{}'))

/** A message's parameters as they stand in the body. */
export function paramsText({ body, spans }: Pick<Sent, 'body' | 'spans'>): JsonText {
  const span = spans.get('params')
  return span ? readObject(body.subarray(span.start, span.end)) : EMPTY
}

/**
 * The parameters as the upstream must see them, JSON text: the caller's bytes but for what is rewritten. Null where there is
 * nothing to send.
 */
export function upstreamParams(sent: Sent, { era, name, requestState }: Rewriting): string | null {
  const params = paramsText(sent)
  const text = edited(params, {
    ...judgedEdit(params),
    ...nameEdit(params, sent.message.method, name),
    ...(requestState !== null && { requestState: JSON.stringify(requestState) }),
    ...metaEdit(sent, era),
  })
  return text === '{}' && params === EMPTY ? null : text
}

function nameEdit({ value }: JsonText, method: string, name: string | null): Edits {
  if (name === null) return {}
  if (method !== 'completion/complete') return { name: JSON.stringify(name) }
  return { ref: JSON.stringify({ ...(isObject(value.ref) ? value.ref : {}), name }) }
}

// V8 may have read an escaped name as another one (nodejs/node#63785): what was judged is then what is written.
function judgedEdit({ escapedNames, value }: JsonText): Edits {
  const judged = escapedNames ? Object.entries(value) : []
  return Object.fromEntries(judged.map(([name, member]) => [name, JSON.stringify(member)]))
}

/** Each era's requests carry what that era demands, and a client's modern `_meta` means nothing to a legacy upstream. */
function metaEdit({ message, session }: Sent, era: Era): Edits {
  if (era === message.era) return {}
  if (era === 'modern') {
    const own = modernMeta({}, session?.clientInfo ?? undefined)
    return { _meta: JSON.stringify({ ...message.meta, ...own }) }
  }
  const kept = Object.entries(message.meta).filter(([key]) => !key.startsWith('io.modelcontextprotocol/'))
  return { _meta: kept.length === 0 ? null : JSON.stringify(Object.fromEntries(kept)) }
}
