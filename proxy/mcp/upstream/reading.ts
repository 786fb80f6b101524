import type { McpResource } from '../../../db/mcp/resources.ts'
import { isObject, type JsonObject, type UnknownRecord } from '../../../db/support/json.ts'
import { hangupFromSignal } from '../../../plugins/call-authority.ts'
import type { HangupSignal } from '../../../plugins/plugin.ts'
import { HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_VERSION } from '../protocol/json-text.ts'
import {
  LEGACY_VERSIONS,
  META_KEYS,
  MODERN_VERSION,
  modernMeta,
  type ProtocolEra,
} from '../protocol/versions.ts'
import type { CallerAccount } from './connections.ts'
import { askLegacy, callModern, endUpstreamSession, openUpstreamSession } from './eras.ts'
import { McpUpstreamError, mcpUpstreamFailure, unknownRevisions } from './errors.ts'
import { errorCodeOf, responseResult, supportedIn, type UpstreamMessage } from './message.ts'
import { readFinalResponse } from './own-answers.ts'
import type { UpstreamPermit, UpstreamTransport } from './request.ts'
import { type ListReading, listUpstreamTools, SkippedTools } from './tools.ts'

/** The time that a modern upstream may take to tell whether it is of the older era too. ms. */
const SOON_MS = 5_000
/**
 * The size of each fact that a server may tell of itself. Characters of JSON text, or of the instructions.
 */
const MAX_FACT = 16_384

/**
 * The capabilities that a server is read with: all that a caller of its era may have, since some servers list
 * a tool only to clients that can answer its questions.
 */
const LEGACY_READER: JsonObject = { sampling: {}, elicitation: { form: {}, url: {} } }
const MODERN_READER: JsonObject = { roots: {}, ...LEGACY_READER }

export interface UpstreamReading extends ListReading {
  readonly era: ProtocolEra
  readonly protocolVersion: string
  /** The server's words, of a sane size; `legacy`: a modern upstream that speaks the older eras too. */
  readonly facts: JsonObject
}

interface Reader {
  readonly transport: UpstreamTransport
  readonly permit: UpstreamPermit
  readonly resource: McpResource
  /** The account that it is read by; null: its `auth_type` is not `oauth`. */
  readonly account: CallerAccount | null
  readonly hangup: HangupSignal
}

/** The answer to `server/discover`. Null: the upstream is of the legacy era. */
type Discovery = { readonly result: UnknownRecord | null } | null

/**
 * Finds out the era of an upstream, its description of itself, and all its tools. Tries the modern era first
 * (2026-07-28, versioning: backward compatibility). Throws McpUpstreamError, or the signal's reason.
 */
export async function readMcpServer(reader: Reader): Promise<UpstreamReading> {
  const discovery = await discover(reader)
  return discovery === null ? readLegacy(reader) : readModern(reader, discovery.result)
}

/**
 * Asks an upstream whose answer contradicts its known era. Resolves with the era that it speaks now, `both`,
 * or null if it is not known to be another one. `doubted`: the era, or the handshake that it has just refused
 * and is not asked for again.
 */
export async function eraNow(
  reader: Reader,
  doubted: ProtocolEra | 'handshake',
): Promise<ProtocolEra | 'both' | null> {
  try {
    const isModern = (await discover(reader)) !== null
    if (!isModern && doubted !== 'modern') return null
    const isLegacy = doubted !== 'handshake' && (await speaksLegacy(reader))
    if (isModern && isLegacy) return 'both'
    if (isModern) return 'modern'
    return isLegacy ? 'legacy' : null
  } catch (error) {
    if (reader.hangup.gone || !(error instanceof McpUpstreamError)) throw error
    return null
  }
}

async function readModern(reader: Reader, result: UnknownRecord | null): Promise<UpstreamReading> {
  // If the upstream did not list its features, asking for its tools tells.
  const hasTools = result === null || isObject(capabilitiesOf(result).tools)
  const page = (params: UnknownRecord) => askModern(reader, 'tools/list', params)
  const list = hasTools ? await toolsBy(page, reader) : noTools()
  const facts = { ...factsOf(result ?? {}), legacy: await speaksLegacy(reader) }
  return { era: 'modern', protocolVersion: MODERN_VERSION, facts, ...list }
}

/** Tells whether a modern upstream lets older clients initialize too: only there can their users be asked. */
async function speaksLegacy({ transport, permit, resource, account, hangup }: Reader): Promise<boolean> {
  const client = { capabilities: {}, clientInfo: null }
  // A server that leaves the question open has answered it.
  const soon = hangupFromSignal(AbortSignal.any([hangup.signal, AbortSignal.timeout(SOON_MS)]))
  try {
    const { session } = await openUpstreamSession(transport, {
      ...{ permit, resource, account, client },
      hangup: soon,
    })
    await endUpstreamSession(transport, resource, session, account)
    return true
  } catch (error) {
    if (hangup.gone) throw error
    return false
  }
}

