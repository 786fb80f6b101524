import type { JsonObject } from '../../../db/json.ts'
import { isObject, type Members } from '../../../db/json.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { OperatorPermit } from '../../../plugins/permit.ts'
import { type Era, LEGACY, MODERN, modernMeta } from '../protocol/versions.ts'
import { responseOf } from './answer.ts'
import { failed, McpUpstreamError } from './errors.ts'
import { factsOf } from './facts.ts'
import { errorCodeOf, type Message, resultOf } from './message.ts'
import { callModern } from './modern.ts'
import {
  HEADER_MISMATCH,
  MISSING_CLIENT_CAPABILITY,
  READER_CAPABILITIES,
  UNSUPPORTED_VERSION,
} from './protocol.ts'
import { send, type Transport } from './request.ts'
import { endSession, openSession, sessionHeaders } from './session.ts'
import { listTools, type RawTool } from './tools.ts'

/** How long a modern upstream may take to say whether it is of the older era too. ms. */
const SOON_MS = 5_000

/** What an upstream was found to be. */
export interface Reading {
  readonly era: Era
  readonly protocolVersion: string
  /**
   * `capabilities`, `serverInfo` and `instructions`, as far as given and of a sane size; `legacy`: a modern upstream that speaks
   * the older revisions too.
   */
  readonly facts: JsonObject
  readonly tools: readonly RawTool[]
}

/** What the upstream makes of a question of the modern era. Null: it is of the legacy era. */
/** What a server is read with. */
interface Reader {
  readonly transport: Transport
  readonly permit: OperatorPermit
  readonly resource: McpResource
  readonly signal: AbortSignal
}

type Discovery = { readonly result: Members | null } | null

/**
 * Finds out the era of an upstream, what it says of itself, and all its tools. The modern era is tried first
 * (2026-07-28, versioning: backward compatibility), then a session of the legacy one, which is ended again.
 * Throws McpUpstreamError where any of it fails, or the signal's reason.
 */
export async function readUpstream(reader: Reader): Promise<Reading> {
  const discovery = await discover(reader)
  return discovery === null ? readLegacy(reader) : readModern(reader, discovery.result)
}

async function readModern(reader: Reader, result: Members | null): Promise<Reading> {
  // Where the upstream did not say what it has, asking for its tools tells.
  const hasTools = result === null || isObject(capabilitiesOf(result).tools)
  const page = (params: Members) => askModern(reader, 'tools/list', params)
  const tools = hasTools ? await listTools(page, reader.transport.limits.maxTotalBytes) : []
  const facts = { ...factsOf(result ?? {}), legacy: await speaksLegacy(reader) }
  return { era: 'modern', protocolVersion: MODERN, facts, tools }
}

/** Whether a modern upstream lets older clients initialize too: only there can their users be asked something. */
async function speaksLegacy({ transport, resource, signal }: Reader): Promise<boolean> {
  // A server that leaves the question open has answered it.
  const soon = AbortSignal.any([signal, AbortSignal.timeout(SOON_MS)])
  try {
    const { session } = await openSession(transport, resource, { capabilities: {}, clientInfo: null }, soon)
    await endSession(transport, resource, session)
    return true
  } catch (error) {
    if (signal.aborted) throw error
    return false
  }
}

async function readLegacy({ transport, resource, signal }: Reader): Promise<Reading> {
  const client = { capabilities: READER_CAPABILITIES, clientInfo: null }
  const { session, result } = await openSession(transport, resource, client, signal)
  try {
    const page = async (params: Members) => {
      const { answer } = await send(transport, {
        resource,
        requestId: transport.nextId(),
        era: 'legacy',
        session: 'none',
        method: 'tools/list',
        params: JSON.stringify(params),
        headers: sessionHeaders(session),
        signal,
        settled: () => {},
      })
      return responseOf(answer)
    }
    const hasTools = isObject(capabilitiesOf(result).tools)
    const tools = hasTools ? await listTools(page, transport.limits.maxTotalBytes) : []
    return { era: 'legacy', protocolVersion: session.protocolVersion, facts: factsOf(result), tools }
  } finally {
    await endSession(transport, resource, session)
  }
}

const capabilitiesOf = ({ capabilities }: Members): Members => (isObject(capabilities) ? capabilities : {})

async function discover(reader: Reader): Promise<Discovery> {
  let response: Message
  try {
    response = await askModern(reader, 'server/discover', {})
  } catch (error) {
    // What a server does to a question that it does not know: anything but answer.
    if (!reader.signal.aborted && error instanceof McpUpstreamError && isNoAnswer(error)) return null
    throw error
  }
  const code = errorCodeOf(response)
  if (code === UNSUPPORTED_VERSION) return offers(supportedIn(response)) ? { result: null } : null
  if (code === HEADER_MISMATCH || code === MISSING_CLIENT_CAPABILITY) return { result: null }
  const result = resultOf(response)
  if (result === null || !Array.isArray(result.supportedVersions)) return null
  return offers(result.supportedVersions) ? { result } : null
}

/** Not where it is down, silent, or of the opinion that we may not ask: a handshake would fare no better. */
const isNoAnswer = ({ kind, status }: McpUpstreamError): boolean =>
  kind === 'failed' && status !== 401 && status !== 403

/** Whether the modern revision is among the versions. Throws where none is that we know. */
function offers(versions: readonly unknown[]): boolean {
  if (versions.includes(MODERN)) return true
  if (LEGACY.some((version) => versions.includes(version))) return false
  throw failed('it speaks no revision of the protocol that this gateway knows')
}

function supportedIn({ value: { error } }: Message): readonly unknown[] {
  if (!isObject(error) || !isObject(error.data) || !Array.isArray(error.data.supported)) return []
  return error.data.supported
}

async function askModern({ transport, ...call }: Reader, method: string, members: Members): Promise<Message> {
  const params = JSON.stringify({ ...members, _meta: modernMeta(READER_CAPABILITIES) })
  return responseOf(await callModern(transport, { ...call, method, params, headers: {} }))
}