async function readLegacy(reader: Reader): Promise<UpstreamReading> {
  const { transport, permit, resource, account, hangup } = reader
  const client = { capabilities: LEGACY_READER, clientInfo: null }
  const opening = { permit, resource, account, client, hangup }
  const { session, result } = await openUpstreamSession(transport, opening)
  try {
    const asked = { permit, resource, account, hangup, method: 'tools/list', headers: session.headers }
    const page = async (params: UnknownRecord) =>
      (await askLegacy(transport, { ...asked, params, declared: LEGACY_READER })).response
    const hasTools = isObject(capabilitiesOf(result).tools)
    const list = hasTools ? await toolsBy(page, reader) : noTools()
    return { era: 'legacy', protocolVersion: session.protocolVersion, facts: factsOf(result), ...list }
  } finally {
    await endUpstreamSession(transport, resource, session, account)
  }
}

const toolsBy = (
  page: (params: UnknownRecord) => Promise<UpstreamMessage>,
  { transport, resource, hangup }: Reader,
): Promise<ListReading> =>
  listUpstreamTools(page, transport.limits.maxAnswerBytes, {
    key: resource.resource_id,
    signal: hangup.signal,
  })

const noTools = (): ListReading => ({ tools: [], skipped: new SkippedTools(), unread: null })

const capabilitiesOf = ({ capabilities }: UnknownRecord): UnknownRecord =>
  isObject(capabilities) ? capabilities : {}

async function discover(reader: Reader): Promise<Discovery> {
  let response: UpstreamMessage
  try {
    response = await askModern(reader, 'server/discover', {})
  } catch (error) {
    // A server does anything but answer a method that it does not know.
    if (!reader.hangup.gone && error instanceof McpUpstreamError && isNoAnswer(error)) return null
    throw error
  }
  const code = errorCodeOf(response)
  if (code === UNSUPPORTED_VERSION) return offersModern(supportedIn(response)) ? { result: null } : null
  if (code === HEADER_MISMATCH || code === MISSING_CLIENT_CAPABILITY) return { result: null }
  const result = responseResult(response)
  if (result === null || !Array.isArray(result.supportedVersions)) return null
  return offersModern(result.supportedVersions) ? { result } : null
}

/** False if it is down, silent, or refuses our credentials: a handshake would fare no better. */
const isNoAnswer = ({ kind, status }: McpUpstreamError): boolean =>
  kind === 'failed' && status !== 401 && status !== 403

/** Tells whether the modern revision is among the versions. Throws if this gateway knows none of them. */
function offersModern(versions: readonly unknown[]): boolean {
  if (versions.includes(MODERN_VERSION)) return true
  if (LEGACY_VERSIONS.some((version) => versions.includes(version))) return false
  throw mcpUpstreamFailure(unknownRevisions(versions))
}

/** A modern server's requests are refused as they are read. */
const NOBODY_ASKS = async (): Promise<void> => {}

async function askModern(
  { transport, ...call }: Reader,
  method: string,
  members: UnknownRecord,
): Promise<UpstreamMessage> {
  const params = JSON.stringify({ ...members, _meta: modernMeta(MODERN_READER) })
  const answer = await callModern(transport, { ...call, method, params, headers: {}, held: null })
  return readFinalResponse(answer, NOBODY_ASKS)
}

/** Takes a server's facts of itself; leaves out large objects, cuts long instructions. */
function factsOf(result: UnknownRecord): JsonObject {
  const { capabilities, instructions } = result
  const serverInfo = serverInfoOf(result)
  return {
    ...(isSmallObject(capabilities) && { capabilities }),
    ...(isSmallObject(serverInfo) && { serverInfo }),
    ...(typeof instructions === 'string' && { instructions: truncateFact(instructions) }),
  }
}

/**
 * Reads it from `_meta` since 2026-07-28 (server/discover), from the place next to the capabilities before.
 */
function serverInfoOf({ _meta: meta, serverInfo }: UnknownRecord): unknown {
  return (isObject(meta) ? meta[META_KEYS.serverInfo] : undefined) ?? serverInfo
}

/** An object that came out of JSON.parse is one of JSON. */
const isSmallObject = (value: unknown): value is JsonObject =>
  isObject(value) && JSON.stringify(value).length <= MAX_FACT

/** Never through the middle of a character. */
const truncateFact = (text: string): string =>
  text.length <= MAX_FACT ? text : text.slice(0, MAX_FACT).replace(/[\uD800-\uDBFF]$/, '')
